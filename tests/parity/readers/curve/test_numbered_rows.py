"""Rows that no column counts: numbered where the epochs beside them are in order and whole."""

from pathlib import Path

import pytest

from parity.judging.curves.curve import Curve
from parity.readers import read_run
from parity.readers.errors import ReadError


def read(folder: Path, epochs: list[float], **columns: str) -> Curve:
    path = folder / "history.csv"
    rows = [f"{epoch:g},{3 - 0.125 * at}" for at, epoch in enumerate(epochs)]
    path.write_text("epoch,loss\n" + "".join(f"{row}\n" for row in rows))
    return read_run(str(path), columns=columns)


@pytest.mark.parametrize(
    "epochs", [[0, 1, 2, 3], [1, 1, 2, 2], [5, 10, 15, 20], [0.25, 0.5, 1.5, 1.75]]
)
def test_rows_are_numbered(epochs: list[float], tmp_path: Path) -> None:
    assert read(tmp_path, epochs).steps.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("epochs", "place"), [([0, 1, 3, 4], "from 1 to 3"), ([5, 10, 20, 25], "from 10 to 20")]
)
def test_rows_that_are_missing_move_no_others(
    epochs: list[float], place: str, tmp_path: Path
) -> None:
    with pytest.raises(ReadError, match=f"{place}, so rows are missing.*--column step=epoch"):
        read(tmp_path, epochs)
    assert read(tmp_path, epochs, step="epoch").steps.tolist() == epochs


def test_an_epoch_that_goes_back_is_another_run(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="goes back from 2 to 0"):
        read(tmp_path, [0, 1, 2, 0, 1, 2])


def test_a_line_that_is_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("loss,lr,step\n2.5,0.1,1\n2.4,0.1,2\n2.3,0.1")
    with pytest.raises(ReadError, match="line 4: nothing in the step column"):
        read_run(str(path))
    path.write_text("loss,lr,step\n2.5,0.1,1\n2.4,0.1,2\n2.3,0.1,3")
    assert read_run(str(path)).steps.tolist() == [1, 2, 3]
