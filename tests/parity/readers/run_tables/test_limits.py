"""How many arms, sizes and lengths a table may have."""

from pathlib import Path

import pytest

from parity.readers.run_tables.cells import read_cells
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.proposed_options import _proposed_sizes, proposed_options
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.size_table import read_sizes
from tests.parity.readers.refusals import is_refused


def _table(tmp_path: Path, rows: list[str]) -> str:
    path = tmp_path / "many.csv"
    path.write_text("\n".join(rows))
    return str(path)


@pytest.mark.parametrize(("number", "refused"), [(1, True), (2, False), (20, False), (21, True)])
def test_a_table_has_two_to_twenty_arms(tmp_path: Path, number: int, refused: bool) -> None:
    table = _table(tmp_path, ["arm,run,step,loss", *(f"a{at},0,1,2.0" for at in range(number))])
    layout = RunTable(arm="arm", run=("run",))
    assert is_refused(lambda: read_run_table(table, layout)) == refused
    assert (proposed_options(table) == []) == refused


@pytest.mark.parametrize(("number", "refused"), [(100, False), (101, True)])
def test_a_table_has_a_hundred_sizes(tmp_path: Path, number: int, refused: bool) -> None:
    rows = [f"{arm},0,{at},2.0" for arm in "ab" for at in range(number)]
    table = _table(tmp_path, ["arm,run,params,loss", *rows])
    layout = RunTable(arm="arm", run=("run",))
    assert is_refused(lambda: read_sizes(table, layout, ["params"])) == refused


@pytest.mark.parametrize(("number", "sizes"), [(5, ["params", "tokens"]), (6, None)])
def test_five_lengths_a_size_are_final_losses_and_six_are_a_curve(
    tmp_path: Path, number: int, sizes: list[str] | None
) -> None:
    rows = [f"{arm},{size},{at},2.0" for arm in "ab" for size in (1, 2) for at in range(number)]
    cells = read_cells(_table(tmp_path, ["arm,params,tokens,loss", *rows]))
    assert _proposed_sizes(cells, "arm") == sizes
