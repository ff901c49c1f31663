"""Runs over REST: the state of one, and the requests of an external trainer: attach, steps,
finish.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import Field, TypeAdapter
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.api.step_bodies import (
    LayersSchema,
    StepsSchema,
    binary_batch,
    json_batch,
    layers_batch,
)
from server.database import run_tokens
from server.database.lookups import find_run
from server.database.metrics.coverage import Coverage
from server.database.states import RUN_ENDED
from server.database.tables import Run, RunState
from server.jobs import external, projects
from server.jobs.external import AttachRequest, Kind, Outcome
from server.jobs.pinned_gates import check_rounding
from server.jobs.projects import RunRequest
from server.records import Body, from_attributes
from server.web.access.authorization import Sender, check_attempt
from server.web.context import InContext
from server.web.limits import LARGEST
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["runs"], route_class=BodyRoute)

_BINARY = "application/octet-stream"
T = TypeVar("T", bound="RunProgressDocument")


@frozen
class FinishRequest(Body):
    """How a trainer ended. `broke_off` leaves the run open for the next attach; after `finished`
    and `failed` it has ended.
    """

    attempt: Annotated[int, Field(ge=1, le=LARGEST)]
    outcome: Outcome
    message: Annotated[str, Field(max_length=4000)] | None = None


@frozen
class RunProgressDocument:
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
class RunRecord(RunProgressDocument):
    """A run, its progress, and what its trainer said about itself: the facts of all attempts."""

    manifest: Mapping[str, str] | None


@frozen
class RunOfProject(RunRecord):
    """The run of a project's arm, and the project's baseline. `after` is the ended job of that
    project, if this run began another one.
    """

    baseline: str
    after: str | None


@frozen
class AttachedRun(RunRecord):
    """The run, and the token of the attempt, which may write this run until the attempt ends. It is
    returned only once.
    """

    token: str


@router.get("/runs/{run_id}")
def show(run_id: str, context: InContext) -> RunRecord:
    """One run: its state, its newest attempt, and which of its steps have arrived."""
    with context.database.read() as session:
        return _answer(session, RunRecord, find_run(session, run_id))


@router.post(
    "/runs",
    status_code=201,
    responses={200: {"model": RunOfProject, "description": "a run that goes on"}},
)
def of_project(
    request: StrictBody[RunRequest],
    response: Response,
    context: InContext,
    sender: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key returns the same run")
    ] = None,
) -> RunOfProject:
    """The run of a project's arm for a trainer without a job file: project, arm and run are made
    where they are not there yet.

    A project belongs to who made it. Attach to the run next. Its job is judged when its owner
    concludes it (`:conclude`); a later run begins another job, and is refused where it does not
    name the baseline.
    """
    with context.database.write() as session:
        of_project = projects.run_of(session, context.settings, request, sender.id, idempotency_key)
        answer = _answer(
            session,
            RunOfProject,
            of_project.run,
            baseline=of_project.run.job.arms[0].name,
            after=of_project.after,
        )
    response.status_code = 201 if of_project.is_new else 200
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
) -> RunProgressDocument:
    """Record a batch. Batches may arrive in any order and more than once; the response lists the
    missing steps.

    Steps up to a quarter above the plan are recorded, so that a verdict can name them; later ones
    are counted and left out.

    409 only if the attempt has ended, or if a step is already recorded with other numbers.
    """
    check_attempt(sender, attempt)
    binary = request.headers.get("Content-Type", "").partition(";")[0].strip().lower() == _BINARY
    batch = binary_batch(body, names) if binary else json_batch(body)
    with context.database.write() as session:
        new, left_out = external.append(session, context.settings, run_id, attempt, kind, batch)
        return _answer(
            session,
            RunProgressDocument,
            find_run(session, run_id),
            new_steps=new,
            left_out_steps=left_out,
        )


@router.post(
    "/runs/{run_id}/layers",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": TypeAdapter(LayersSchema).json_schema()},
            },
        }
    },
)
def append_layers(
    run_id: str,
    context: InContext,
    sender: Sender,
    body: Annotated[bytes, Depends(_body)],
    attempt: Annotated[
        int, Query(ge=1, le=LARGEST, description="the attempt's number, as returned by attach")
    ],
) -> RunProgressDocument:
    """Record statistics by layer of some steps, before the run ends; the job's page shows them, and
    the advice after a fail names layers by them. A step is sent with all its columns.

    409 only if the attempt has ended, or if a step is already recorded with other numbers.
    """
    check_attempt(sender, attempt)
    batch = layers_batch(body)
    with context.database.write() as session:
        new = external.append_layers(session, context.settings, run_id, attempt, batch)
        return _answer(session, RunProgressDocument, find_run(session, run_id), new_steps=new)


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


def _answer(session: Session, kind: type[T], run: Run, **more: object) -> T:
    """A run in one of the documents of its progress."""
    covered = external.covered(session, run)
    about = {
        "job": run.job_id,
        "arm": run.arm.name,
        "recipe": run.arm.recipe,
        "attempt": run.attempt_number,
    }
    return from_attributes(
        kind, run, **about, covered=covered, **{"new_steps": 0, "left_out_steps": 0, **more}
    )
