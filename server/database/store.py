"""The metrics store: float64 columns in chunks, keyed (run, kind, epoch, first step).

Where attempts overlap, the newest epoch wins from its first step on, so a curve never mixes two attempts on the same steps.
A run that reuses another's curve (`Run.reused_from`) is read from there. NaN and Inf are kept bit for bit. Steps at equal
distances are stored as the first, the last and the count only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from server.database import codec
from server.database.tables import Chunk, ChunkColumn, Run

Columns = dict[str, NDArray[np.float64]]

SEALED_STEPS = 4096
_CHUNKS_AT_ONCE = 64
_STEPS_AT_ONCE = 4 * SEALED_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A chunk without its values."""

    epoch: int
    first_step: int
    last_step: int
    count: int


def append(
    session: Session, run_id: str, kind: str, epoch: int, steps: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]
) -> None:
    """Write one chunk. Writing the same chunk again (a retry) changes nothing.

    Args:
        steps: (n,) ascending, n >= 1.
        columns: name -> (n,) float64.
    """
    _remove(session, run_id, kind, epoch, [int(steps[0])])
    _insert(session, run_id, kind, epoch, {"step": steps.astype(np.float64), **columns})


def seal(session: Session, run_id: str, kind: str, epoch: int) -> int:
    """Merge the small chunks of one attempt into chunks of up to 4,096 steps; returns the new number of chunks. Safe to repeat.

    Call it while holding the run's fence, or after the run has ended. Readers see either all of the change or none.
    """
    own = (Chunk.run_id == run_id, Chunk.kind == kind, Chunk.epoch == epoch)
    groups: list[list[Any]] = []
    size = 0
    rows = session.execute(
        select(Chunk.first_step, Chunk.last_step, Chunk.count.label("steps"), Chunk.columns).where(*own).order_by(Chunk.first_step)
    )
    for row in rows:
        size += row.steps
        if groups and groups[-1][-1].columns == row.columns and size <= SEALED_STEPS:
            groups[-1].append(row)
        else:
            groups.append([row])
            size = row.steps
    for group in groups:
        if len(group) > 1:
            small = [Piece(epoch=epoch, first_step=row.first_step, last_step=row.last_step, count=row.steps) for row in group]
            replace(session, run_id, kind, small, join(load(session, run_id, kind, small)))
    return len(groups)


def replace(session: Session, run_id: str, kind: str, old: Sequence[Piece], table: Columns) -> None:
    """Replace chunks of one attempt by a table (`step` first, ascending), cut into chunks of up to 4,096 steps."""
    epoch = old[0].epoch
    _remove(session, run_id, kind, epoch, [piece.first_step for piece in old])
    for start in range(0, len(table["step"]), SEALED_STEPS):
        _insert(session, run_id, kind, epoch, {name: values[start : start + SEALED_STEPS] for name, values in table.items()})


def _remove(session: Session, run_id: str, kind: str, epoch: int, first_steps: Sequence[int]) -> None:
    """Delete chunks; their columns go with them."""
    chosen = delete(Chunk).where(Chunk.run_id == run_id, Chunk.kind == kind, Chunk.epoch == epoch, Chunk.first_step.in_(first_steps))
    session.execute(chosen.execution_options(synchronize_session=False))


def _insert(session: Session, run_id: str, kind: str, epoch: int, columns: Columns) -> None:
    """Write a chunk from its columns, `step` first."""
    columns = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    steps = columns["step"]
    piece = Piece(epoch=epoch, first_step=int(steps[0]), last_step=int(steps[-1]), count=len(steps))
    key = {"run_id": run_id, "kind": kind, "epoch": epoch, "first_step": piece.first_step}
    summary = {name: _summary(values) for name, values in columns.items() if name != "step"}
    rest = {"last_step": piece.last_step, "count": piece.count, "columns": list(columns), "summary": summary}
    session.execute(insert(Chunk), [key | rest])
    stored = {name: values for name, values in columns.items() if name != "step" or not np.array_equal(values, _even_steps(piece))}
    if stored:
        session.execute(insert(ChunkColumn), [{**key, "name": name, "payload": codec.encode(values)} for name, values in stored.items()])


