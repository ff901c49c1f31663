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


def append(
    session: Session, run_id: str, kind: str, epoch: int, steps: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]
) -> None:
    """Write one chunk. Writing the same chunk again (a retry) changes nothing.

    Args:
        steps: (n,) ascending, n >= 1.
        columns: name -> (n,) float64.
    """
    names = ["step", *columns]
    table = np.stack([steps.astype(np.float64), *(np.asarray(values, np.float64) for values in columns.values())])
    session.merge(
        Chunk(
            run_id=run_id,
            kind=kind,
            epoch=epoch,
            first_step=int(steps[0]),
            last_step=int(steps[-1]),
            count=len(steps),
            columns=names,
            summary={name: _summary(values) for name, values in zip(names, table, strict=True)},
            payload=zstandard.compress(table.tobytes(), 3),
        )
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
        bounds |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return bounds
