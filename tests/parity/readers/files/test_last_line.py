"""A last line of a log without a line feed counts where nothing of it is missing, and half a number
never does.
"""

from pathlib import Path

import numpy as np
import pytest

from parity.readers import read_run
from parity.readers.formats import growing_reader
from parity.readers.logs.pattern import PATTERN
from tests.parity.readers.logs.corpus.trainers import torchtitan

LOSSES = [4.81254, 4.50125, 4.37511, 4.25003]


def plain(step: int, loss: object) -> str:
    return f"step {step} loss {loss}"


def progress_bar(step: int, loss: object) -> str:
    return f"{25 * step}%|{'█' * step:4}| {step}/4 [00:0{step}<00:01, 3.1it/s, loss={loss}]"


def printed_dict(step: int, loss: object) -> str:
    return f"{{'loss': '{loss}', 'step': {step}}}"


def losses_of(folder: Path, text: str, **columns: str) -> list[float]:
    path = folder / "train.log"
    path.write_text(text)
    return read_run(str(path), columns=columns).loss.tolist()


@pytest.mark.parametrize("line", [plain, progress_bar, printed_dict])
@pytest.mark.parametrize("last", ["nan", "inf", "4.25003", "9.00000"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_whole_line_without_an_end_counts(line, last: str, end: str, tmp_path: Path) -> None:
    text = end.join([*(line(step, loss) for step, loss in enumerate(LOSSES, 1)), line(5, last)])
    expected = [*LOSSES, float(last)]
    assert np.array_equal(losses_of(tmp_path, text), expected, equal_nan=True)


@pytest.mark.parametrize("line", [plain, progress_bar, printed_dict])
def test_no_cut_of_a_last_line_gives_another_loss(line, tmp_path: Path) -> None:
    before = "".join(f"{line(step, loss)}\n" for step, loss in enumerate(LOSSES, 1))
    last = line(5, "4.12345")
    for end in range(len(last) + 1):
        losses = losses_of(tmp_path, before + last[:end])
        assert losses in (LOSSES, [*LOSSES, 4.12345]), last[:end]


@pytest.mark.parametrize(("last", "counts"), [("2.5", False), ("2.", False), ("2.123", True)])
def test_of_variable_digits_the_longest_are_whole(last: str, counts: bool, tmp_path: Path) -> None:
    text = f"step 1 loss 3.5\nstep 2 loss 3.125\nstep 3 loss {last}"
    path = tmp_path / "train.log"
    path.write_text(text)
    run = read_run(str(path))
    assert len(run.loss) == 2 + counts
    assert any("may be cut" in note for note in run.notes) == (not counts)


def test_a_growing_log_takes_no_line_without_its_end() -> None:
    text = "step 1 loss 3.5\nstep 2 loss 3.1\nstep 3 loss nan"
    reader = growing_reader(text, "train.log", {})
    reader.feed(text)
    assert reader.columns().values["loss"].tolist() == [3.5, 3.1]


def test_a_pattern_and_a_trainer_read_it_too(tmp_path: Path) -> None:
    pattern = r"at (?P<step>\d+): L=(?P<loss>\S+)"
    lines = [f"at {step}: L={loss}" for step, loss in enumerate([*LOSSES, "nan"])]
    assert np.isnan(losses_of(tmp_path, "\n".join(lines), **{PATTERN: pattern})[-1])
    lines[-1] = "at 4: L=4.1"
    assert losses_of(tmp_path, "\n".join(lines), **{PATTERN: pattern}) == LOSSES
    trained = "\n".join(torchtitan(step, loss) for step, loss in enumerate(LOSSES, 1))
    assert len(losses_of(tmp_path, f"{trained}\n")) == len(losses_of(tmp_path, trained)) == 4