def _even_steps(piece: Piece) -> NDArray[np.float64]:
    """The steps of a chunk if they are at equal distances, as float64."""
    stride = (piece.last_step - piece.first_step) // max(piece.count - 1, 1)
    return piece.first_step + stride * np.arange(piece.count, dtype=np.float64)


def read(session: Session, run_id: str, kind: str, names: Sequence[str] | None = None) -> tuple[NDArray[np.int64], Columns]:
    """All steps of a run and the named columns (default: all), as `read_range` returns them."""
    return read_range(session, run_id, kind, names=names)


def read_range(
    session: Session, run_id: str, kind: str, first_step: int = 0, last_step: float = math.inf, names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], Columns]:
    """The steps of a run from first to last, with the named columns (default: all); the newest attempt wins.

    Returns:
        steps (n,) int64 ascending, and name -> (n,) float64; a column that some chunk lacks is NaN there.
    """
    joined = join([*tables(session, run_id, kind, first_step, last_step, names)], names)
    return joined.pop("step").astype(np.int64), joined


def curve_of(session: Session, run_id: str) -> str:
    """The run under whose id the steps of a run are stored: itself, or the run whose curve it reuses."""
    return session.scalar(select(Run.reused_from).where(Run.id == run_id)) or run_id


def names(session: Session, run_id: str, kind: str) -> list[str]:
    """The columns that a run has recorded, in alphabetical order."""
    own = curve_of(session, run_id)
    recorded = session.scalars(select(ChunkColumn.name).where(ChunkColumn.run_id == own, ChunkColumn.kind == kind).distinct())
    return sorted(set(recorded) - {"step"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a curve held at one moment: its newest attempt, and ranges of steps (first, last) that are small enough to read one by one."""

    newest_epoch: int
    ranges: tuple[tuple[int, int], ...]


def outline(session: Session, run_id: str, kind: str, first_step: int = 0, last_step: float = math.inf) -> Outline:
    """The ranges in which a curve can be read in transactions of its own each, with `tables(..., newest_epoch=)`.

    Later attempts are left out, so that the parts are of one curve; chunks may be sealed in between.
    """
    run_id = curve_of(session, run_id)
    limits = superseded_from(session, run_id, kind)
    ranges: list[tuple[int, int]] = []
    count = chunks = _STEPS_AT_ONCE
    for piece in pieces(session, run_id, kind, first_step, last_step):
        if piece.first_step >= limits[piece.epoch]:
            continue
        if count + piece.count > _STEPS_AT_ONCE or chunks == _CHUNKS_AT_ONCE:
            ranges.append((piece.first_step, piece.last_step))
            count = chunks = 0
        ranges[-1] = (ranges[-1][0], piece.last_step)
        count, chunks = count + piece.count, chunks + 1
    # Where a newer attempt begins inside a range, the older one's last steps lie in the next range too.
    starts = [max(first_step, first) for first, _ in ranges]
    ends = [start - 1 for start in starts[1:]] + [int(min(last_step, ranges[-1][1]))] if ranges else []
    return Outline(newest_epoch=max(limits, default=0), ranges=tuple(zip(starts, ends, strict=True)))


def tables(
    session: Session,
    run_id: str,
    kind: str,
    first_step: int = 0,
    last_step: float = math.inf,
    names: Sequence[str] | None = None,
    newest_epoch: int | None = None,
) -> Iterator[Columns]:
    """The curve of a run in pieces, ascending: name -> (n,) float64, `step` among them; only steps from first to last.

    An attempt counts up to the first step of a newer one, so the order of attempts is the order of steps. Attempts after
    `newest_epoch` (default: none) do not count.
    """
    run_id = curve_of(session, run_id)
    limits = superseded_from(session, run_id, kind, newest_epoch)
    inside_range = pieces(session, run_id, kind, first_step, last_step)
    wanted = [piece for piece in inside_range if piece.first_step < limits.get(piece.epoch, -math.inf)]
    for piece, whole in zip(wanted, _load(session, run_id, kind, wanted, names), strict=True):
        end = min(limits[piece.epoch], last_step + 1)
        if first_step <= piece.first_step and piece.last_step < end:
            yield whole
            continue
        inside = (whole["step"] >= first_step) & (whole["step"] < end)
        if inside.any():
            yield {name: values[inside] for name, values in whole.items()}


def pieces(session: Session, run_id: str, kind: str, first_step: int, last_step: float, epoch: int | None = None) -> list[Piece]:
    """The chunks of a run (or of one attempt) that overlap a range of steps, by attempt, ascending."""
    columns = (Chunk.epoch, Chunk.first_step, Chunk.last_step, Chunk.count.label("steps"))
    statement = select(*columns).where(Chunk.run_id == run_id, Chunk.kind == kind, Chunk.last_step >= first_step)
    if last_step < math.inf:
        statement = statement.where(Chunk.first_step <= last_step)
    if epoch is not None:
        statement = statement.where(Chunk.epoch == epoch)
    rows = session.execute(statement.order_by(Chunk.epoch, Chunk.first_step))
    return [Piece(epoch=row.epoch, first_step=row.first_step, last_step=row.last_step, count=row.steps) for row in rows]


def load(session: Session, run_id: str, kind: str, chosen: Sequence[Piece]) -> list[Columns]:
    """The tables of these chunks, all their columns, `step` first."""
    return [*_load(session, run_id, kind, chosen)]


def _load(session: Session, run_id: str, kind: str, chosen: Sequence[Piece], names: Sequence[str] | None = None) -> Iterator[Columns]:
    """The table of each chunk in turn, with the named columns that it has (default: all); read in batches of chunks."""
    for epoch, attempt in groupby(chosen, key=lambda piece: piece.epoch):
        of_attempt = list(attempt)
        for start in range(0, len(of_attempt), _CHUNKS_AT_ONCE):
            some = of_attempt[start : start + _CHUNKS_AT_ONCE]
            statement = select(ChunkColumn.first_step, ChunkColumn.name, ChunkColumn.payload).where(
                ChunkColumn.run_id == run_id,
                ChunkColumn.kind == kind,
                ChunkColumn.epoch == epoch,
                ChunkColumn.first_step.between(some[0].first_step, some[-1].first_step),
            )
            if names is not None:
                statement = statement.where(ChunkColumn.name.in_(["step", *names]))
            by_step: dict[int, Columns] = {piece.first_step: {"step": _even_steps(piece)} for piece in some}
            for first, name, payload in session.execute(statement):
                if first in by_step:
                    by_step[first][name] = codec.decode(payload)
            yield from (by_step[piece.first_step] for piece in some)


def superseded_from(session: Session, run_id: str, kind: str, newest_epoch: int | None = None) -> dict[int, float]:
    """For each attempt with recorded steps (up to the newest that counts), the first step that a newer one replaces, infinity if none does.

    This depends on training steps for every kind: once a newer attempt has trained a step, an older attempt's validation losses
    there are replaced too, even before the newer attempt has validated.
    """
    rows = session.execute(
        select(Chunk.epoch, func.min(Chunk.first_step)).where(Chunk.run_id == run_id, Chunk.kind.in_({kind, "train"})).group_by(Chunk.epoch)
    )
    counted = [(row[0], row[1]) for row in rows if newest_epoch is None or row[0] <= newest_epoch]
    limits: dict[int, float] = {}
    limit = math.inf
    for epoch, first in sorted(counted, reverse=True):
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
    return np.concatenate([table[name] if name in table else np.full(len(table["step"]), np.nan) for table in parts])


def _summary(values: NDArray[np.float64]) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    bounds: dict[str, Any] = {"nonfinite": len(values) - len(finite)}
    if len(finite):
        # Divided before summing, because the sum of large finite numbers may overflow.
        bounds |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float((finite / len(finite)).sum())}
    return bounds
