"""A run and its attempts as the API and the pages show them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.curves.buckets import Number, number
from server.database.clock import time_text
from server.database.tables import Attempt, AttemptState, Job, Run, RunKind, RunState, Worker
from server.records import frozen, of
from training.switches import Rounding


@frozen
class AttemptDocument:
    """One attempt at a run: its worker, its first recorded step, and how it ended."""

    attempt: int
    state: AttemptState
    code: str | None
    message: str | None
    worker: str | None
    first_step: int | None
    fingerprint: str | None
    started_at: str
    ended_at: str | None


@frozen
class ReusedDocument:
    """The source of a reused curve, and when it was trained."""

    run: str
    job: str
    trained_at: str | None
    age_seconds: float | None


@frozen
class RunDocument:
    """One training run. `loss` is the last judged loss in nats; a code and message say why a run ended early.

    A run of `kind` noise trains only its `planned_steps`, a share of the schedule; it measures run noise and is never judged.
    `kept_checkpoints` are the numbers of steps after which a checkpoint of the run is kept, from which an analysis can start.

    `rounding` is how its trainer rounded gradients, if recorded. `reused` is set if the run was not trained because an equal
    run had been.
    """

    id: str
    arm: str
    seed: int
    replicate: int
    kind: RunKind
    state: RunState
    code: str | None
    message: str | None
    attempt: int
    attempts: list[AttemptDocument]
    priority: int
    steps_done: int
    planned_steps: int
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    worker: str | None
    fingerprint: str | None
    manifest: Mapping[str, str] | None
    rounding: Rounding | None
    reused: ReusedDocument | None
    kept_checkpoints: list[int]
    started_at: str | None
    finished_at: str | None


def attempt_documents(session: Session, job: Job) -> Mapping[str, list[AttemptDocument]]:
    """The attempts of each run of a job, oldest first."""
    rows = session.execute(
        select(Attempt, Worker.name)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Worker, Worker.id == Attempt.worker_id)
        .where(Run.job_id == job.id)
        .order_by(Attempt.run_id, Attempt.epoch)
    )
    attempts: dict[str, list[AttemptDocument]] = {run.id: [] for run in job.runs}
    for row, worker in rows:
        attempts[row.run_id].append(of(AttemptDocument, row, attempt=row.epoch, worker=worker))
    return attempts


def run_document(run: Run, arm: str, eta_seconds: float | None, attempts: list[AttemptDocument]) -> RunDocument:
    """A run of an arm (by name) with its attempts, oldest first; `eta_seconds` until it ends, None while unknown."""
    reused = None
    if run.source:
        ended = run.source.finished_at
        reused = ReusedDocument(run=run.source.id, job=run.source.job_id, trained_at=time_text(ended), age_seconds=seconds_since(ended))
    return of(
        RunDocument,
        run,
        arm=arm,
        attempt=run.epoch,
        attempts=attempts,
        loss=None if run.last_loss is None else number(float(run.last_loss)),
        eta_seconds=eta_seconds,
        worker=attempts[-1].worker if attempts and run.worker_id else None,
        reused=reused,
        kept_checkpoints=run.kept_checkpoints or [],
    )


def seconds_since(ended: float | None) -> float | None:
    """The age of what ended then (unix seconds), never negative; None if it has not."""
    return None if ended is None else max(0.0, time.time() - ended)
