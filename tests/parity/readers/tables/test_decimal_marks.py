"""One file has one decimal mark: a comma between thousands is not taken for one."""

from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError

POINTS = "step,loss\n0,2.75\n1,2.5\n2,2.25\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f'{POINTS}3,"2,701"\n', 5),
        ('step,loss\n0,"2,701"\n1,2.5\n', 2),
        ('step,loss,val_loss\n0,2.75,2.5\n1,2.5,"2,701"\n', 3),
    ],
)
def test_thousands_among_decimal_points_are_refused(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(text)
    with pytest.raises(ReadError, match=rf"line {line}: '2,701'"):
        read_run(str(path))


@pytest.mark.parametrize(
    "text",
    ["step;loss\n0;2,75\n1;2,501\n2;3\n", 'step,loss\n0,"2,75"\n1,"2,501"\n2,"3"\n'],
)
def test_decimal_commas_alone_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(text)
    assert read_run(str(path)).loss.tolist() == [2.75, 2.501, 3.0]
