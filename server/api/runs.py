"""Runs over REST: state, attempts, logs, files, and the requests of an external trainer (attach,
steps, finish).
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from numpy.typing import NDArray
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database import run_tokens
from server.database.clock import time_text
from server.database.lookups import find_run
from server.database.metrics.coverage import Coverage
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
from server.errors import InvalidError, NotFoundError
from server.jobs import external, projects, submissions
from server.jobs.external import NAME, AttachRequest, Batch, Kind, Name, Outcome
from server.jobs.gate_rules import check_rounding
from server.jobs.projects import RunRequest
from server.logs import without_secrets
from server.records import Body, Number, number, of
from server.web.auth import InContext, Sender, check_attempt
from server.web.limits import LARGEST
from server.web.live import Download
from server.web.requests import BodyRoute, StrictBody, once, refused
from training.switches import Rounding

# A run and its attempts as the API and the pages show them.


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
            of(AttemptDocument, row, attempt=row.attempt_number, worker=worker)
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
    return of(
        RunDocument,
        run,
        arm=arm,
        attempt=run.attempt_number,
        attempts=attempts,
        submissions=[_submission_document(each) for each in submitted],
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
    return of(SubmissionDocument, submission, id=submission.scheduler_id, **took)


def seconds_since(ended: float | None) -> float | None:
    """The age of what ended then (unix seconds), never negative; None if it has not."""
    if ended is None:
        return None
    return max(0.0, time.time() - ended)


# The last log lines of each attempt at a run, without secrets, if this machine has them.
#
# A worker writes logs to its own state folder (`logs/runs/RUN-ATTEMPT.log`). A server that shares
# the folder shows them, any other server names the machine that has them. The message of a failed
# attempt contains its last lines on every server.

_READ_BYTES = 262_144
_LINE_CHARACTERS = 2000
_ARTIFACTS = 100


@frozen
class AttemptLog:
    """The last lines of one attempt, oldest first; `missing` gives the reason if there are none.
    `cut` is true if earlier lines exist.

    `artifacts` are the attempt's files in `artifacts/RUN-ATTEMPT` of this machine's state folder,
    usually traces.
    """

    attempt: int
    state: str
    worker: str | None
    lines: list[str]
    cut: bool
    missing: str | None
    artifacts: list[str]


def _log(state_dir: Path, run_id: str, attempt: AttemptDocument, wanted: int) -> AttemptLog:
    name = f"{run_id}-{attempt.attempt}"
    path = state_dir / "logs" / "runs" / f"{name}.log"
    lines, cut, missing = [], False, None
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        where = f"worker {attempt.worker}" if attempt.worker else "the machine that trained it"
        missing = (
            f"not on this machine: it is {path.name} in logs/runs of the PARITY_STATE_DIR of "
            f"{where}, until retention drops it"
        )
    else:
        every = without_secrets(text).splitlines()[1 if size > _READ_BYTES else 0 :]
        lines = [line[:_LINE_CHARACTERS] for line in every[-wanted:]]
        cut = size > _READ_BYTES or len(every) > wanted
    files = sorted(_left(state_dir, name))[:_ARTIFACTS]
    return of(AttemptLog, attempt, lines=lines, cut=cut, missing=missing, artifacts=files)


def _left(state_dir: Path, name: str) -> dict[str, Path]:
    """The files of an attempt (RUN-ATTEMPT), by their names within its folder, without links."""
    folder = state_dir / "artifacts" / name
    return {
        str(file.relative_to(folder)): file
        for file in folder.rglob("*")
        if file.is_file() and not file.is_symlink()
    }


# One run over REST: its state, logs and files, and the requests of an external trainer (attach,
# steps, finish).

router = APIRouter(prefix="/api/v1", tags=["runs"], route_class=BodyRoute)

_BINARY = "application/octet-stream"
_MAX_STEPS, _MAX_COLUMNS = 100_000, 64
T = TypeVar("T", bound="RunProgress")
_Column = Annotated[list[float | None], Field(max_length=_MAX_STEPS), FailFast()]


@frozen
class StepsRequest(Body):
    """A batch in columns of equal length, steps in any order. Non-finite values are the strings
    nan, inf and -inf; null is nan.

    A batch of kind train has the judged loss in nats per token as `loss` (or as `lm_loss`, if
    `loss` includes auxiliary terms).
    """

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]],
        Field(min_length=1, max_length=_MAX_STEPS),
        FailFast(),
    ]
    columns: Annotated[dict[Name, _Column], Field(min_length=1, max_length=_MAX_COLUMNS)]


@frozen
class StepsSchema:
    """The JSON form of a batch; see `StepsRequest`."""

    steps: Annotated[
        list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=_MAX_STEPS)
    ]
    columns: Annotated[
        dict[str, Annotated[list[Number], Field(max_length=_MAX_STEPS)]],
        Field(min_length=1, max_length=_MAX_COLUMNS),
    ]


@frozen
class FinishRequest(Body):
    """How a trainer ended. `broke_off` leaves the run open for the next attach; after `finished`
    and `failed` it has ended.
    """

    attempt: Annotated[int, Field(ge=1, le=LARGEST)]
    outcome: Outcome
    message: Annotated[str, Field(max_length=4000)] | None = None


@frozen
class RunProgress:
    """A run's progress, the answer to a batch. `attempt` is the newest one's number; `new_steps`
    counts the steps that this request added.

    `left_out_steps` counts its steps that are more than a quarter above the plan and were not
    recorded; `message` then says so. `covered` lists the training steps that have arrived; a gap is
    larger than the most common distance between logged steps.
    """

    id: str
    job: str
    arm: str
    recipe: str
    seed: int
    replicate: int
    state: RunState
    code: str | None
    message: str | None
    attempt: int
    planned_steps: int | None
    covered: Coverage
    new_steps: int = 0
    left_out_steps: int = 0


@frozen
class RunRecord(RunProgress):
    """A run, its progress, and what its trainer said about itself: the facts of all attempts."""

    manifest: Mapping[str, str] | None


@frozen
class AttachedRun(RunRecord):
    """The run, and the token of the attempt, which may write this run until the attempt ends. It is
    returned only once.
    """

    token: str


@frozen
class RunLogDocument:
    """The logs of a run's attempts, newest first; empty for a run that has not begun, or with
    engine external.
    """

    run: str
    attempts: list[AttemptLog]


@router.get("/runs/{run_id}")
def show(run_id: str, context: InContext) -> RunRecord:
    """One run: its state, its newest attempt, and which of its steps have arrived."""
    with context.database.read() as session:
        return _answer(session, RunRecord, find_run(session, run_id))


@router.post(
    "/runs",
    status_code=201,
    responses={200: {"model": RunRecord, "description": "a run that goes on"}},
)
def of_project(
    request: StrictBody[RunRequest],
    response: Response,
    context: InContext,
    sender: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key returns the same run")
    ] = None,
) -> RunRecord:
    """The run of a project's arm for a trainer without a job file: project, arm and run are made
    where they are not there yet.

    A project belongs to who made it. Attach to the run next. Its job is judged when its owner
    concludes it (`:conclude`).
    """
    with context.database.write() as session:
        run, is_new = projects.run_of(
            session, context.settings, request, sender.id, idempotency_key
        )
        answer = _answer(session, RunRecord, run)
    response.status_code = 201 if is_new else 200
    return answer


@router.post("/runs/{run_id}:attach")
def attach(
    run_id: str,
    request: StrictBody[AttachRequest],
    response: Response,
    context: InContext,
    sender: Sender,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=200,
            description="the same key returns the same attempt until a newer one begins",
        ),
    ] = None,
) -> AttachedRun:
    """Begin an attempt of a run of engine external, for the job's owner. Send the returned
    `attempt` and `token` with every later request.

    Fences older attempts, whose tokens end. A repeated call with the same key returns the same
    attempt with a new token.
    """
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        if sender.repository is not None:
            arm = find_run(session, run_id).arm
            check_rounding(
                context.settings.gate_rules,
                sender.repository,
                arm.name,
                arm.recipe,
                request.rounding,
            )
        run = external.attach(session, context.settings, run_id, request, idempotency_key)
        token = run_tokens.issue(session, run.id, run.attempt_number)
        return _answer(session, AttachedRun, run, token=token)


async def _body(request: Request) -> bytes:
    return await request.body()


@router.post(
    "/runs/{run_id}/steps",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": TypeAdapter(StepsSchema).json_schema()},
                _BINARY: {
                    "schema": {
                        "type": "string",
                        "format": "binary",
                        "description": "little-endian float64: all values of the first column in "
                        "`names`, then all of the second, …",
                    }
                },
            },
        }
    },
)
def append(
    run_id: str,
    request: Request,
    context: InContext,
    sender: Sender,
    body: Annotated[bytes, Depends(_body)],
    attempt: Annotated[
        int, Query(ge=1, le=LARGEST, description="the attempt's number, as returned by attach")
    ],
    kind: Annotated[Kind, Query(description="kind of the records")] = "train",
    names: Annotated[
        str | None,
        Query(
            max_length=5000, description="columns of an octet-stream, comma-separated, `step` first"
        ),
    ] = None,
) -> RunProgress:
    """Record a batch. Batches may arrive in any order and more than once; the response lists the
    missing steps.

    Steps up to a quarter above the plan are recorded, so that a verdict can name them; later ones
    are counted and left out.

    409 only if the attempt has ended, or if a step is already recorded with other numbers.
    """
    check_attempt(sender, attempt)
    binary = request.headers.get("Content-Type", "").partition(";")[0].strip().lower() == _BINARY
    batch = _from_bytes(body, names) if binary else _from_json(body)
    with context.database.write() as session:
        new, left_out = external.append(session, context.settings, run_id, attempt, kind, batch)
        return _answer(
            session, RunProgress, find_run(session, run_id), new_steps=new, left_out_steps=left_out
        )


@router.post("/runs/{run_id}:finish")
def finish(
    run_id: str, request: StrictBody[FinishRequest], context: InContext, sender: Sender
) -> RunRecord:
    """End the attempt. The job is judged soon after its last run has ended; its events say when. A
    repeated call changes nothing.
    """
    check_attempt(sender, request.attempt)
    with context.database.write() as session:
        run = external.finish(
            session, context.settings, run_id, request.attempt, request.outcome, request.message
        )
        answer = _answer(session, RunRecord, run)
    if answer.state in RUN_ENDED:
        context.judge.wake(answer.job)
    return answer


@router.get("/runs/{run_id}/log")
def log(
    run_id: str,
    context: InContext,
    lines: Annotated[
        int, Query(ge=1, le=2000, description="number of last lines of each attempt")
    ] = 200,
) -> RunLogDocument:
    """The last lines that the trainer of each attempt printed, without tokens, passwords and
    keys.
    """
    with context.database.read() as session:
        run = find_run(session, run_id)
        attempts = (
            [] if run.capability == "external" else attempt_documents(session, run.job)[run_id]
        )
    logs = [
        _log(context.settings.state_dir, run_id, attempt, lines) for attempt in reversed(attempts)
    ]
    return RunLogDocument(run=run_id, attempts=logs)


@router.get("/runs/{run_id}/artifacts/{attempt}/{name:path}", response_class=FileResponse)
def run_artifact(
    run_id: str,
    attempt: Annotated[int, PathParameter(ge=0, le=LARGEST)],
    name: str,
    request: Request,
    context: InContext,
) -> Response:
    """A file of an attempt, usually a trace, if the server shares its worker's state folder."""
    with context.database.read() as session:
        find_run(session, run_id)
    # names are looked up, never joined to a path
    left = _left(context.settings.state_dir, f"{run_id}-{attempt}")
    if name not in left:
        raise NotFoundError(
            f"attempt {attempt} of run {run_id} has no file {name!r:.200} on this machine; "
            f"/runs/{run_id}/log lists its files"
        )
    return Download(request, left[name])


