"""Files that leave a worse candidate's losses out, or hide them: none passes. The honest file of
the same shape does.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.readers.errors import ReadError

LENGTH = 1500
BROKEN = 1300
"""The step from which the candidate is worse by 1 nat, in the judged window."""
STEPS = np.arange(LENGTH)
RATES = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * STEPS / LENGTH))
Write = Callable[[np.ndarray], str]
"""The text of a file from the candidate's losses."""


def losses(seed: int) -> np.ndarray:
    batches = np.random.default_rng(0).normal(0, 0.08, LENGTH)
    return (
        2.5
        + 4.0 / np.sqrt(STEPS + 1.0)
        + batches
        + np.random.default_rng(seed).normal(0, 0.004, LENGTH)
    )


BASE, GOOD = losses(1), losses(2)
WORSE = GOOD + (STEPS >= BROKEN)


def csv(cell: Callable[[int, float], object], head: str = "step,loss,lr") -> Write:
    return lambda loss: (
        "\n".join([head, *(f"{s},{cell(s, v)},{RATES[s]}" for s, v in enumerate(loss.tolist()))])
        + "\n"
    )


def json_lines(row: Callable[[int, float], dict[str, Any]]) -> Write:
    return lambda loss: "".join(
        json.dumps({"lr": RATES[s], **row(s, v)}) + "\n" for s, v in enumerate(loss.tolist())
    )


def log(line: Callable[[int, float], str]) -> Write:
    return lambda loss: "".join(
        f"{line(s, v)} lr {RATES[s]:.5e}\n" for s, v in enumerate(loss.tolist())
    )


def late(other: Any, usual: Any) -> Callable[[int, float], Any]:
    """One writer of a row from the step on at which the candidate is worse, and the usual one
    before.
    """
    return lambda step, value: other(step, value) if step >= BROKEN else usual(step, value)


def plain(_: int, value: float) -> object:
    return value


def always(cell: object) -> Callable[[int, float], object]:
    """The same cell in each row."""
    return lambda *_: cell


def row(step: int, value: float) -> dict[str, Any]:
    return {"step": step, "loss": value}


def printed(step: int, value: float) -> str:
    return f"step {step} loss {value:.5f}"


def twice(step: int, value: float, first: float) -> str:
    return f'{{"step": {step}, "loss": {first!r}, "loss": {value!r}, "lr": {RATES[step]}}}\n'


def again(rows: slice, then: Callable[[int, float], object]) -> Write:
    """A CSV file that comes back to steps that it had, as after a resume."""
    return lambda loss: (
        csv(plain)(loss)
        + "".join(f"{s},{then(s, GOOD[s].item())},{RATES[s]}\n" for s in STEPS[rows].tolist())
    )


