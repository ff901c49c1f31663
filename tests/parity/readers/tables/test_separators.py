"""A table whose rows another writer went on with, and separates by another sign."""

from pathlib import Path

import pytest

from parity.readers import read_run
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