_STEPS = TypeAdapter(StepsRequest)
_NOT_FINITE = ("nan", "inf", "-inf", "infinity", "-infinity")


def _from_json(body: bytes) -> Batch:
    try:
        request = _STEPS.validate_json(body)
    except ValidationError as error:
        raise refused(error) from error
    # Reading is strict only where there is anything but keys and numbers: looking at each value
    # takes longer than all else.
    if body.count(b'"') > 2 * (2 + len(request.columns)) or b"true" in body or b"false" in body:
        _check_numbers(json.loads(body, object_pairs_hook=once))
    return Batch(
        steps=np.array(request.steps, np.int64),
        columns={name: np.array(values, np.float64) for name, values in request.columns.items()},
    )


def _check_numbers(sent: Mapping[str, Any]) -> None:
    """InvalidError for a step or a value that was sent as a truth value or a text, other than
    `nan`, `inf` and `-inf`.
    """
    for pointer, values in {
        "/steps": sent["steps"],
        **{f"/columns/{name}": each for name, each in sent["columns"].items()},
    }.items():
        known = () if pointer == "/steps" else (*_NOT_FINITE, "none")
        wrong = next(
            (
                each
                for each in values
                if type(each) not in (int, float) and str(each).lower() not in known
            ),
            None,
        )
        if wrong is not None:
            raise InvalidError.at(
                pointer,
                f"{pointer.rpartition('/')[2]} has {wrong!r:.80}, expected "
                f"numbers{' or nan, inf, -inf' * bool(known)}",
            )


