"""The times of runs, from a table of their own."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.cli.inputs.table_arms import TableOptions
from parity.cli.terminal.wrong_calls import UsageError
from parity.judging.curves.curve import Curve
from parity.judging.evaluations.run_times import RunTimes
from parity.readers.run_tables.known_columns import HARDWARE
from parity.readers.run_tables.run_times import read_run_times


def read_times(options: TableOptions, arms: Mapping[str, Sequence[Curve]]) -> list[RunTimes]:
    """The times of every run of the arms; UsageError where the two tables do not hold the same
    runs.
    """
    if options.times is None or options.arm_by is None:
        return []
    times = read_run_times(options.times, options.arm_by, options.run_columns())
    runs = {(arm, run.label): run for arm, curves in arms.items() for run in curves}
    if options.where:  # the rows of a table of times are those of all runs
        times = [entry for entry in times if (entry.arm, entry.run) in runs]
    timed = {(entry.arm, entry.run) for entry in times}
    for kind, missing in (
        ("a run that the curves do not have", timed - set(runs)),
        ("no row for a run of the curves", set(runs) - timed),
    ):
        if missing:
            arm, label = min(missing)
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UsageError(
                f"--times {options.times} has {kind}: {label} of {arm}{more}; expected one row for "
                "each run (an unknown time stays empty)"
            )
    return [
        dataclasses.replace(
            entry,
            hardware=entry.hardware or _hardware(runs[entry.arm, entry.run]),
        )
        for entry in times
    ]


def _hardware(run: Curve) -> str | None:
    return next((run.context[key] for key in HARDWARE if key in run.context), None)
