"""Files of several runs: which column names the run, and which run is chosen."""

from collections.abc import Iterable, Sequence

from parity.readers.columns.names import (
    KNOWN_NAMES,
    LOSS,
    VALIDATION,
    canonical_name,
    did_you_mean,
    first_known_name,
    is_known,
    listed,
)
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


def loss_of_run(names: Sequence[str], run: str, source: str) -> str:
    """The column of a run's losses in a table that has a column for each run: it is called as the
    run, or as the run and a loss. Raises ReadError where none is.
    """
    called = canonical_name(run)
    hits = [
        name
        for name in names
        if canonical_name(name) == called or called in _runs_in(canonical_name(name))
    ]
    quantity = next(
        (one for one in KNOWN_NAMES if one not in (LOSS, VALIDATION) and is_known(run, one)), None
    )
    if len(hits) == 1 and quantity is None:
        return hits[0]
    what = f"{run!r} is the {quantity}" if quantity else f"no column is called {run!r}"
    raise ReadError(
        f"{source}: no column names the run, and {what}; expected a column such as run_id, or one "
        f"that is called as the run; the columns are {listed(names)}{did_you_mean(run, names)}"
    )


def _runs_in(name: str) -> set[str]:
    """What stands before or behind the name of a loss in a name, such as the run in "fp8/loss"."""
    splits = [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign in "/_"]
    return {
        run
        for before, behind in splits
        for run, rest in ((before, behind), (behind, before))
        if is_known(rest, LOSS)
    }


def choose_run(runs: Iterable[str], run: str | None, source: str) -> str:
    """The run that is named, or the only one; raises ReadError that lists them where there are
    several.
    """
    listed = list(dict.fromkeys(runs))
    shown = first_few(listed, SHOWN)
    if run is None and len(listed) > 1:
        raise SeveralRunsError(
            f"{source} holds {len(listed)} runs; name one as {source}:{listed[0]}, of {shown}",
            tuple(f"{source}:{name}" for name in listed),
        )
    if run is not None and run not in listed:
        raise ReadError(f"{source}: no run {run!r}; there are {shown}")
    return listed[0] if run is None else run
