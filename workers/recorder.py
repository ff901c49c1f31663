"""Writes the steps of a running trainer, and the results of an analysis, to the database, behind
the fence of the run.
"""

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from parity.extensions import lab
from server.database import store
from server.database.sessions import Database
from server.database.tables import Job, Run
from server.jobs.data_digests import record_data
from server.jobs.fingerprint import fingerprint_of, named_baseline_mismatch
from server.jobs.lifecycle import BrokenAttempt
from server.settings import Settings
from training.command import ENGINE as COMMAND
from training.command import PINNED
from training.rules import StepStats
from training.switches import Rounding
from workers import lease
from workers.lease import Claim
from workers.protocol import ReportMessage, ResultMessage

# Writes the steps of a running trainer to the database; the only writer of a run's metrics.
#
# Steps are collected and written about once per second, in one transaction with the fence and the
# progress, which open pages follow. NaN and Inf are recorded like any other value.

_OPTIONAL = "tflops_per_device"  # recorded if the first steps of a run have it
# fields of a step that its kind `train` has not always
_ELSEWHERE = ("step", "layer_grad_norms", "layers", "validation_loss", _OPTIONAL)
_COLUMNS = tuple(
    field.name for field in dataclasses.fields(StepStats) if field.name not in _ELSEWHERE
)
KINDS = ("train", "validation", "layer_grad_norm", "layers")
_SPEED_WINDOW_SECONDS = 10.0


