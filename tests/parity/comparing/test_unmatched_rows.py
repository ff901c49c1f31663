"""Losses without steps: a line that one log lacks would move all that follow it."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import parity
from parity.cli import main
from parity.comparing.statements import InputError

STEPS = 1500
GAP = slice(700, 730)  # the rows that a log lacks
OPTIONS = ["--planned-steps", str(STEPS), "--schedule", "decayed", "--margin", "1%"]
RECIPES = ["--recipe", "base=bf16", "--recipe", "cand=fp8_current"]
FORMS: dict[str, Callable[[int, float], str]] = {
    "csv": lambda _step, loss: f"{loss}",
    "jsonl": lambda _step, loss: f'{{"loss": {loss}, "grad_norm": 0.5}}',
    "log": lambda _step, loss: f"{{'loss': {loss}, 'grad_norm': 0.5, 'epoch': 1.0}}",
}


def log_of(folder: Path, name: str, losses: list[float], form: str, lost: slice) -> str:
    line = FORMS[form]
    lines = [line(step, loss) for step, loss in enumerate(losses, 1)]
    del lines[lost]
    path = folder / f"{name}.{form}"
    path.write_text("".join(f"{text}\n" for text in (["loss"] * (form == "csv") + lines)))
    return str(path)


def stepped(folder: Path, name: str, losses: list[float], lost: slice) -> str:
    rows = [f"{step},{loss}\n" for step, loss in enumerate(losses, 1)]
    del rows[lost]
    path = folder / f"{name}.csv"
    path.write_text("step,loss\n" + "".join(rows))
    return str(path)


def status(base: str, cand: str) -> int:
    """The exit status of the comparison of two files."""
    try:
        return main(["compare", base, cand, *OPTIONS, *RECIPES])
    except SystemExit as refusal:
        return int(refusal.code or 0)


@pytest.fixture
def pair(frames: dict[str, pd.DataFrame]) -> tuple[list[float], list[float]]:
    """The losses of a baseline and of a candidate that is as good."""
    return tuple(frames[name]["loss"].tolist()[:STEPS] for name in ("fp8", "mxfp8"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shorter", [0, 1])
def test_a_log_that_lacks_lines_is_not_judged(
    form: str, shorter: int, pair: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    base, cand = (
        log_of(tmp_path, name, losses, form, GAP if at == shorter else slice(0))
        for at, (name, losses) in enumerate(zip(("base", "cand"), pair, strict=True))
    )
    with pytest.raises(InputError, match=r"1,500.*1,470|1,470.*1,500"):
        parity.compare(base, cand, planned_steps=STEPS, schedule="decayed", margin="1%")
    assert status(base, cand) == 2


@pytest.mark.parametrize("form", FORMS)
def test_logs_of_equal_length_are_judged(
    form: str, pair: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    base, cand = (
        log_of(tmp_path, name, losses, form, slice(0))
        for name, losses in zip(("base", "cand"), pair, strict=True)
    )
    assert status(base, cand) == 0


def test_steps_of_one_arm_alone_match_no_rows(
    pair: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    base = stepped(tmp_path, "base", pair[0], slice(0))
    cand = log_of(tmp_path, "cand", pair[1], "jsonl", GAP)
    assert status(base, cand) == 2
    cand = log_of(tmp_path, "cand", pair[1], "jsonl", slice(0))
    assert status(base, cand) == 0


def test_a_log_with_steps_may_lack_lines(
    pair: tuple[list[float], list[float]], tmp_path: Path
) -> None:
    base = stepped(tmp_path, "base", pair[0], slice(0))
    cand = stepped(tmp_path, "cand", pair[1], GAP)
    result = parity.compare(base, cand, planned_steps=STEPS, schedule="decayed", margin="1%")
    assert result.verdict == "pass"
