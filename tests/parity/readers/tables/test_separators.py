"""A table whose rows another writer went on with, and separates by another sign."""

from pathlib import Path

import pytest

from parity.readers import read_run
from parity.readers.errors import ReadError
from tests.parity.readers.refusals import is_refused

LOSSES = [4.5 - 0.25 * at for at in range(12)]


def table(first: str, then: str) -> str:
    rows = [f"{step}{first if step < 6 else then}{loss}" for step, loss in enumerate(LOSSES)]
    return "\n".join([f"step{first}loss", *rows, ""])


@pytest.mark.parametrize(("first", "then"), [(",", ";"), (",", "\t"), (";", ","), (" ", ",")])
def test_rows_with_another_sign_are_read(first: str, then: str, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(table(first, then))
    assert read_run(str(path)).loss.tolist() == LOSSES


@pytest.mark.parametrize("row", ["6", "6;2,5", "6;x", "6;7;2.5"])
def test_a_row_that_may_be_something_else_is_refused(row: str, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(f"step,loss\n1,2.5\n2,2.25\n{row}\n8,2.125\n")
    assert is_refused(lambda: read_run(str(path)))


def test_a_decimal_comma_separates_no_cells(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step;loss\n1;2,5\n2;2,25\n3,5\n4;2,125\n")
    assert is_refused(lambda: read_run(str(path)))


def test_a_row_of_a_table_of_blanks_with_an_empty_cell_is_not_read_by_position(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.txt"
    rows = [f"{step:6d}{3 - step / 100:>10.4f} {20.5:8.2f}" for step in range(9)]
    rows.append(f"{9:6d}{'':>10} {20.5:8.2f}")
    path.write_text("\n".join(["step  loss    ppl", *rows, ""]))
    with pytest.raises(ReadError, match="2 cells with a gap"):
        read_run(str(path))


@pytest.mark.parametrize("row", ["{step:6d}{loss:>10.4f}", "{step} {loss:.4f}"])
def test_a_row_without_its_last_cell_is_read(row: str, tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    rows = [f"{row.format(step=step, loss=3 - step / 100)} 2.5" for step in range(9)]
    rows.append(row.format(step=9, loss=2.91))
    path.write_text("\n".join(["step  loss    val_loss", *rows, ""]))
    assert read_run(str(path)).loss.tolist()[-1] == 2.91
