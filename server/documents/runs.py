"""A run and its attempts as the API and the pages show them."""

import time
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database.clock import time_text
from server.database.states import RUN_ENDED
from server.database.tables import (
    Attempt,
    AttemptState,
    Job,
    Run,
    RunKind,
    RunState,
    Submission,
    SubmissionState,
    Worker,
)
from server.jobs import submissions
from server.json_numbers import Number, number
from server.records import from_attributes
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
class SubmissionDocument:
    """A job of a scheduler that trains a run: since when it is there, how long it waited and
    trained, and how its trainer ended.

    `id` is the scheduler's name for it, `reason` why it does not train, in the scheduler's words;
    `exit_status` is the trainer's, a signal as a negative number.
    """

    number: int
    scheduler: str
    id: str | None
    state: SubmissionState
    reason: str | None
    exit_status: int | None
    queued_seconds: float
    device_seconds: float
    created_at: str
    started_at: str | None
    ended_at: str | None


@frozen
class RunDocument:
    """One training run. `loss` is the last judged loss in nats; a code and message say why a run
    ended early.

    A run of `kind` short trains only its `planned_steps`, a share of the schedule; it measures
    run-to-run noise and is never judged. `kept_checkpoints` are the numbers of steps after which a
    checkpoint of the run is kept, from which an analysis can start.

    `rounding` is how its trainer rounded gradients, if recorded. `reused` is set if the run was not
    trained because an equal run had been. `waiting` says where a run waits that has a job with a
    scheduler (`submissions`), and why.
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
    submissions: list[SubmissionDocument]
    waiting: str | None
    priority: int
    steps_done: int
    planned_steps: int | None
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

    @property
    def shown_state(self) -> str:
        """`queued` for a run whose job waits at a scheduler, though a worker holds it."""
        if self.state == "running" and self.waiting:
            return "queued"
        return self.state

    @property
    def note(self) -> str | None:
        """What its trainer noted of the only attempt; several attempts are listed with theirs."""
        trained = self.state in ("running", "finished") and self.reused is None
        if not trained or len(self.attempts) != 1:
            return None
        noted = self.attempts[-1].message
        return None if noted == self.message else noted


def attempt_documents(session: Session, job: Job) -> Mapping[str, list[AttemptDocument]]:
    """The attempts of each run of a job, oldest first."""
    rows = session.execute(
        select(Attempt, Worker.name)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Worker, Worker.id == Attempt.worker_id)
        .where(Run.job_id == job.id)
        .order_by(Attempt.run_id, Attempt.attempt_number)
    )
    attempts: dict[str, list[AttemptDocument]] = {run.id: [] for run in job.runs}
    for row, worker in rows:
        attempts[row.run_id].append(
            from_attributes(AttemptDocument, row, attempt=row.attempt_number, worker=worker)
        )
    return attempts


def run_document(
    run: Run,
    arm: str,
    eta_seconds: float | None,
    attempts: list[AttemptDocument],
    submitted: Sequence[Submission] = (),
) -> RunDocument:
    """A run of an arm (by name) with its attempts and submissions, oldest first; `eta_seconds`
    until it ends, None while unknown.
    """
    reused = None
    if run.source:
        ended = run.source.finished_at
        reused = ReusedDocument(
            run=run.source.id,
            job=run.source.job_id,
            trained_at=time_text(ended),
            age_seconds=seconds_since(ended),
        )
    return from_attributes(
        RunDocument,
        run,
        arm=arm,
        attempt=run.attempt_number,
        attempts=attempts,
        submissions=[_submission_document(submission) for submission in submitted],
        waiting=submissions.why_not_training(submitted[-1])
        if submitted and run.state not in RUN_ENDED
        else None,
        loss=None if run.last_loss is None else number(float(run.last_loss)),
        eta_seconds=eta_seconds,
        worker=attempts[-1].worker if attempts and run.worker_id else None,
        reused=reused,
        kept_checkpoints=run.kept_checkpoints or [],
    )


def _submission_document(submission: Submission) -> SubmissionDocument:
    took = {
        name: getattr(submissions, name)(submission, time.time())
        for name in ("queued_seconds", "device_seconds")
    }
    return from_attributes(SubmissionDocument, submission, id=submission.scheduler_id, **took)


def seconds_since(ended: float | None) -> float | None:
    """The age of what ended then (unix seconds), never negative; None if it has not."""
    if ended is None:
        return None
    return max(0.0, time.time() - ended)
