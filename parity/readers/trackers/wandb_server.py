"""A run on a W&B server, read with W&B's own package: key and host as that package has them.

`Run.history` samples, and `Run.scan_history` samples too where it is given keys, so the scan is
made without keys and its rows are counted against the server's own numbers: all lines of the
history, or all values of the loss. W&B's cache knows a run by its id alone, and is not used. A run
that is still going is refused.

Source: W&B's package 0.31 (apis/public/runs.py, history.py) and the queries that its process sends.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from parity.readers.columns.names import LOSS
from parity.readers.errors import NoLossError, ReadError, UnreachableSourceError
from parity.readers.trackers.run import (
    NO_ROWS,
    TrackerRun,
    columns_of_rows,
    ended_words,
    first_line,
    package_errors,
    tracker_package,
)
from parity.wording import count

COUNTER = "_step"
_TIMEOUT_SECONDS = 120
# W&B's own: minutes
_PATIENCE = {
    "x_graphql_retry_max": 3,
    "x_graphql_retry_wait_max_seconds": 20.0,
    "x_graphql_timeout_seconds": 30.0,
}
_GOING = ("running", "pending", "preempting", "preempted")
_ENDED = ("finished", "crashed", "failed", "killed")
_UNKNOWN = re.compile(r"could not find (?:run|project)|HTTP 404|run .*not found", re.IGNORECASE)
_BUSY = re.compile(
    r"HTTP (?:429|5\d\d)|rate limit|timed? ?out|in time|connection|no such host|dial "
    r"tcp|EOF|network is unreachable",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"api key|log ?in|credentials|HTTP 40[13]|unauthorized|permission|not authenticated",
    re.IGNORECASE,
)


def read_wandb(source: str, path: str, named_columns: Mapping[str, str]) -> TrackerRun:
    """The run ENTITY/PROJECT/RUN. Raises ReadError where it is unknown, going, empty or incomplete;
    UnreachableSourceError.
    """
    if len([part for part in path.split("/") if part.strip()]) != 3 or path.count("/") != 2:
        raise ReadError(
            f"{source}: {path!r} is not ENTITY/PROJECT/RUN; expected the path of the run's page, "
            "such as wandb:team/llm/3kz0q1vd"
        )
    wandb = tracker_package("wandb", "wandb", source)
    with package_errors(lambda error: _refusal(source, error)):
        # no prompt for a key, nothing printed
        wandb.setup(wandb.Settings(silent=True, **_PATIENCE))
        run = wandb.Api(timeout=_TIMEOUT_SECONDS).run(path)
        state, config, lines = (
            str(run.state),
            dict(run.config),
            getattr(run, "historyLineCount", None),
        )
        keys = getattr(run, "historyKeys", None) or {}
        _refuse_going(source, state)
        rows = list(run.scan_history(use_cache=False))
        after = wandb.Api(timeout=_TIMEOUT_SECONDS).run(path)
        _refuse_going(source, str(after.state))
    if lines != getattr(after, "historyLineCount", None):
        raise ReadError(
            f"{source}: the run changed while it was read; read it again once it has ended"
        )
    if not rows:
        raise ReadError(f"{source}: {NO_ROWS}")
    try:
        columns = columns_of_rows(rows, named_columns, source, COUNTER)
    except NoLossError:
        _prove_complete(source, rows, lines, keys, None)
        raise
    _prove_complete(source, rows, lines, keys, columns.names[LOSS])
    return TrackerRun(
        columns=columns.noted(f"{count(len(rows), 'row')} of W&B's history, {ended_words(state)}"),
        config=config,
    )


def _refuse_going(source: str, state: str) -> None:
    if state in _GOING:
        raise ReadError(
            f"{source}: the run is {state}; a run is judged once it has ended: wait, or stop it"
        )
    if state not in _ENDED:
        raise ReadError(
            f"{source}: the run's state is {state!r}; expected one of {', '.join(_ENDED)}"
        )


def _prove_complete(
    source: str, rows: list[dict[str, Any]], lines: object, keys: Any, loss: str | None
) -> None:
    """Raise ReadError unless the server's count of lines, or of values of the loss, is that of the
    rows that were read.

    Fewer values of the loss than the server counts are refused in any case: a NaN that was lost on
    the way would hide a divergence.
    """
    expected = _counted(keys, loss)
    loss_count = sum(row.get(loss) is not None for row in rows) if loss is not None else None
    if len({row.get(COUNTER) for row in rows}) != len(rows):
        raise ReadError(
            f"{source}: some of the {len(rows):,} rows that W&B returned are there twice; read the "
            "run again"
        )
    if expected is not None and loss_count is not None and loss_count < expected:
        raise ReadError(
            f"{source}: W&B returned {loss_count:,} of {expected:,} values of {loss!r}; only a "
            "whole run is judged: read it again, or export the run as CSV"
        )
    if (isinstance(lines, int) and lines == len(rows)) or (
        expected is not None and expected == loss_count
    ):
        return
    if isinstance(lines, int):
        got = f"{len(rows):,} of {lines:,} rows"
    elif expected is not None:
        got = f"{loss_count:,} of {expected:,} values of {loss!r}"
    else:
        raise ReadError(
            f"{source}: W&B does not say how many rows the run has, so a sampled history would not "
            "be seen; export the run as CSV"
        )
    raise ReadError(
        f"{source}: W&B returned {got}; only a whole run is judged: read it again, or export the "
        "run as CSV"
    )


def _counted(keys: Any, loss: str | None) -> int | None:
    """How many values of the loss the server has, by its table of keys; None where it does
    not say.
    """
    try:
        types = keys["keys"][loss]["typeCounts"]
        total = math.fsum(float(type_count["count"]) for type_count in types)
    except (KeyError, TypeError, ValueError):
        return None
    return int(total)


def _refusal(source: str, error: Exception) -> ReadError:
    """The one line for an error of the package."""
    text = str(error)
    reason = re.findall(r"HTTP \d{3}[^\n]*|connection refused|no such host", text)
    line = str(reason[-1])[:160] if reason else first_line(error)
    if _UNKNOWN.search(text):
        return ReadError(
            f"{source}: W&B has no such run, or the key may not read it; check entity, project and "
            "run id"
        )
    if _BUSY.search(text):
        return UnreachableSourceError(
            f"{source}: W&B does not answer ({line}); nothing was read: try again later"
        )
    if _KEY.search(text):
        return ReadError(
            f"{source}: W&B refuses the key, or there is none ({line}); run `wandb login`, or set "
            "WANDB_API_KEY"
        )
    return UnreachableSourceError(f"{source}: W&B returned an error ({line}); nothing was read")
