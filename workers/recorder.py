"""Writes the steps of a running trainer, and the results of an analysis, to the database, behind the fence of the run."""

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parity.extensions import lab
from server.database import store
from server.database.sessions import Database
from server.database.tables import Run
from training.rules import StepStats
from workers import lease
from workers.lease import Claim
from workers.protocol import ReportMessage, ResultMessage

# Writes the steps of a running trainer to the database; the only writer of a run's metrics.
#
# Steps are collected and written about once per second, in one transaction with the fence and the progress, which open pages follow. NaN
# and Inf are recorded like any other value.

_OPTIONAL = "tflops_per_device"  # recorded if the first steps of a run have it
_ELSEWHERE = ("step", "layer_grad_norms", "layers", "validation_loss", _OPTIONAL)  # fields of a step that its kind `train` has not always
_COLUMNS = tuple(field.name for field in dataclasses.fields(StepStats) if field.name not in _ELSEWHERE)
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
        self._unsealed = self._small = 0  # steps, flushes
        self._begun = False
        # As many steps as the run has, as far as this attempt knows; and whether the last write may have been committed unnoticed.
        self._recorded, self._unconfirmed = held.steps_done, False
        self._columns: Sequence[str] = ()
        self._layers: Sequence[str] = ()
        self._layer_columns: Sequence[str] = ()

    def name_layers(self, layers: Sequence[str], columns: Sequence[str]) -> None:
        """Set the names of what later steps record by layer; columns: `operand/statistic`. It is stored as `layer/operand/statistic`."""
        self._layers = layers
        self._layer_columns = [f"{layer}/{column}" for layer in layers for column in columns]

    def add(self, step: StepStats) -> None:
        """Add one step, to be written by the next flush."""
        self._steps.append(step)

    def add_report(self, report: ReportMessage) -> None:
        """Add steps that a trainer of somebody else's has reported, to be written by the next flush."""
        table = {"step": np.array(report["steps"], np.float64)}
        self._reports.append(table | {name: np.array(values, np.float64) for name, values in report["columns"].items()})

    def flush(self) -> None:
        """Write the collected steps and renew the lease. LeaseLostError, without a write, if the worker no longer holds the run.

        Nor is anything written to a record that was restored from a backup: the steps since the backup would be missing in it.
        """
        held = self._held
        if not self._steps and not self._reports:
            with self._database.write() as session:
                lease.renew(session, held, self._lease_seconds)
            return
        tables = [(kind, table) for kind, table in self._tables() if len(table["step"])]
        train = next(table for kind, table in tables if kind == "train")
        first, last, count = int(train["step"][0]), int(train["step"][-1]), len(train["step"])
        done, speed = last + 1, self._speed(last)
        expected = [self._recorded, done] if self._unconfirmed else [self._recorded]
        self._unconfirmed = True
        with self._database.write() as session:
            lease.renew(
                session,
                held,
                self._lease_seconds,
                Run.steps_done.in_(expected),
                recorded=True,
                steps_done=done,
                last_loss=repr(float(train["lm_loss"][-1])),
                steps_per_second=speed,
            )
            store.append_all(
                session, [chunk for kind, table in tables for chunk in store.cut(held.run_id, kind, held.attempt_number, table)]
            )
            if not self._begun:
                lease.note(session, held, first_step=first)
        self._steps, self._reports, self._begun = [], [], True
        self._recorded, self._unconfirmed = done, False
        self._unsealed += count
        self._small += 1
        # In a separate transaction: a write whose commit was not confirmed is repeated, and must find its chunk unchanged.
        if self._unsealed >= store.SEALED_STEPS:
            self.seal()
        elif self._small >= store.SMALL_CHUNKS:
            self._seal(min(store.SMALL_CHUNKS * count, store.SEALED_STEPS))

    def write_row(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write one row of another kind immediately: a profile, or a validation loss that arrived after its step."""
        held = self._held
        columns = {name: np.array([value], np.float64) for name, value in values.items()}
        with self._database.write() as session:
            lease.renew(session, held, self._lease_seconds)
            store.append(session, held.run_id, kind, held.attempt_number, np.array([step], np.int64), columns)

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
            self._columns = (*_COLUMNS, _OPTIONAL) if np.isfinite(_column(steps, _OPTIONAL)).any() else _COLUMNS
        for kind, seen, columns in self._kinds(steps):
            yield kind, {"step": _column(seen, "step"), **columns}

    def _kinds(self, steps: Sequence[StepStats]) -> Iterator[tuple[str, Sequence[StepStats], store.Columns]]:
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
        """Steps per second over the last ten seconds; the clock starts at the first write, which includes the compilation."""
        now = time.monotonic()
        self._seen.append((now, step))
        while now - self._seen[0][0] > _SPEED_WINDOW_SECONDS and len(self._seen) > 2:
            self._seen.popleft()
        began, first = self._seen[0]
        return (step - first) / (now - began) if step > first else None


def _column(steps: Sequence[StepStats], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values (n, ...) of a field of these steps."""
    return np.array([getattr(step, name) for step in steps], np.float64)


# Writes what a run of the lab measures to the database, with the fence and the progress of the run; each key once.


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
        """Add one result, to be written by the next flush. The clock of the speed starts at the first, which includes the compilation."""
        self._began = self._began or time.monotonic()
        self._waiting.append(message)
        self._steps += message["steps"]

    def flush(self) -> None:
        """Write the collected results. LeaseLostError, without a write, if the worker no longer holds the run."""
        tables = lab().part("tables") if self._waiting else None
        if tables is None:
            return
        held, values = self._held, {each["key"]: each["value"] for each in self._waiting}
        seconds = time.monotonic() - (self._began or 0.0)
        speed = (self._steps - self._before) / seconds if seconds > 1.0 else None
        with self._database.write() as session:
            lease.renew(session, held, self._lease_seconds, recorded=True, steps_done=int(self._steps), steps_per_second=speed)
            tables.keep_results(session, held.run_id, values)
        self._waiting = []
