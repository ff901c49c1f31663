"""`parity calibrate` and `parity plan`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.cli.terminal.exits import EXIT_CODES

Run = Callable[..., tuple[int, str, str]]


def _reruns(data: Path) -> list[str]:
    """Four of the seven; tests/parity/design/test_calibrate.py judges all pairs of all."""
    return [f"{data / 'nanogpt_reruns.npz'}:rerun{i}" for i in range(4)]


def test_the_recipe_of_the_reruns_sets_their_assumed_noise(data: Path, run: Run) -> None:
    runs = ("calibrate", *_reruns(data), "--planned-steps", "1750", "--margin", "0.5%", "--json")
    passes = {}
    for recipe in ("bf16", "nvfp4", None):
        code, out, _ = run(*runs, *(("--recipe", recipe) if recipe else ()))
        passes[recipe] = json.loads(out)["margins"][0]["pass"]
        assert code == 0
    assert passes["bf16"] == 1.0 > passes["nvfp4"] == passes[None]


def test_calibrate(data: Path, run: Run) -> None:
    code, out, _ = run("calibrate", *_reruns(data), "--planned-steps", "1750", "--json")
    calibration = json.loads(out)
    assert code == 0
    assert set(calibration) >= {"runs", "tau", "margins", "covers_zero", "naive_rejects", "injected"}
    assert set(calibration["tau"]) >= {"value", "lo", "hi"}
    assert set(calibration["margins"][0]) == {"margin_rel", "pass", "inconclusive", "fail"}
    code, out, _ = run("calibrate", *_reruns(data)[:2], "--margin", "1%")
    assert code == 0
    assert "2 runs, 2 ordered pairs" in out
    assert calibration["margins"][0]["pass"] < 1.0  # how they round is not stated
    code, out, _ = run("calibrate", *_reruns(data), "--planned-steps", "1750", "--rounding", "nearest", "--json")
    assert [entry["pass"] for entry in json.loads(out)["margins"][:2]] == [1.0, 1.0]
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("calibrate", "{data}/nanogpt_reruns.npz:rerun1"), "expected at least 2 reruns"),
        (("calibrate", "{data}/nanogpt_reruns.npz", "--margin", "0.1"), "relative margin"),
        (("plan", "--level", "0", "--planned-steps", "100"), "level is 0.0"),
        (("plan", "--level", "3", "--planned-steps", "100", "--profile", "noise-floor"), "noise-floor margin"),
        (("plan", "--level", "3"), "is missing"),
        (
            ("plan", "--level", "3", "--planned-steps", "100", "--candidate-recipe", "fp4"),
            "--candidate-recipe is 'fp4'; expected one of f32",
        ),
        (("plan", "--level", "3", "--planned-steps", "100", "--baseline-rounding", "x"), "--baseline-rounding is 'x'; expected stochastic"),
        (("calibrate", "{data}/nanogpt_reruns.npz", "--rounding", "no"), "--rounding is 'no'; expected stochastic or nearest"),
    ],
)
def test_bad_usage_of_studies(arguments: tuple[str, ...], message: str, data: Path, run: Run) -> None:
    code, out, err = run(*(argument.format(data=data) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_plan(run: Run) -> None:
    common = (
        "plan",
        "--level",
        "3.9",
        "--planned-steps",
        "10000",
        "--baseline-recipe",
        "fp8",
        "--candidate-recipe",
        "nvfp4",
        "--step-seconds",
        "2",
        "--devices",
        "8",
    )
    code, out, _ = run(*common)
    assert code == EXIT_CODES["inconclusive"]
    assert "only 72 %" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run(*common, "--candidate-runs", "5", "--baseline-runs", "2", "--json")
    assert (code, json.loads(out)["decides"]) == (0, True)
