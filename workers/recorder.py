"""Writes the steps of a running trainer to the database; the only writer of a run's metrics.

Steps are collected and written about once per second, in one transaction with the fence and the
progress, which open pages follow. NaN and Inf are recorded like any other value.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from parity.judged_loss import JUDGED_LOSS
from server.curves.layer_table import LAYERS
from server.database.metrics import chunk_tables, store
from server.database.sessions import Database
from server.database.tables import Run
from training.step_values import StepStats
from workers import lease
from workers.lease import Claim
from workers.protocol import LayerTableMessage, ReportMessage

_OPTIONAL = "tflops_per_device"  # recorded if the first steps of a run have it
# fields of a step that its kind `train` has not always
_ELSEWHERE = ("step", "layer_grad_norms", "layers", "validation_loss", _OPTIONAL)
_COLUMNS = tuple(
    field.name for field in dataclasses.fields(StepStats) if field.name not in _ELSEWHERE
)
KINDS = ("train", "validation", "layer_grad_norm", LAYERS)
_SPEED_WINDOW_SECONDS = 10.0


class StepRecorder:
    """Collects the steps of one attempt and writes them as chunks."""

    def __init__(self, database: Database, claim: Claim, lease_seconds: float) -> None:
        self._database = database
        self._claim = claim
        self._lease_seconds = lease_seconds
        self._steps: list[StepStats] = []
        self._reports: list[chunk_tables.Columns] = []
        self._seen: deque[tuple[float, int]] = deque()
        self._unsealed = self._small = self._count = 0  # steps, flushes, steps of the last flush
        self._begun = False
        # As many steps as the run has, as far as this attempt knows; and whether the last write may
        # have been committed unnoticed.
        self._recorded, self._unconfirmed = claim.steps_done, False
        # of the last write: its first step, the steps of the run after it, its steps
        self._flushed: tuple[int, int, int] | None = None
        self._columns: Sequence[str] = ()
        self._layers: Sequence[str] = ()
        self._layer_columns: Sequence[str] = ()

    def name_layers(self, layers: Sequence[str], columns: Sequence[str]) -> None:
        """Set the names of what later steps record by layer; columns: `operand/statistic`. It is
        stored as `layer/operand/statistic`.
        """
        self._layers = layers
        self._layer_columns = [f"{layer}/{column}" for layer in layers for column in columns]

    def add(self, step: StepStats) -> None:
        """Add one step, to be written by the next flush."""
        self._steps.append(step)

    def add_report(self, report: ReportMessage) -> None:
        """Add steps that a trainer of somebody else's has reported, to be written by the next
        flush.
        """
        table = {"step": np.array(report["steps"], np.float64)}
        self._reports.append(
            table
            | {name: np.array(values, np.float64) for name, values in report["columns"].items()}
        )

    @property
    def waits(self) -> bool:
        """Whether steps are collected that are not written yet."""
        return bool(self._steps or self._reports)

    def flush(self) -> None:
        """Write the collected steps and renew the lease. LeaseLostError, without a write, if the
        worker no longer holds the run.

        Nor is anything written to a record that was restored from a backup: the steps since the
        backup would be missing in it.
        """
        claim = self._claim
        if not self.waits:
            with self._database.write() as session:
                lease.renew(session, claim, self._lease_seconds)
            return
        with self._database.write() as session:
            progress, chunks = self.collected()
            expected = Run.steps_done.in_(progress.expected)
            lease.renew(
                session, claim, self._lease_seconds, expected, recorded=True, **progress.columns
            )
            store.append_all(session, chunks)
            self.note_first(session)
        self.flushed()
        self.merge()

    def collected(self) -> tuple[lease.ProgressWrite, list[chunk_tables.NewChunk]]:
        """What waits, to be written in one transaction with the progress of the run; once it is
        committed, call `flushed`.
        """
        tables = [(kind, table) for kind, table in self._tables() if len(table["step"])]
        train = next(table for kind, table in tables if kind == "train")
        first, last = int(train["step"][0]), int(train["step"][-1])
        done = last + 1
        expected = (self._recorded, done) if self._unconfirmed else (self._recorded,)
        self._unconfirmed = True
        self._flushed = (first, done, len(train["step"]))
        columns = {
            "steps_done": done,
            "last_loss": repr(float(train[JUDGED_LOSS][-1])),
            "steps_per_second": self._speed(last),
        }
        chunks = [
            chunk
            for kind, table in tables
            for chunk in chunk_tables.cut(
                self._claim.run_id, kind, self._claim.attempt_number, table
            )
        ]
        return lease.ProgressWrite(claim=self._claim, expected=expected, columns=columns), chunks

    def note_first(self, session: Session) -> None:
        """Note the first step of the attempt, in the transaction that writes it."""
        if self._flushed is not None and not self._begun:
            lease.note(session, self._claim, first_step=self._flushed[0])

    def flushed(self) -> None:
        """What was collected last is on record."""
        if self._flushed is None:
            return
        (_, self._recorded, count), self._flushed = self._flushed, None
        self._steps, self._reports, self._begun = [], [], True
        self._unconfirmed = False
        self._unsealed += count
        self._small, self._count = self._small + 1, count

    def merge(self) -> None:
        """Merge small chunks where there are many.

        In a separate transaction: a write whose commit was not confirmed is repeated, and must find
        its chunk unchanged.
        """
        if self._unsealed >= chunk_tables.SEALED_STEPS:
            self.seal()
        elif self._small >= store.SMALL_CHUNKS:
            self._seal(min(store.SMALL_CHUNKS * self._count, chunk_tables.SEALED_STEPS))

    def write_row(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write one row of another kind immediately: a profile, or a validation loss that arrived
        after its step.
        """
        claim = self._claim
        columns = {name: np.array([value], np.float64) for name, value in values.items()}
        with self._database.write() as session:
            lease.renew(session, claim, self._lease_seconds)
            store.append(
                session,
                claim.run_id,
                kind,
                claim.attempt_number,
                np.array([step], np.int64),
                columns,
            )

    def write_layers(self, table: LayerTableMessage) -> None:
        """Write statistics by layer immediately. Writing them again changes nothing."""
        claim = self._claim
        columns = {name: np.array(values, np.float64) for name, values in table["columns"].items()}
        with self._database.write() as session:
            lease.renew(session, claim, self._lease_seconds)
            store.append(
                session,
                claim.run_id,
                LAYERS,
                claim.attempt_number,
                np.array(table["steps"], np.int64),
                columns,
            )

    def seal(self) -> None:
        """Merge the small chunks of the attempt, about one per second, into large ones."""
        self._seal(chunk_tables.SEALED_STEPS)
        self._unsealed = 0

    def _seal(self, steps: int) -> None:
        with self._database.write() as session:
            lease.renew(session, self._claim, self._lease_seconds)
            for kind in KINDS:
                store.seal(session, self._claim.run_id, kind, self._claim.attempt_number, steps)
        self._small = 0

    def _tables(self) -> Iterator[tuple[str, chunk_tables.Columns]]:
        """What waits to be written, by kind."""
        if self._reports:
            yield "train", chunk_tables.join(self._reports)
            return
        steps = self._steps
        if not self._columns:
            self._columns = (
                (*_COLUMNS, _OPTIONAL) if np.isfinite(_column(steps, _OPTIONAL)).any() else _COLUMNS
            )
        for kind, seen, columns in self._kinds(steps):
            yield kind, {"step": _column(seen, "step"), **columns}

    def _kinds(
        self, steps: Sequence[StepStats]
    ) -> Iterator[tuple[str, Sequence[StepStats], chunk_tables.Columns]]:
        """The records in these steps: (kind, steps with such records, columns)."""
        yield "train", steps, {name: _column(steps, name) for name in self._columns}
        validated = [step for step in steps if step.validation_loss is not None]
        if validated:
            yield "validation", validated, {"loss": _column(validated, "validation_loss")}
        if self._layers and steps[0].layer_grad_norms:
            norms = _column(steps, "layer_grad_norms")
            yield "layer_grad_norm", steps, dict(zip(self._layers, norms.T, strict=True))
        watched = [step for step in steps if step.layers is not None]
        if watched:
            table = _column(watched, "layers").reshape(len(watched), -1)
            yield LAYERS, watched, dict(zip(self._layer_columns, table.T, strict=True))

    def _speed(self, step: int) -> float | None:
        """Steps per second over the last ten seconds; the clock starts at the first write, which
        includes the compilation.
        """
        now = time.monotonic()
        self._seen.append((now, step))
        while now - self._seen[0][0] > _SPEED_WINDOW_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        began, first = self._seen[0]
        if step > first:
            return (step - first) / (now - began)
        return None


def write_all(
    session: Session, recorders: Sequence[StepRecorder], lease_seconds: float
) -> list[StepRecorder]:
    """Write what the recorders of different runs have collected, in few statements, as each write
    of its own would take most of the time.

    Returns those whose worker still holds its run; nothing of the others is written. Call `flushed`
    for each once it is committed.
    """
    collected = [(recorder, *recorder.collected()) for recorder in recorders if recorder.waits]
    if not collected:
        return []
    lost = lease.record_all(session, [progress for _, progress, _ in collected], lease_seconds)
    writing = [
        (recorder, chunks)
        for recorder, progress, chunks in collected
        if progress.claim.run_id not in lost
    ]
    if writing:
        store.append_all(session, [chunk for _, chunks in writing for chunk in chunks])
    for recorder, _ in writing:
        recorder.note_first(session)
    return [recorder for recorder, _ in writing]


def _column(steps: Sequence[StepStats], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values (n, ...) of a field of these steps."""
    return np.array([getattr(step, name) for step in steps], np.float64)
