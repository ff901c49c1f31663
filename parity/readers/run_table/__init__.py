"""A table of many runs: columns name the arm and the run of each row; a second table may hold the times of the same runs."""

from parity.readers.run_table.runs import HARDWARE, RunTable, read_run_table
from parity.readers.run_table.times import read_run_times

__all__ = ["HARDWARE", "RunTable", "read_run_table", "read_run_times"]
