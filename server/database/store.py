"""The metrics store: float64 columns in zstd chunks, keyed (run, kind, epoch, first step).

A resumed run supersedes: where attempts overlap, the newest epoch wins from its first step on, and a curve never mixes
two attempts on the same steps. NaN and Inf come back bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.models import Chunk

Columns = dict[str, NDArray[np.float64]]

SEALED_STEPS = 4096


def append(
    session: Session, run_id: str, kind: str, epoch: int, steps: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]
) -> None:
    """Write one chunk. Writing the same chunk again (a retry) changes nothing.

    Args:
        steps: (n,) ascending, n >= 1.
        columns: name -> (n,) float64.
    """
    session.merge(_chunk(run_id, kind, epoch, {"step": steps.astype(np.float64), **columns}))


def seal(session: Session, run_id: str, kind: str, epoch: int) -> int:
    """Merge the small chunks of one attempt into chunks of up to 4,096 steps; returns how many are left. Safe to repeat.

    Call it while holding the run's fence, or after the run has ended. Readers see all of it or nothing.
    """
    chunks = session.scalars(
        select(Chunk).where(Chunk.run_id == run_id, Chunk.kind == kind, Chunk.epoch == epoch).order_by(Chunk.first_step)
    ).all()
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        fits = groups and groups[-1][-1].columns == chunk.columns and sum(one.count for one in groups[-1]) + chunk.count <= SEALED_STEPS
        if fits:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    for group in groups:
        if len(group) > 1:
            tables = [_table(chunk) for chunk in group]
            merged = {name: _column(tables, name) for name in group[0].columns}
            for chunk in group:
                session.delete(chunk)
            session.flush()
            session.add(_chunk(run_id, kind, epoch, merged))
    return len(groups)


def _chunk(run_id: str, kind: str, epoch: int, columns: Mapping[str, NDArray[np.float64]]) -> Chunk:
    """A row from its columns, `step` first."""
    table = np.stack([np.asarray(values, np.float64) for values in columns.values()])
    return Chunk(
        run_id=run_id,
        kind=kind,
        epoch=epoch,
        first_step=int(table[0, 0]),
        last_step=int(table[0, -1]),
        count=table.shape[1],
        columns=list(columns),
        summary={name: _summary(values) for name, values in zip(columns, table, strict=True)},
        payload=zstandard.compress(table.tobytes(), 3),
    )


def read(session: Session, run_id: str, kind: str, names: Sequence[str] | None = None) -> tuple[NDArray[np.int64], Columns]:
    """All steps of a run and the named columns (default: all), the newest attempt winning.

    Returns:
        steps (n,) int64 ascending, and name -> (n,) float64; a column that some chunk lacks is NaN there.
    """
    chunks = session.scalars(
        select(Chunk).where(Chunk.run_id == run_id, Chunk.kind == kind).order_by(Chunk.epoch.desc(), Chunk.first_step.desc())
    )
    kept: list[Columns] = []
    superseded_from, epoch_start, epoch = math.inf, math.inf, None
    for chunk in chunks:
        if chunk.epoch != epoch:
            superseded_from, epoch = epoch_start, chunk.epoch
        table = _table(chunk)
        if chunk.last_step >= superseded_from:
            keep = table["step"] < superseded_from
            table = {name: values[keep] for name, values in table.items()}
        epoch_start = min(epoch_start, chunk.first_step)
        if len(table["step"]):
            kept.append(table)
    kept.reverse()
    wanted = list(names) if names is not None else sorted({name for table in kept for name in table} - {"step"})
    steps = np.concatenate([table["step"] for table in kept]) if kept else np.empty(0)
    return steps.astype(np.int64), {name: _column(kept, name) for name in wanted}


def _column(tables: Sequence[Columns], name: str) -> NDArray[np.float64]:
    if not tables:
        return np.empty(0)
    return np.concatenate([table.get(name, np.full(len(table["step"]), np.nan)) for table in tables])


def _table(chunk: Chunk) -> Columns:
    flat = np.frombuffer(zstandard.decompress(chunk.payload), np.float64).reshape(len(chunk.columns), chunk.count)
    return dict(zip(chunk.columns, flat, strict=True))


def _summary(values: NDArray[np.float64]) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    bounds: dict[str, Any] = {"nonfinite": len(values) - len(finite)}
    if len(finite):
        # Divided before it is summed, because the sum of large finite numbers may not be finite.
        bounds |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float((finite / len(finite)).sum())}
    return bounds
