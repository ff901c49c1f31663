"""The metrics store: float64 columns in zstd chunks, keyed (run, kind, epoch, first step).

A resumed run supersedes: where attempts overlap, the newest epoch wins from its first step on, and a curve never mixes
two attempts on the same steps. NaN and Inf come back bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.database.models import Chunk

Columns = dict[str, NDArray[np.float64]]

SEALED_STEPS = 4096
_CHUNKS_AT_ONCE = 64


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
    own = (Chunk.run_id == run_id, Chunk.kind == kind, Chunk.epoch == epoch)
    groups: list[list[Any]] = []
    size = 0
    for chunk in session.execute(
        select(Chunk.first_step, Chunk.count.label("steps"), Chunk.columns).where(*own).order_by(Chunk.first_step)
    ):
        size += chunk.steps
        if groups and groups[-1][-1].columns == chunk.columns and size <= SEALED_STEPS:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
            size = chunk.steps
    for group in groups:
        if len(group) > 1:
            inside = Chunk.first_step.between(group[0].first_step, group[-1].first_step)
            chunks = session.scalars(select(Chunk).where(*own, inside).order_by(Chunk.first_step)).all()
            replace(session, chunks, join([table_of(chunk) for chunk in chunks]))
    return len(groups)


def replace(session: Session, chunks: Sequence[Chunk], table: Columns) -> None:
    """Put one table (`step` first, ascending) in the place of chunks of one attempt, cut into chunks of up to 4,096 steps."""
    run_id, kind, epoch = chunks[0].run_id, chunks[0].kind, chunks[0].epoch
    for chunk in chunks:
        session.delete(chunk)
    session.flush()
    for start in range(0, len(table["step"]), SEALED_STEPS):
        session.add(_chunk(run_id, kind, epoch, {name: values[start : start + SEALED_STEPS] for name, values in table.items()}))


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
    joined = join([*tables(session, run_id, kind)], names)
    return joined.pop("step").astype(np.int64), joined


def tables(session: Session, run_id: str, kind: str, first_step: int = 0, last_step: float = math.inf) -> Iterator[Columns]:
    """The curve of a run in pieces, ascending: name -> (n,) float64, `step` among them; only steps from first to last.

    An attempt counts up to where a newer one began; so the order of attempts is the order of steps.
    """
    limits = superseded_from(session, run_id, kind)
    statement = select(Chunk).where(Chunk.run_id == run_id, Chunk.kind == kind, Chunk.last_step >= first_step)
    if last_step < math.inf:
        statement = statement.where(Chunk.first_step <= last_step)
    for chunk in session.scalars(statement.order_by(Chunk.epoch, Chunk.first_step).execution_options(yield_per=_CHUNKS_AT_ONCE)):
        end = min(limits[chunk.epoch], last_step + 1)
        if chunk.first_step >= end:
            continue
        table = table_of(chunk)
        if chunk.last_step >= end or chunk.first_step < first_step:
            inside = (table["step"] >= first_step) & (table["step"] < end)
            table = {name: values[inside] for name, values in table.items()}
        if len(table["step"]):
            yield table


def superseded_from(session: Session, run_id: str, kind: str) -> dict[int, float]:
    """For each attempt that has recorded something: the step from which on a newer one replaces it (infinity: none does)."""
    rows = session.execute(
        select(Chunk.epoch, func.min(Chunk.first_step)).where(Chunk.run_id == run_id, Chunk.kind == kind).group_by(Chunk.epoch)
    )
    limits: dict[int, float] = {}
    limit = math.inf
    for epoch, first in sorted(((row[0], row[1]) for row in rows), reverse=True):
        limits[epoch] = limit
        limit = min(limit, first)
    return limits


def join(parts: Sequence[Columns], names: Sequence[str] | None = None) -> Columns:
    """Tables one after another, `step` first, then the named columns (default: all); NaN where a part lacks one."""
    wanted = list(names) if names is not None else sorted({name for table in parts for name in table} - {"step"})
    return {name: _column(parts, name) for name in ("step", *wanted)}


def _column(parts: Sequence[Columns], name: str) -> NDArray[np.float64]:
    if not parts:
        return np.empty(0)
    return np.concatenate([table.get(name, np.full(len(table["step"]), np.nan)) for table in parts])


def table_of(chunk: Chunk) -> Columns:
    """The columns of a chunk, (n,) float64 each, `step` first."""
    flat = np.frombuffer(zstandard.decompress(chunk.payload), np.float64).reshape(len(chunk.columns), chunk.count)
    return dict(zip(chunk.columns, flat, strict=True))


def _summary(values: NDArray[np.float64]) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    bounds: dict[str, Any] = {"nonfinite": len(values) - len(finite)}
    if len(finite):
        # Divided before it is summed, because the sum of large finite numbers may not be finite.
        bounds |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float((finite / len(finite)).sum())}
    return bounds
