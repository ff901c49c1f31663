"""Files of several runs: which column names the run, and which run is chosen."""

from collections.abc import Iterable, Sequence

from parity.readers.columns.names import first_known_name
from parity.readers.errors import ReadError, SeveralRunsError
from parity.wording import first_few

RUN_NAMES = ("run_id", "run_uuid", "run", "run_name", "run id", "run name")
ARM_NAMES = ("arm", "precision", "recipe")
SHOWN = 10


def run_column(names: Sequence[str]) -> str | None:
    """The column that names a row's run."""
    return first_known_name(names, RUN_NAMES)


def arm_column(names: Sequence[str]) -> str | None:
    """The column that names a row's arm, by a known name; in a table of one run an arm it tells the
    runs apart.
    """
    return first_known_name(names, ARM_NAMES)


def choose_run(runs: Iterable[str], run: str | None, source: str) -> str:
    """The run that is named, or the only one; raises ReadError that lists them where there are
    several.
    """
    listed = list(dict.fromkeys(runs))
    shown = first_few(listed, SHOWN)
    if run is None and len(listed) > 1:
        raise SeveralRunsError(
            f"{source} holds {len(listed)} runs; name one as {source}:RUN, of {shown}",
            tuple(f"{source}:{name}" for name in listed),
        )
    if run is not None and run not in listed:
        raise ReadError(f"{source}: no run {run!r}; there are {shown}")
    return listed[0] if run is None else run
