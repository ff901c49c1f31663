"""One run over REST: its state, logs and files, and the requests of an external trainer (attach, steps, finish)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse
from numpy.typing import NDArray
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from sqlalchemy.orm import Session

from server.curves.buckets import Number
from server.database import run_tokens
from server.database.coverage import Coverage
from server.database.lookup import find_run
from server.database.states import RUN_ENDED
from server.database.tables import Run, RunState
from server.documents.run_logs import AttemptLog, artifact, attempt_logs
from server.documents.runs import attempt_documents
from server.errors import InvalidError
from server.jobs import external
from server.jobs.external import NAME, AttachRequest, Batch, Kind, Name, Outcome
from server.records import Body, frozen, of
from server.web.auth import Sender, check_attempt
from server.web.context import InContext
from server.web.limits import LARGEST
from server.web.strict_body import BodyRoute, StrictBody, refused

router = APIRouter(prefix="/api/v1", tags=["runs"], route_class=BodyRoute)

_BINARY = "application/octet-stream"
_MAX_STEPS, _MAX_COLUMNS = 100_000, 64
T = TypeVar("T", bound="RunProgress")
_Column = Annotated[list[float], Field(max_length=_MAX_STEPS), FailFast()]


@frozen
class StepsRequest(Body):
    """A batch in columns of equal length, steps in any order. Non-finite values are the strings nan, inf and -inf.

    A batch of kind train has the judged loss in nats per token as `loss` (or as `lm_loss`, if `loss` includes auxiliary terms).
    """

    steps: Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=_MAX_STEPS), FailFast()]
    columns: Annotated[dict[Name, _Column], Field(min_length=1, max_length=_MAX_COLUMNS)]


@frozen
class StepsSchema:
    """The JSON form of a batch; see `StepsRequest`."""

    steps: Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=_MAX_STEPS)]
    columns: Annotated[dict[str, Annotated[list[Number], Field(max_length=_MAX_STEPS)]], Field(min_length=1, max_length=_MAX_COLUMNS)]


@frozen
class FinishRequest(Body):
    """How a trainer ended. `broke_off` leaves the run open for the next attach; after `finished` and `failed` it has ended."""

    epoch: Annotated[int, Field(ge=1, le=LARGEST)]
    outcome: Outcome
    message: Annotated[str, Field(max_length=4000)] | None = None


@frozen
class RunProgress:
    """A run's progress, the answer to a batch. `epoch` is that of the newest attempt; `new_steps` counts the steps that this request added.

    `covered` lists the training steps that have arrived; a gap is larger than the most common distance between logged steps.
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
    epoch: int
    planned_steps: int
    covered: Coverage
    new_steps: int = 0


@frozen
class RunRecord(RunProgress):
    """A run, its progress, and what its trainer said about itself: the facts of all attempts."""

    manifest: Mapping[str, str] | None


@frozen
class AttachedRun(RunRecord):
    """The run, and the token of the attempt, which may write this run until the attempt ends. It is returned only once."""

    token: str


@frozen
class RunLogDocument:
    """The logs of a run's attempts, newest first; empty for a run that has not begun, or with engine external."""

    run: str
    attempts: list[AttemptLog]


@router.get("/runs/{run_id}")
def show(run_id: str, context: InContext) -> RunRecord:
    """One run: its state, its newest attempt, and which of its steps have arrived."""
    with context.database.read() as session:
        return _answer(session, RunRecord, find_run(session, run_id))


@router.post("/runs/{run_id}:attach")
def attach(
    run_id: str,
    request: StrictBody[AttachRequest],
    response: Response,
    context: InContext,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key returns the same attempt until a newer one begins")
    ] = None,
) -> AttachedRun:
    """Begin an attempt of a run of engine external, for the job's owner. Send the returned `epoch` and `token` with every later request.

    Fences older attempts, whose tokens end. A repeated call with the same key returns the same attempt with a new token.
    """
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        run = external.attach(session, context.settings, run_id, request, idempotency_key)
        token = run_tokens.issue(session, run.id, run.epoch)
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
                        "description": "little-endian float64: all values of the first column in `names`, then all of the second, …",
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
    epoch: Annotated[int, Query(ge=1, le=LARGEST, description="the attempt's number, as returned by attach")],
    kind: Annotated[Kind, Query(description="kind of the records")] = "train",
    names: Annotated[str | None, Query(max_length=5000, description="columns of an octet-stream, comma-separated, `step` first")] = None,
) -> RunProgress:
    """Record a batch. Batches may arrive in any order and more than once; the response lists the missing steps.

    409 only if the attempt has ended, or if a step is already recorded with other numbers.
    """
    check_attempt(sender, epoch)
    binary = request.headers.get("Content-Type", "").partition(";")[0].strip().lower() == _BINARY
    batch = _from_bytes(body, names) if binary else _from_json(body)
    with context.database.write() as session:
        new = external.append(session, context.settings, run_id, epoch, kind, batch)
        return _answer(session, RunProgress, find_run(session, run_id), new_steps=new)


