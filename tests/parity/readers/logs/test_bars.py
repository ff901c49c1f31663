"""States of progress bars, which are printed again while the loss of the step before stands in
them.
"""

from pathlib import Path

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from tests.parity.readers.logs.breadth.bars import tqdm_bar
from tests.parity.readers.refusals import is_refused

LOSSES = [4.5 - 0.25 * at for at in range(12)]


def read(folder: Path, states: list[str]) -> Curve:
    path = folder / "train.log"
    path.write_text("\r".join(states) + "\n")
    return read_run(str(path))


def test_a_bar_that_went_on_before_its_loss_did_is_read(tmp_path: Path) -> None:
    text, states = "", [tqdm_bar("", 0, 12)]
    for step, loss in enumerate(LOSSES, 1):
        states.append(tqdm_bar(text, step, 12))
        text = f"1|{step}|Loss: {loss}"
        states.append(tqdm_bar(text, step, 12))
    run = read(tmp_path, states)
    assert run.steps.tolist() == [*range(1, 13)]
    assert run.loss.tolist() == LOSSES
    # a run that was killed between the two states of its last step
    assert read(tmp_path, states[:-1]).loss.tolist() == LOSSES[:-1]


def test_the_bars_of_two_ranks_are_refused(tmp_path: Path) -> None:
    states = [
        tqdm_bar(f"Loss: {loss + rank / 8}", step, 12)
        for step, loss in enumerate(LOSSES, 1)
        for rank in range(2)
    ]
    assert is_refused(lambda: read(tmp_path, states))
