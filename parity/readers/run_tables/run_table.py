"""Tables of many runs, one row per run and step or evaluation."""

from parity.judging.curves.curve import Curve
from parity.readers.run_tables.layout import RunTable, selected_cells
from parity.readers.run_tables.run_curve import quantities_of, run_curve
from parity.readers.run_tables.runs import arms_of, refuse_sizes_of_runs, runs_by_arm


def read_run_table(source: str, layout: RunTable) -> dict[str, list[Curve]]:
    """The runs of each arm, arms in order of appearance, from a path or "-" (stdin): CSV, TSV, JSON
    lines, a JSON list or Parquet.

    A run's label is its values of `layout.run`, joined by "/", or its arm's name. Raises ReadError,
    one line, for a missing column, an arm column with one value or more than 20, an empty name, a
    step or loss that is not a number, and a run that repeats a step.
    """
    cells = selected_cells(source, layout)
    arms = arms_of(cells, layout)
    refuse_sizes_of_runs(cells, layout.run)
    quantities = quantities_of(cells, layout)
    return runs_by_arm(cells, layout, arms, lambda run: run_curve(cells, run, quantities, layout))
