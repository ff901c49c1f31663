"""A trainer that says in words that a loss was NaN, and prints no step with it, is believed: such a
log is no pass. Words about the check, the scale of the loss and held-out losses say nothing.
"""

from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.curve import SAID_NOT_FINITE, Curve
from parity.readers import read_run
from parity.readers.logs.lines.said import says_not_finite
from parity.readers.logs.pattern import PATTERN

SAID = [
    "ERROR: Loss became NaN at step 12",
    "NaN loss detected",
    "found NaN in local forward loss calculation",
    "the loss is not finite",
    "step 12 loss ***",
    "step 12 loss: overflow",
    "step 12 | loss=∞",
    "step 12 loss #NUM!",
    "2026-11-29 10:00:00 WARNING skipped 10 batches with a nan loss",
    "RuntimeError: non-finite loss",
    "train loss: nan",
    "final train loss nan",
]
NOTHING = [
    "checking for NaN in loss",
    "stop on nan loss",
    "check_for_nan_in_loss_and_grad: True",
    "no NaN in the losses",
    "Gradient inf reduces loss scale",
    "grad norm nan, loss scale 1024",
    "loss scale: 4294967296.0 | number of skipped iterations:   1 | number of nan iterations:   0",
    "val loss is nan",
    "step 12 loss -",
    "step 12 loss ?",
    "** the loss is saved **",
    "to inspect NaN values in the loss use --detect-anomaly",
    "NaN losses: 0",
    "skipped 0 batches with a nan loss",
    "step 12 grad_norm nan lr 1e-3",
    "information about the loss",
]


def read(folder: Path, line: str, *, first: bool = False, **columns: str) -> Curve:
    steps = [f"step {step} loss {3 - step / 100} lr 1e-3" for step in range(12)]
    path = folder / "train.log"
    path.write_text("\n".join([line, *steps, ""] if first else [*steps, line, ""]))
    return read_run(str(path), columns=columns)


@pytest.mark.parametrize("line", SAID)
def test_words_of_a_loss_that_is_not_finite_are_a_fact_of_the_run(
    line: str, tmp_path: Path
) -> None:
    assert read(tmp_path, line).context[SAID_NOT_FINITE] == "1"
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+) lr"
    assert read(tmp_path, line, **{PATTERN: pattern}).context[SAID_NOT_FINITE] == "1"
    assert SAID_NOT_FINITE not in read(tmp_path, line, first=True).context


@pytest.mark.parametrize("line", NOTHING)
def test_other_words_are_none(line: str, tmp_path: Path) -> None:
    assert not says_not_finite(line)
    assert SAID_NOT_FINITE not in read(tmp_path, line).context


@pytest.mark.parametrize("line", ["Loss is nan, stopping training", "loss: inf"])
def test_a_loss_that_is_not_finite_below_its_step_is_that_of_the_step(
    line: str, tmp_path: Path
) -> None:
    run = read(tmp_path, line)
    assert run.steps.tolist() == [*range(12)]
    assert np.isfinite(run.loss).tolist() == [True] * 11 + [False]


def test_a_finite_loss_below_is_still_that_of_an_evaluation(tmp_path: Path) -> None:
    assert read(tmp_path, "mean loss over all: 9.5").loss.tolist()[-1] == 2.89
    assert read(tmp_path, "loss: 9.5").loss.tolist()[-1] == 2.89


@pytest.mark.parametrize(("nans", "said"), [(0, None), (9, "4")])
def test_megatron_counts_the_losses_that_its_mean_leaves_out(
    nans: int, said: str | None, tmp_path: Path
) -> None:
    lines = [
        f" iteration {step:8d}/      12 | elapsed time per iteration (ms): 100.0 | "
        f"learning rate: 1.0E-03 | lm loss: {3 - step / 100:.6E} | "
        f"number of nan iterations: {nans if step > 8 else 0:3d} |"
        for step in range(1, 13)
    ]
    path = tmp_path / "megatron.log"
    path.write_text("\n".join([*lines, ""]))
    run = read_run(str(path))
    assert np.isfinite(run.loss).all()
    assert run.context.get(SAID_NOT_FINITE) == said
