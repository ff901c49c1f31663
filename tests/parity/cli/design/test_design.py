"""`parity calibrate` and `parity plan`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.gate.exit_codes import EXIT_CODES
from tests.parity.cli.schemas import check

CURVES = Path(__file__).parents[4] / "examples" / "curves"
Run = Callable[..., tuple[int, str, str]]


def _reruns(data: Path) -> list[str]:
    """Three of the seven; tests/parity/design/test_calibrate.py judges all pairs of four."""
    return [f"{data / 'nanogpt_reruns.npz'}:rerun{i}" for i in range(3)]


def test_the_recipe_of_the_reruns_sets_their_assumed_noise(data: Path, run: Run) -> None:
    runs = ("calibrate", *_reruns(data), "--planned-steps", "1750", "--margin", "0.5%", "--json")
    passes = {}
    for recipe in ("bf16", "nvfp4", None):
        code, out, _ = run(*runs, *(("--recipe", recipe) if recipe else ()))
        passes[recipe] = json.loads(out)["margins"][0]["pass"]
        assert code == 0
    assert passes["bf16"] > passes["nvfp4"] == passes[None]


def test_calibrate(data: Path, run: Run) -> None:
    code, out, _ = run("calibrate", *_reruns(data), "--planned-steps", "1750", "--json")
    calibration = json.loads(out)
    assert code == 0
    check("calibration", calibration)
    assert set(calibration) >= {
        "runs",
        "tau",
        "margins",
        "covers_zero",
        "naive_rejects",
        "injected",
    }
    assert set(calibration["tau"]) >= {"value", "lo", "hi"}
    assert set(calibration["margins"][0]) == {"margin_rel", "pass", "inconclusive", "fail"}
    code, out, _ = run("calibrate", *_reruns(data)[:2], "--margin", "1%")
    assert code == 0
    assert "2 runs, 2 ordered pairs" in out
    assert calibration["margins"][1]["pass"] < 1.0  # how they round is not stated
    code, out, _ = run(
        "calibrate",
        *_reruns(data),
        "--planned-steps",
        "1750",
        "--rounding",
        "nearest",
        "--margin",
        "1%",
        "--json",
    )
    assert json.loads(out)["margins"][0]["pass"] == 1.0
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("calibrate", "{data}/nanogpt_reruns.npz:rerun1"), "expected at least 2 reruns"),
        (("calibrate", "{data}/nanogpt_reruns.npz", "--margin", "0.1"), "relative margin"),
        (("plan", "--level", "0", "--planned-steps", "100"), "level is 0.0"),
        (
            ("plan", "--level", "3", "--planned-steps", "100", "--profile", "noise-floor"),
            "noise-floor margin",
        ),
        (("plan", "--level", "3"), "is missing"),
        (
            ("plan", "--planned-steps", "1000", "--stop-at", "0.4"),
            "--stop-at is 0.4 without --short-reruns",
        ),
        (
            ("plan", "--planned-steps", "1000", "--short-reruns", "3", "--stop-at", "0.3"),
            "--stop-at is 0.3; expected a share",
        ),
        (
            ("plan", "--planned-steps", "1000", "--short-reruns", "17"),
            "--short-reruns is '17'; expected a whole number from 0 to 16",
        ),
        (
            ("plan", "--planned-steps", "1000", "--short-reruns", "3", "--budget", "9000 steps"),
            "is what --budget chooses",
        ),
        (
            ("plan", "--level", "3", "--planned-steps", "100", "--candidate-recipe", "fp4"),
            "--candidate-recipe is 'fp4'; did you mean nvfp4?",
        ),
        (
            ("plan", "--level", "3", "--planned-steps", "100", "--baseline-rounding", "x"),
            "--baseline-rounding is 'x'; expected stochastic",
        ),
        (
            ("calibrate", "{data}/nanogpt_reruns.npz", "--rounding", "no"),
            "--rounding is 'no'; expected stochastic or nearest",
        ),
        (
            ("plan", "--planned-steps", "1000", "--margin", "0.01 nats"),
            "--level is missing; expected the loss at the end",
        ),
        (
            ("plan", "--planned-steps", "1000", "--family", "modded"),
            "--family is 'modded', which the table does not have; expected one of the",
        ),
        (
            ("plan", "--planned-steps", "1000", "--family", "any-decodr"),
            "did you mean any-decoder?",
        ),
        (
            ("plan", "--planned-steps", "1000", "--family", "third=modded"),
            "--family third: no such run; the runs are called baseline, candidate",
        ),
        (
            ("plan", "--planned-steps", "1000", "--family", "baseline="),
            "--family is 'baseline='; expected NAME or ARM=NAME",
        ),
        (("plan", "--planned-steps", "1000", "--noise-table", "{data}/x.csv"), "without --family"),
        (
            (
                "plan",
                "--planned-steps",
                "1000",
                "--family",
                "a",
                "--noise-table",
                "{data}/nowhere.csv",
            ),
            "nowhere.csv: cannot be read",
        ),
        (
            (
                "plan",
                "--planned-steps",
                "1000",
                "--family",
                "a",
                "--noise-table",
                "{data}/nanogpt_reruns.npz",
            ),
            "cannot be read (not UTF-8",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "200"),
            "--budget is '200'; expected device hours",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "0 hours"),
            "--budget is '0 hours', which is not a number above 0",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget=-5 steps"),
            "--budget is '-5 steps', which is not a whole number of steps from 1",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "nan hours"),
            "--budget is 'nan hours'; expected device hours",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "5 hours"),
            "--budget is 5 device hours, but the duration of a step is unknown",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "1500 steps"),
            "one pair of runs of 1,000 steps takes 2,000 steps",
        ),
        (
            ("plan", "--planned-steps", "1000", "--budget", "9000 steps", "--candidate-runs", "2"),
            "--candidate-runs is what --budget chooses",
        ),
        (("plan", "--planned-steps", "0"), "--planned-steps is '0'; expected"),
        (("plan", "--planned-steps", "1" + 400 * "0"), "--planned-steps has 401 digits"),
        (
            ("plan", "--planned-steps", "1000", "--baseline-runs", "65"),
            "--baseline-runs is '65'; expected",
        ),
        (
            ("plan", "--planned-steps", "1000", "--step-seconds", "0"),
            "--step-seconds is 0.0; expected more than 0",
        ),
    ],
)
def test_bad_usage_of_studies(
    arguments: tuple[str, ...], message: str, data: Path, run: Run
) -> None:
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
        "--margin",
        "0.5%",
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
    text = " ".join(out.split())
    assert text.startswith(
        "1 baseline run and 1 candidate run of 10,000 steps cannot decide a margin of 0.5 % "
        "(0.0195 nats)"
    )
    assert "passes with 62 % probability" in text
    assert "30,000 run-steps, 133 device hours" in text
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run(*common, "--candidate-runs", "5", "--baseline-runs", "2", "--json")
    assert (code, json.loads(out)["decides"]) == (0, True)


def test_plan_with_a_budget_answers_for_the_budget(run: Run) -> None:
    steps = (
        "plan",
        "--planned-steps",
        "10000",
        "--margin",
        "0.5%",
        "--baseline-recipe",
        "fp8",
        "--candidate-recipe",
        "nvfp4",
    )
    code, out, _ = run(*steps, "--budget", "30000 steps", "--json")
    document = json.loads(out)
    assert (code, document["decides"], document["budget"]) == (
        0,
        True,
        {"amount": 30000.0, "unit": "steps"},
    )
    assert [document["design"][key] for key in ("baseline_runs", "candidate_runs")] == [1, 2]
    code, out, _ = run(*steps, "--budget", "25000 steps")
    assert code == EXIT_CODES["inconclusive"]
    assert "25,000 run-steps cannot decide" in " ".join(out.split())


def test_plan_borrows_from_a_family_of_a_table(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "noise.csv"
    rows = [f"ours,g{number},4,2.40,{0.0007 + 0.0001 * number},nats,nearest" for number in range(5)]
    table.write_text("family,group,runs,mean_loss,sd,unit,rounding\n" + "\n".join(rows) + "\n")
    arguments = (
        "plan",
        "--planned-steps",
        "5000",
        "--margin",
        "0.25%",
        "--baseline-recipe",
        "fp8",
        "--candidate-recipe",
        "mxfp8",
    )
    assert run(*arguments)[0] == EXIT_CODES["inconclusive"]
    code, out, _ = run(*arguments, "--family", "ours", "--noise-table", str(table), "--json")
    document = json.loads(out)
    assert (code, document["unit"], document["noise_basis"]) == (0, "nats", "borrowed")
    code, out, _ = run(
        *arguments, "--family", "candidate=ours", "--noise-table", str(table), "--json"
    )
    assert [arm["basis"] for arm in json.loads(out)["run_noise"]] == [
        "assumed",
        "borrowed from ours",
    ]


def test_a_plan_with_reruns_that_stop_early_has_their_cost_and_both_half_widths(run: Run) -> None:
    pair = (
        "plan",
        "--planned-steps",
        "10000",
        "--margin",
        "0.5%",
        "--baseline-recipe",
        "fp8",
        "--candidate-recipe",
        "nvfp4",
    )
    code, out, _ = run(*pair, "--short-reruns", "3", "--stop-at", "0.4", "--json")
    document = json.loads(out)
    assert (code, document["run_steps"], document["design"]["short_reruns"]) == (3, 44_000, 3)
    both = document["early_stops"]
    assert document["half_width"] == both["half_width"] > both["replicates_half_width"]
    text = " ".join(run(*pair, "--short-reruns", "3", "--stop-at", "0.4")[1].split())
    assert "with 3 reruns per arm that stop at 40 %" in text
    assert "do not pay here" in text


def test_a_plan_knows_how_often_the_loss_is_logged(tmp_path: Path, run: Run) -> None:
    thin = tmp_path / "earlier.csv"
    thin.write_text(
        "step,loss\n"
        + "".join(f"{step},{3.0 + 20.0 / (step + 10)}\n" for step in range(0, 1001, 20))
    )
    line = ("plan", "--planned-steps", "1000", "--json")
    _, out, err = run(*line, "--like", str(thin))
    plan = json.loads(out)
    assert "logged every 20 steps" in err
    assert (plan["design"]["log_every"], plan["decides"]) == (20, False)
    assert "10 logged steps (every 20 steps)" in plan["no_pass"]
    dense = json.loads(run(*line, "--like", str(thin), "--log-every", "1")[1])
    assert (dense["design"]["log_every"], dense["no_pass"]) == (1, "")


def test_a_plan_like_a_run_has_its_batch_noise_and_says_that_a_denser_log_decides(
    tmp_path: Path, run: Run
) -> None:
    """A pair of the examples that logs every 10 steps: the plan is as wide as the verdict's
    interval, within a fifth.
    """
    for arm in ("fp8", "nvfp4"):
        head, *rows = (CURVES / f"{arm}.csv").read_text().splitlines()
        (tmp_path / f"{arm}.csv").write_text("\n".join([head, *rows[::10]]) + "\n")
    line = ("--planned-steps", "1500")
    _, out, _ = run("plan", *line, "--like", str(tmp_path / "fp8.csv"), "--json")
    planned = json.loads(out)
    _, out, _ = run(
        "compare", str(tmp_path / "fp8.csv"), str(tmp_path / "nvfp4.csv"), *line, "--json"
    )
    gap = json.loads(out)["verdicts"][0]["gap"]
    assert planned["half_width"] == pytest.approx((gap["hi"] - gap["lo"]) / 2, rel=0.2)
    assert (planned["decides"], planned["every_step_decides"]) == (False, True)
    dense = json.loads(run("plan", *line, "--like", str(CURVES / "fp8.csv"), "--json")[1])
    assert (dense["decides"], dense["every_step_decides"]) == (True, False)
    stated = json.loads(
        run("plan", *line, "--like", str(tmp_path / "fp8.csv"), "--pair-sd", "0.001", "--json")[1]
    )
    assert stated["half_width"] < planned["half_width"]
