"""Reads the curves of many runs from the metrics store with a few statements: what the judge needs of a job of hundreds of runs.

Each has the values that `store.read` returns of one run. All columns of a run are in memory at once, as the judge holds them anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, Text, bindparam, cast, func, select
from sqlalchemy.orm import Session

from server.database import codec, store
from server.database.tables import Chunk, ChunkColumn, table_of

Recorded = tuple[NDArray[np.int64], store.Columns]
"""The steps (n,) of a run, and its columns: name -> (n,)."""
_RUNS_AT_ONCE = 8  # so that few values are in memory twice, packed and unpacked

_chunks, _columns = table_of(Chunk).c, table_of(ChunkColumn).c
_OF_RUNS: BindParameter[Sequence[str]] = bindparam("runs", expanding=True)
_CHUNKS = (
    select(
        _chunks.run_id,
        _chunks.epoch,
        _chunks.first_step,
        _chunks.last_step,
        _chunks.count.label("steps"),
        cast(_chunks.columns, Text).label("names"),
        _chunks.payload,
    )
    .where(_chunks.run_id.in_(_OF_RUNS), _chunks.kind == bindparam("kind"))
    .order_by(_chunks.run_id, _chunks.epoch, _chunks.first_step)
)
_COLUMNS = select(_columns.run_id, _columns.epoch, _columns.first_step, _columns.name, _columns.payload).where(
    _columns.run_id.in_(_OF_RUNS), _columns.kind == bindparam("kind"), _columns.name.in_(bindparam("names", expanding=True))
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
    connection, chosen = session.connection(), {"runs": list({*run_ids}), "kind": kind}
    chunks = connection.execute(_CHUNKS, chosen).all()
    stored: dict[tuple[str, int, int], dict[str, NDArray[Any]]] = {}
    if any(row.payload is None for row in chunks):
        for row in connection.execute(_COLUMNS, chosen | {"names": ["step", *names]}):
            stored.setdefault((row.run_id, row.epoch, row.first_step), {})[row.name] = codec.stored(row.payload)
    parts: dict[str, list[store.Columns]] = {}
    for run_id, rows in groupby(chunks, key=lambda row: row.run_id):
        for row in rows:
            limit = limits[run_id].get(row.epoch, -math.inf)  # an attempt of which this transaction saw no first step
            if row.first_step >= limit:
                continue
            own = (
                store.packed_columns(row, codec.stored) if row.payload is not None else stored.get((run_id, row.epoch, row.first_step), {})
            )
            table = {"step": store.even_steps(row.first_step, row.last_step, row.steps), **own}
            if row.last_step >= limit:
                inside = table["step"] < limit
                table = {name: values[inside] for name, values in table.items()}
            parts.setdefault(run_id, []).append(table)
    return parts


def _joined(parts: Sequence[store.Columns], names: Sequence[str]) -> Recorded:
    whole = store.join(parts, names)
    return whole.pop("step").astype(np.int64), whole