class Recorder:
    """Collects the steps of one attempt and writes them as chunks."""

    def __init__(self, database: Database, held: Claim, lease_seconds: float) -> None:
        self._database = database
        self._held = held
        self._lease_seconds = lease_seconds
        self._steps: list[StepStats] = []
        self._reports: list[store.Columns] = []
        self._seen: deque[tuple[float, int]] = deque()
        self._unsealed = self._small = self._count = 0  # steps, flushes, steps of the last flush
        self._begun = False
        # As many steps as the run has, as far as this attempt knows; and whether the last write may
        # have been committed unnoticed.
        self._recorded, self._unconfirmed = held.steps_done, False
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
        held = self._held
        if not self.waits:
            with self._database.write() as session:
                lease.renew(session, held, self._lease_seconds)
            return
        with self._database.write() as session:
            progress, chunks = self.collected()
            expected = Run.steps_done.in_(progress.expected)
            lease.renew(
                session, held, self._lease_seconds, expected, recorded=True, **progress.columns
            )
            store.append_all(session, chunks)
            self.note_first(session)
        self.flushed()
        self.merge()

    def collected(self) -> tuple[lease.Progress, list[store.NewChunk]]:
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
            "last_loss": repr(float(train["lm_loss"][-1])),
            "steps_per_second": self._speed(last),
        }
        chunks = [
            chunk
            for kind, table in tables
            for chunk in store.cut(self._held.run_id, kind, self._held.attempt_number, table)
        ]
        return lease.Progress(held=self._held, expected=expected, columns=columns), chunks

    def note_first(self, session: Session) -> None:
        """Note the first step of the attempt, in the transaction that writes it."""
        if self._flushed is not None and not self._begun:
            lease.note(session, self._held, first_step=self._flushed[0])

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
        if self._unsealed >= store.SEALED_STEPS:
            self.seal()
        elif self._small >= store.SMALL_CHUNKS:
            self._seal(min(store.SMALL_CHUNKS * self._count, store.SEALED_STEPS))

    def write_row(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write one row of another kind immediately: a profile, or a validation loss that arrived
        after its step.
        """
        held = self._held
        columns = {name: np.array([value], np.float64) for name, value in values.items()}
        with self._database.write() as session:
            lease.renew(session, held, self._lease_seconds)
            store.append(
                session, held.run_id, kind, held.attempt_number, np.array([step], np.int64), columns
            )

    def seal(self) -> None:
        """Merge the small chunks of the attempt, about one per second, into large ones."""
        self._seal(store.SEALED_STEPS)
        self._unsealed = 0

    def _seal(self, steps: int) -> None:
        with self._database.write() as session:
            lease.renew(session, self._held, self._lease_seconds)
            for kind in KINDS:
                store.seal(session, self._held.run_id, kind, self._held.attempt_number, steps)
        self._small = 0

    def _tables(self) -> Iterator[tuple[str, store.Columns]]:
        """What waits to be written, by kind."""
        if self._reports:
            yield "train", store.join(self._reports)
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
    ) -> Iterator[tuple[str, Sequence[StepStats], store.Columns]]:
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
            yield "layers", watched, dict(zip(self._layer_columns, table.T, strict=True))

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
    session: Session, recorders: Sequence[Recorder], lease_seconds: float
) -> list[Recorder]:
    """Write what the recorders of different runs have collected, in few statements, as each write
    of its own would take most of the time.

    Returns those whose worker still holds its run; nothing of the others is written. Call `flushed`
    for each once it is committed.
    """
    collected = [(each, *each.collected()) for each in recorders if each.waits]
    if not collected:
        return []
    lost = lease.record_all(session, [progress for _, progress, _ in collected], lease_seconds)
    held = [
        (each, chunks) for each, progress, chunks in collected if progress.held.run_id not in lost
    ]
    if held:
        store.append_all(session, [chunk for _, chunks in held for chunk in chunks])
    for each, _ in held:
        each.note_first(session)
    return [each for each, _ in held]


def _column(steps: Sequence[StepStats], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values (n, ...) of a field of these steps."""
    return np.array([getattr(step, name) for step in steps], np.float64)


# Writes what a run of the lab measures to the database, with the fence and the progress of the run;
# each key once.


class Results:
    """Collects the results of one attempt; an attempt that trains has none."""

    def __init__(self, database: Database, held: Claim, lease_seconds: float) -> None:
        self._database = database
        self._held = held
        self._lease_seconds = lease_seconds
        self._waiting: list[ResultMessage] = []
        self._steps = self._before = float(held.measure["spent"]) if held.measure else 0.0
        self._began: float | None = None

    def add(self, message: ResultMessage) -> None:
        """Add one result, to be written by the next flush. The clock of the speed starts at the
        first, which includes the compilation.
        """
        self._began = self._began or time.monotonic()
        self._waiting.append(message)
        self._steps += message["steps"]

    def flush(self) -> None:
        """Write the collected results. LeaseLostError, without a write, if the worker no longer
        holds the run.
        """
        tables = lab().part("tables") if self._waiting else None
        if tables is None:
            return
        held, values = self._held, {each["key"]: each["value"] for each in self._waiting}
        seconds = time.monotonic() - (self._began or 0.0)
        speed = (self._steps - self._before) / seconds if seconds > 1.0 else None
        with self._database.write() as session:
            lease.renew(
                session,
                held,
                self._lease_seconds,
                recorded=True,
                steps_done=int(self._steps),
                steps_per_second=speed,
            )
            tables.keep_results(session, held.run_id, values)
        self._waiting = []


# One attempt at a run on record: its manifest, which may end it, its steps, its notes and its end.

# The judge reads from its curve that a run diverged, has a gap, is short or goes on: it is
# finished.
JUDGED_ANYWAY = ("DIVERGED", "METRICS_GAP", "ENDED_EARLY", "STEPS_ABOVE_PLAN")
RETRY_SECONDS = 1.0
Written = TypeVar("Written")
_log = logging.getLogger(__name__)


class AttemptRecord:
    """What one attempt at a claimed run writes, whoever trains it; each write waits for a database
    that is away.
    """

    def __init__(
        self, settings: Settings, database: Database, held: Claim, stopping: threading.Event
    ) -> None:
        self._settings = settings
        self._database = database
        self._held = held
        self._stopping = stopping
        self.recorder = Recorder(database, held, settings.lease_seconds)

    def record_manifest(self, manifest: Mapping[str, str], rounding: Rounding | None) -> bool:
        """Record the manifest; True if that ends the run, by reuse of an equal run's curve or by a
        mismatch with the job's baseline.
        """
        if self.written(partial(self._write_manifest, manifest, rounding)):
            return True
        with self._database.read() as session:
            difference = named_baseline_mismatch(session.get_one(Job, self._held.job_id), manifest)
        if difference is not None:
            self.written(partial(lease.fail_with_job, held=self._held, reason=difference))
        return difference is not None

    def _write_manifest(
        self, manifest: Mapping[str, str], rounding: Rounding | None, session: Session
    ) -> bool:
        """Write the manifest; True if the run ended with the curve of an equal run, or because its
        launcher is another one now.
        """
        held, fingerprint = self._held, fingerprint_of(self._held.spec, manifest)
        if changed := _changed_launcher(session.get_one(Run, held.run_id), manifest):
            lease.fail(session, held, code="LAUNCHER_CHANGED", message=changed)
            return True
        lease.renew(
            session,
            held,
            self._settings.lease_seconds,
            manifest=manifest,
            fingerprint=fingerprint,
            rounding=rounding,
        )
        lease.note(session, held, fingerprint=fingerprint)
        record_data(session, held.spec, held.run_id, manifest)
        # the launcher does not say which libraries it has
        if held.spec.engine == COMMAND and PINNED not in manifest:
            return False
        return lease.finish_with_equal_run(session, held, fingerprint)

    def note(self, text: str) -> None:
        """Note a sentence for readers of the attempt."""
        self.fenced(partial(lease.note, held=self._held, message=text))

    def finish(self, code: str | None = None, message: str | None = None) -> None:
        """Write the last steps, and end the run with its curve."""
        self.write_last_steps()
        self.written(partial(lease.finish, held=self._held, code=code, message=message))

    def fail(self, code: str, message: str) -> None:
        """Write the last steps, and fail the run."""
        self.write_last_steps()
        self.written(partial(lease.fail, held=self._held, code=code, message=message))

    def give_back(self, why: str, attempt: BrokenAttempt) -> None:
        """Queue the run again, or fail it after too many crashes."""
        with self._database.write() as session:
            self.give_back_in(session, why, attempt)

    def give_back_in(self, session: Session, why: str, attempt: BrokenAttempt) -> bool:
        """The same in a transaction of the caller's; False if this worker no longer holds the
        run.
        """
        run = session.get_one(Run, self._held.run_id, with_for_update=True)
        is_held = lease.is_held(session, run, self._held)
        if is_held:
            lease.give_back(
                session, run, why, attempt=attempt, max_attempts=self._settings.max_attempts
            )
        return is_held

    def forgive(self) -> None:
        """Do not count the loss of this attempt as a crash of the run."""
        with self._database.write() as session:
            lease.forgive(session, self._held)

    def flush(self) -> None:
        """Write what was collected, and renew the lease."""
        self.retried(self.recorder.flush)

    def write_last_steps(self) -> None:
        """Write what was collected, and merge the chunks of the attempt."""
        self.flush()
        self.retried(self.recorder.seal)

    def written(self, change: Callable[[Session], Written]) -> Written:
        """Make a change in one transaction; see `retried`."""

        def write() -> Written:
            with self._database.write() as session:
                return change(session)

        return self.retried(write)

    def fenced(self, change: Callable[[Session], Written]) -> Written:
        """The same behind the fence of the run: LeaseLostError, without a change, if this worker no
        longer holds it.
        """

        def write(session: Session) -> Written:
            lease.renew(session, self._held, self._settings.lease_seconds)
            return change(session)

        return self.written(write)

    def retried(self, write: Callable[[], Written]) -> Written:
        """Write, and retry while the database is busy or unreachable; training continues, and the
        fence still protects the run.
        """
        deadline = time.monotonic() + self._settings.database_patience_seconds
        while True:
            try:
                return write()
            except OperationalError as error:
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise
                _log.warning("a write to the database failed; retrying: %s", error.orig)
            time.sleep(RETRY_SECONDS)


def _changed_launcher(run: Run, manifest: Mapping[str, str]) -> str | None:
    """Why a run whose recorded steps another version of its launcher trained cannot go on; None if
    it can.
    """
    before, now = ((each or {}).get("launcher_digest") for each in (run.manifest, manifest))
    if not run.steps_done or before is None or before == now:
        return None
    return (
        f"launcher {manifest['launcher']} changed after step {run.steps_done - 1:,} of this run "
        f"({before[:12]} then, {str(now)[:12]} now), "
        "and a curve of two launchers says nothing of either; submit the job again"
    )