def _from_bytes(body: bytes, names: str | None) -> Batch:
    columns = (names or "").split(",")
    if columns[0] != "step" or len(columns) < 2 or len(set(columns)) < len(columns):
        raise InvalidError(
            f"names is {names!r}, expected `step` and then different columns, comma-separated"
        )
    for name in columns:
        if not re.fullmatch(NAME, name):
            raise InvalidError(
                f"names has {name!r:.80}, expected letters, digits and _ . / - only, at most 64"
            )
    if len(columns) > _MAX_COLUMNS + 1:
        raise InvalidError(f"names has {len(columns)} columns, expected at most {_MAX_COLUMNS}")
    row = 8 * len(columns)
    if not body or len(body) % row or len(body) // row > _MAX_STEPS:
        raise InvalidError(
            f"the body has {len(body)} bytes, expected 1 to {_MAX_STEPS:,} times {row}: "
            f"{len(columns)} columns of float64"
        )
    table: NDArray[np.float64] = (
        np.frombuffer(body, "<f8").astype(np.float64, copy=False).reshape(len(columns), -1)
    )
    steps = table[0]
    if not ((steps >= 0) & (steps <= 2**53) & (np.floor(steps) == steps)).all():
        raise InvalidError(
            f"the first column holds steps, expected whole numbers from 0 to {2**53}"
        )
    return Batch(
        steps=steps.astype(np.int64), columns=dict(zip(columns[1:], table[1:], strict=True))
    )


def _answer(session: Session, kind: type[T], run: Run, **more: object) -> T:
    """A run in one of the documents of its progress."""
    covered = external.covered(session, run)
    about = {
        "job": run.job_id,
        "arm": run.arm.name,
        "recipe": run.arm.recipe,
        "attempt": run.attempt_number,
    }
    return of(kind, run, **about, covered=covered, **{"new_steps": 0, "left_out_steps": 0, **more})
