"""Steps without a name, with which a line begins, and numbers that a library wraps."""

from pathlib import Path

import pytest

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.refusals import is_refused

LOSSES = [4.5 - 0.25 * at for at in range(12)]
ABSL = "I1129 10:00:00.123456 140028551105408 logging_writer.py:48] "


def read(folder: Path, lines: list[str]) -> Curve:
    path = folder / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_run(str(path))


FORMS = {
    "a bar": "{s} | loss {x} | lr 3.0e-04 | 123.45ms",
    "brackets": "[{s} | 12.5] loss={x} avg=3.5",
    "behind a prefix": ABSL + "[{s}] loss={x}, lr=0.0003",
    "an epoch and a step": 'DLLL {{"type": "LOG", "step": [0, {s}], "data": {{"loss": {x}}}}}',
    "a tensor": "step {s} loss: tensor({x}, device='cuda:0')",
    "an array": "step {s} loss: Array({x}, dtype=float32)",
    "a number of NumPy": "step {s} loss: np.float64({x})",
    "brackets around a phrase": "step {s}/400 completed (loss: {x}): 2%",
    "a unit in the name": "step:{s} - train/loss:{x} - train/lr(1e-3):0.300",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_number_is_the_step(form: str, tmp_path: Path) -> None:
    run = read(tmp_path, [FORMS[form].format(s=s, x=x) for s, x in enumerate(LOSSES, 1)])
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist() == LOSSES
    assert 1e-3 not in run.columns.get("learning_rate", [])


@pytest.mark.parametrize("form", ["a bar", "brackets", "behind a prefix"])
def test_the_number_of_a_rank_is_no_step(form: str, tmp_path: Path) -> None:
    lines = [FORMS[form].format(s=rank, x=loss + rank / 8) for loss in LOSSES for rank in range(2)]
    assert is_refused(lambda: read(tmp_path, lines))


def test_a_named_step_counts_before_the_number_at_the_begin(tmp_path: Path) -> None:
    lines = [f"{8 * s} | step {s} | loss {x}" for s, x in enumerate(LOSSES, 1)]
    assert read(tmp_path, lines).steps.tolist() == [*range(1, 13)]
