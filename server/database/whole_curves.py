"""Reads the curves of many runs from the metrics store with a few statements: what the judge needs of a job of hundreds of runs.

Each has the values that `store.read` returns of one run. All columns of a run are in memory at once, as the judge holds them anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, bindparam, func, select
from sqlalchemy.orm import Session

from server.database import codec, store
from server.database.sessions import IN_BINARY
from server.database.tables import Chunk, ChunkColumn, table_of

Recorded = tuple[NDArray[np.int64], store.Columns]
"""The steps (n,) of a run, and its columns: name -> (n,)."""
_RUNS_AT_ONCE = 8  # so that few values are in memory twice, packed and unpacked

_chunks, _columns = table_of(Chunk).c, table_of(ChunkColumn).c
_OF_RUNS: BindParameter[Sequence[str]] = bindparam("runs", expanding=True)
_CHUNKS = (
    select(_chunks.run_id, _chunks.epoch, *store.CHUNK_ROWS)
    .select_from(store.with_columns(_columns.name.in_(bindparam("names", expanding=True))))
    .where(_chunks.run_id.in_(_OF_RUNS), _chunks.kind == bindparam("kind"))
    .order_by(_chunks.run_id, _chunks.epoch, _chunks.first_step)
    .execution_options(**{IN_BINARY: True})
)
_FIRST_STEPS = (
    select(_chunks.run_id, _chunks.epoch, func.min(_chunks.first_step))
    .where(_chunks.run_id.in_(_OF_RUNS), _chunks.kind.in_(bindparam("kinds", expanding=True)))
    .group_by(_chunks.run_id, _chunks.epoch)
)


def read_each(session: Session, run_ids: Sequence[str], kind: str, names: Sequence[str]) -> Iterator[Recorded]:
    """Of each of these runs all steps (n,) ascending and the named columns (n,), as `store.read` returns them."""
    stored_as = [store.curve_of(session, run_id) for run_id in run_ids]
    limits = superseded_in_each(session, stored_as, kind)
    for start in range(0, len(stored_as), _RUNS_AT_ONCE):
        some = stored_as[start : start + _RUNS_AT_ONCE]
        parts = _parts(session, some, kind, names, limits)
        for run_id in some:
            yield _joined(parts.get(run_id, []), names)


def superseded_in_each(session: Session, run_ids: Sequence[str], kind: str) -> dict[str, dict[int, float]]:
    """`store.superseded_from` of each run with recorded steps; the ids are those under which the curves are stored."""
    chosen = {"runs": list({*run_ids}), "kinds": list({kind, "train"})}
    firsts: dict[str, dict[int, int]] = {}
    for run_id, epoch, first in session.connection().execute(_FIRST_STEPS, chosen):
        firsts.setdefault(run_id, {})[epoch] = first
    return {run_id: store.limits_of(own) for run_id, own in firsts.items()}


def _parts(
    session: Session, run_ids: Sequence[str], kind: str, names: Sequence[str], limits: Mapping[str, Mapping[int, float]]
) -> dict[str, list[store.Columns]]:
    """The tables of these runs' chunks, ascending, without the steps that a newer attempt replaced."""
    rows = session.connection().execute(_CHUNKS, {"runs": list({*run_ids}), "kind": kind, "names": ["step", *names]}).all()
    parts: dict[str, list[store.Columns]] = {}
    for (run_id, epoch, first), columns in groupby(rows, key=lambda row: (row.run_id, row.epoch, row.first_step)):
        limit = limits[run_id].get(epoch, -math.inf) if run_id in limits else -math.inf  # of an attempt that began since: nothing
        if first < limit:
            part = store.table(columns, names, codec.stored)
            if part["step"][-1] >= limit:
                inside = part["step"] < limit
                part = {name: values[inside] for name, values in part.items()}
            parts.setdefault(run_id, []).append(part)
    return parts


def _joined(parts: Sequence[store.Columns], names: Sequence[str]) -> Recorded:
    whole = store.join(parts, names)
    return whole.pop("step").astype(np.int64), whole
