"""Reads the curves of many runs from the metrics store with a few statements: what the judge needs
of a job of hundreds of runs.

Each has the values that `store.read` returns of one run. All columns of a run are in memory at
once, as the judge holds them anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from server.database.metrics.chunk_rows import table
from server.database.metrics.chunk_statements import CHUNKS_OF_RUNS
from server.database.metrics.chunk_tables import Columns, Recorded, joined, steps_between
from server.database.metrics.column_codec import stored
from server.database.metrics.replaced_steps import curve_of, superseded_in_each

_RUNS_AT_ONCE = 8  # so that few values are in memory twice, packed and unpacked


def read_each(
    session: Session, run_ids: Sequence[str], kind: str, names: Sequence[str]
) -> Iterator[Recorded]:
    """Of each of these runs all steps (n,) ascending and the named columns (n,), as `store.read`
    returns them.
    """
    stored_as = [curve_of(session, run_id) for run_id in run_ids]
    limits = superseded_in_each(session, stored_as, kind)
    for start in range(0, len(stored_as), _RUNS_AT_ONCE):
        some = stored_as[start : start + _RUNS_AT_ONCE]
        parts = _parts(session, some, kind, names, limits)
        for run_id in some:
            yield joined(parts.get(run_id, []), names)


def _parts(
    session: Session,
    run_ids: Sequence[str],
    kind: str,
    names: Sequence[str],
    limits: Mapping[str, Mapping[int, float]],
) -> dict[str, list[Columns]]:
    """The tables of these runs' chunks, ascending, without the steps that a newer attempt
    replaced.
    """
    rows = (
        session.connection()
        .execute(
            CHUNKS_OF_RUNS, {"runs": list({*run_ids}), "kind": kind, "names": ["step", *names]}
        )
        .all()
    )
    parts: dict[str, list[Columns]] = {}
    for (run_id, attempt_number, first), columns in groupby(
        rows, key=lambda row: (row.run_id, row.attempt_number, row.first_step)
    ):
        # of an attempt that began since: nothing
        limit = limits.get(run_id, {}).get(attempt_number, -math.inf)
        if first < limit:
            parts.setdefault(run_id, []).append(
                steps_between(
                    table([*columns], names, stored, (run_id, kind, attempt_number)), first, limit
                )
            )
    return parts