ATTACKS: dict[str, tuple[str, Write, Write]] = {
    "the tail's losses are n/a; twin: a validation loss is n/a": (
        "run.csv",
        csv(late(always("n/a"), plain)),
        csv(lambda s, v: f"{v},{v if s % 100 == 0 else 'n/a'}", "step,loss,val_loss,lr"),
    ),
    "the tail's losses are -; twin: another metric is -": (
        "run.csv",
        csv(late(always("-"), plain)),
        csv(lambda _, v: f"{v},-", "step,loss,throughput,lr"),
    ),
    "the tail's losses are inf; twin: another metric is inf": (
        "run.csv",
        csv(late(always("inf"), plain)),
        csv(lambda _, v: f"{v},inf", "step,loss,loss_scale,lr"),
    ),
    "the tail's losses repeat the last good one; twin: they are its own": (
        "run.csv",
        csv(late(always(GOOD[BROKEN - 1]), plain)),
        csv(plain),
    ),
    "the tail is written again, without a loss; twin: five rows are written again": (
        "run.csv",
        again(slice(BROKEN, None), always("")),
        again(slice(LENGTH - 5, None), plain),
    ),
    "the tail is written again, with better losses; twin: it is, with the same": (
        "run.csv",
        again(slice(BROKEN, None), plain),
        again(slice(BROKEN, None), plain),
    ),
    "the tail's rows are cut before the loss; twin: no row is": (
        "run.csv",
        lambda loss: "".join(
            line if number <= BROKEN else line.partition(",")[0] + "\n"
            for number, line in _lines(csv(plain)(loss))
        ),
        csv(plain),
    ),
    "the tail's rows are comments; twin: a comment in another column": (
        "run.csv",
        lambda loss: "".join(
            line if number <= BROKEN else "#" + line for number, line in _lines(csv(plain)(loss))
        ),
        csv(lambda _, v: f"{v},#", "step,loss,note,lr"),
    ),
    "the columns change places in the tail; twin: from the first row on": (
        "run.csv",
        lambda loss: (
            csv(plain)(loss[:BROKEN])
            + "step,lr,loss\n"
            + "".join(f"{s},{RATES[s]},{loss[s]}\n" for s in STEPS[BROKEN:].tolist())
        ),
        lambda loss: (
            "step,lr,loss\n" + "".join(f"{s},{RATES[s]},{loss[s]}\n" for s in STEPS.tolist())
        ),
    ),
    "the tail's losses are null; twin: a validation loss is null": (
        "run.jsonl",
        json_lines(late(lambda s, _: {"step": s, "loss": None}, row)),
        json_lines(lambda s, v: {**row(s, v), "val_loss": v if s % 100 == 0 else None}),
    ),
    "the loss has another name in the tail; twin: in all rows": (
        "run.jsonl",
        json_lines(late(lambda s, v: {"step": s, "train_loss": v}, row)),
        json_lines(lambda s, v: {"step": s, "train_loss": v}),
    ),
    "the step has another name in the tail; twin: in all rows": (
        "run.jsonl",
        json_lines(late(lambda s, v: {"global_step": s, "loss": v}, row)),
        json_lines(lambda s, v: {"global_step": s, "loss": v}),
    ),
    "the tail's losses are in lists; twin: another metric is": (
        "run.jsonl",
        json_lines(late(lambda s, v: {"step": s, "loss": [v]}, row)),
        json_lines(lambda s, v: {**row(s, v), "times": [v]}),
    ),
    "the tail's rows are evaluations; twin: evaluations stand between the rows": (
        "run.jsonl",
        json_lines(late(lambda s, v: {"step": s, "eval_loss": v}, row)),
        lambda loss: "".join(
            json.dumps({**row(s, v), "lr": RATES[s]})
            + "\n"
            + (json.dumps({"step": s, "eval_loss": v}) + "\n" if s % 100 == 0 else "")
            for s, v in enumerate(loss.tolist())
        ),
    ),
    "the tail's rows are of another split; twin: every row names its split": (
        "run.jsonl",
        json_lines(late(lambda s, v: {**row(s, v), "split": "val"}, row)),
        json_lines(lambda s, v: {**row(s, v), "split": "train"}),
    ),
    "two of three losses are null; twin: the other rows are not there": (
        "run.jsonl",
        json_lines(lambda s, v: row(s, v) if s % 3 == 0 else {"step": s, "loss": None}),
        lambda loss: "".join(
            json.dumps({**row(s, v), "lr": RATES[s]}) + "\n"
            for s, v in enumerate(loss.tolist())
            if s % 3 == 0
        ),
    ),
    "a worse loss and a better one in a row; twin: one loss twice": (
        "run.jsonl",
        lambda loss: "".join(twice(s, GOOD[s].item(), v) for s, v in enumerate(loss.tolist())),
        lambda loss: "".join(twice(s, v, v) for s, v in enumerate(loss.tolist())),
    ),
    "the tail's lines are skipped steps; twin: a line of another kind after each": (
        "run.log",
        log(late(lambda s, _: f"step {s} skipped", printed)),
        log(lambda s, v: f"{printed(s, v)} tokens 512\nsaved {s}"),
    ),
    "the tail's losses are in colour; twin: all are": (
        "run.log",
        log(late(lambda s, v: f"step {s} loss \x1b[31m{v:.5f}\x1b[0m", printed)),
        log(lambda s, v: f"step {s} loss \x1b[31m{v:.5f}\x1b[0m"),
    ),
    "the tail's loss stands on a line of its own; twin: every loss does": (
        "run.log",
        log(late(lambda s, v: f"step {s}\nloss {v:.5f}", printed)),
        log(lambda s, v: f"step {s}\nloss {v:.5f}"),
    ),
    "the tail's lines are warnings; twin: all are": (
        "run.log",
        log(late(lambda s, v: f"WARNING step={s} loss={v:.5f}", printed)),
        log(lambda s, v: f"WARNING step={s} loss={v:.5f}"),
    ),
    "the tail's steps have commas; twin: all have": (
        "run.log",
        log(late(lambda s, v: f"step {s:,} loss {v:.5f}", printed)),
        log(lambda s, v: f"step {s:,} loss {v:.5f}"),
    ),
    "the tail's losses are followed by a mark; twin: all are": (
        "run.log",
        log(late(lambda s, v: f"step {s} loss {v:.5f}*", printed)),
        log(lambda s, v: f"step {s} loss {v:.5f} *"),
    ),
    "the counter starts again in the tail; twin: it does not": (
        "run.log",
        log(late(lambda s, v: f"step {s - BROKEN} loss {v:.5f}", printed)),
        log(printed),
    ),
}


def _lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(keepends=True)))


def judged(folder: Path, name: str, text: str) -> str:
    """The verdict on a candidate's file beside a baseline of the same kind; "refused" where it
    can't be read.
    """
    base = {"run.csv": csv(plain), "run.jsonl": json_lines(row), "run.log": log(printed)}[name](
        BASE
    )
    for arm, content in (("fp8", base), ("mxfp8", text)):
        (folder / arm).mkdir()
        (folder / arm / name).write_text(content)
    paths = [str(folder / arm / name) for arm in ("fp8", "mxfp8")]
    recipe = {"fp8": "fp8", "mxfp8": "mxfp8"}
    try:
        return parity.compare(
            *paths,
            margin="1%",
            planned_steps=LENGTH,
            names=("fp8", "mxfp8"),
            recipe=recipe,
            schedule="decayed",
        ).verdict
    except ReadError:
        return "refused"


@pytest.mark.parametrize(("name", "attack", "_"), ATTACKS.values(), ids=ATTACKS)
def test_a_file_that_hides_a_worse_tail_does_not_pass(
    name: str, attack: Write, _: Write, tmp_path: Path
) -> None:
    assert judged(tmp_path, name, attack(WORSE)) in ("fail", "inconclusive", "refused")


@pytest.mark.parametrize(("name", "_", "twin"), ATTACKS.values(), ids=ATTACKS)
def test_its_honest_twin_passes(name: str, _: Write, twin: Write, tmp_path: Path) -> None:
    assert judged(tmp_path, name, twin(GOOD)) == "pass"


@pytest.mark.parametrize(("name", "_", "twin"), ATTACKS.values(), ids=ATTACKS)
def test_the_twin_of_a_worse_candidate_fails(
    name: str, _: Write, twin: Write, tmp_path: Path
) -> None:
    """So that no twin passes because its losses were not read."""
    assert judged(tmp_path, name, twin(WORSE)) != "pass"