@router.post("/runs/{run_id}:finish")
def finish(run_id: str, request: StrictBody[FinishRequest], context: InContext, sender: Sender) -> RunRecord:
    """End the attempt. The job is judged soon after its last run has ended; its events say when. A repeated call changes nothing."""
    check_attempt(sender, request.epoch)
    with context.database.write() as session:
        run = external.finish(session, context.settings, run_id, request.epoch, request.outcome, request.message)
        answer = _answer(session, RunRecord, run)
    if answer.state in RUN_ENDED:
        context.judge.wake(answer.job)
    return answer


@router.get("/runs/{run_id}/log")
def log(
    run_id: str,
    context: InContext,
    lines: Annotated[int, Query(ge=1, le=2000, description="number of last lines of each attempt")] = 200,
) -> RunLogDocument:
    """The last lines that the trainer of each attempt printed, without tokens, passwords and keys."""
    with context.database.read() as session:
        run = find_run(session, run_id)
        attempts = [] if run.capability == "external" else attempt_documents(session, run.job)[run_id]
    return RunLogDocument(run=run_id, attempts=attempt_logs(context.settings.state_dir, run_id, attempts, lines))


@router.get("/runs/{run_id}/artifacts/{attempt}/{name:path}", response_class=FileResponse)
def run_artifact(run_id: str, attempt: Annotated[int, Path(ge=0, le=LARGEST)], name: str, context: InContext) -> FileResponse:
    """A file of an attempt, usually a trace, if the server shares its worker's state folder."""
    with context.database.read() as session:
        find_run(session, run_id)
    file = artifact(context.settings.state_dir, run_id, attempt, name)
    return FileResponse(file, filename=file.name, media_type="application/octet-stream")


_STEPS = TypeAdapter(StepsRequest)


def _from_json(body: bytes) -> Batch:
    try:
        request = _STEPS.validate_json(body)
    except ValidationError as error:
        raise refused(error) from error
    return Batch(
        steps=np.array(request.steps, np.int64),
        columns={name: np.array(values, np.float64) for name, values in request.columns.items()},
    )


def _from_bytes(body: bytes, names: str | None) -> Batch:
    columns = (names or "").split(",")
    if columns[0] != "step" or len(columns) < 2 or len(set(columns)) < len(columns):
        raise InvalidError(f"names is {names!r}, expected `step` and then different columns, comma-separated")
    for name in columns:
        if not re.fullmatch(NAME, name):
            raise InvalidError(f"names has {name!r:.80}, expected letters, digits and _ . / - only, at most 64")
    if len(columns) > _MAX_COLUMNS + 1:
        raise InvalidError(f"names has {len(columns)} columns, expected at most {_MAX_COLUMNS}")
    row = 8 * len(columns)
    if not body or len(body) % row or len(body) // row > _MAX_STEPS:
        raise InvalidError(f"the body has {len(body)} bytes, expected 1 to {_MAX_STEPS:,} times {row}: {len(columns)} columns of float64")
    table: NDArray[np.float64] = np.frombuffer(body, "<f8").astype(np.float64, copy=False).reshape(len(columns), -1)
    steps = table[0]
    if not ((steps >= 0) & (steps <= 2**53) & (np.floor(steps) == steps)).all():
        raise InvalidError(f"the first column holds steps, expected whole numbers from 0 to {2**53}")
    return Batch(steps=steps.astype(np.int64), columns=dict(zip(columns[1:], table[1:], strict=True)))


def _answer(session: Session, kind: type[T], run: Run, **more: object) -> T:
    """A run in one of the documents of its progress."""
    covered = external.covered(session, run)
    return of(kind, run, job=run.job_id, arm=run.arm.name, recipe=run.arm.recipe, covered=covered, **{"new_steps": 0, **more})
