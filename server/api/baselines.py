"""Named baselines over REST, and reruns as tables: those on record by family, and those that were
imported.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import rounding_of
from parity.judging.curves.window import plan_window
from parity.judging.noise.noise_table import MAX_BYTES, MAX_NAME
from parity.judging.noise.run_floor import prior_for, run_floor
from parity.judging.policy import NVFP4, Policy
from server.api.lists import principal_names
from server.api.runs import seconds_since
from server.curves import loading
from server.database.clock import time_text
from server.database.lookups import find_job
from server.database.tables import (
    Baseline,
    BaselineEventKind,
    BaselineRole,
    BaselineRun,
    Run,
    is_id,
)
from server.errors import InvalidError
from server.jobs import baselines
from server.jobs.fingerprint import (
    Difference,
    manifest_differences,
    run_spec,
    spec_differences,
    spec_facts,
)
from server.jobs.imported_noise import Import, import_noise_table, imported_noise_tables
from server.jobs.noise_tables import noise_table_on_record
from server.jobs.workers import changed, live_workers
from server.records import Body, of
from server.web.auth import InContext, Sender
from server.web.requests import BodyRoute, StrictBody, cursor_of, row_id_of

# Named baselines as the API and the pages show them, with their types for OpenAPI.

_JOBS_NAMED = 20
# Load options for a list of versions: three queries for all of them.
WHOLE = (selectinload(Baseline.runs).selectinload(BaselineRun.run), selectinload(Baseline.events))


@frozen
class BaselineSummary:
    """A version of a baseline in a list; `newest` marks the version that a job uses if it names
    none.
    """

    name: str
    version: int
    newest: bool
    recipe: str
    engine: str
    job: str
    runs: int
    controls: int
    promoted_at: str | None
    promoted_by: str
    reason: str
    expires_at: str | None
    expired: bool


@frozen
class BaselineRunDocument:
    """A run of a baseline: a member, whose curve jobs reuse, or a control, a rerun of it. Its age
    counts from its training.
    """

    run: str
    job: str
    role: BaselineRole
    seed: int
    replicate: int
    fingerprint: str | None
    trained_at: str | None
    age_seconds: float | None


@frozen
class RunNoise:
    """How much reruns of a baseline differ: tau in nats and as a share of the loss, as the judge
    uses it in a job with this baseline.

    `measured` (nats) is None if there is only one run; tau is then the prior.
    """

    tau_nats: float
    tau_rel: float
    df: float
    source: Literal["prior", "controls"]
    measured: float | None
    measured_df: int
    prior_nats: float


@frozen
class AuditEntry:
    """A change to a baseline: what, by whom and why."""

    at: str | None
    who: str
    kind: BaselineEventKind
    reason: str
    detail: str


@frozen
class BaselineDocument(BaselineSummary):
    """A version of a baseline: its specification, manifest and runs, its history, and the newest
    jobs that name it.

    `workers` has a sentence for each live worker whose trainer now differs from the baseline's.
    """

    spec: Mapping[str, str]
    manifest: Mapping[str, str]
    members: list[BaselineRunDocument]
    noise: RunNoise | None
    audit: list[AuditEntry]
    named_by: list[str]
    workers: list[str]


@frozen
class BaselineDiff:
    """Differences between a version and another version or a job's baseline arm. `told` is false if
    no run of the job has begun.
    """

    baseline: str
    other: str
    specification: list[Difference]
    environment: list[Difference]
    told: bool


def summaries(session: Session, rows: Sequence[Baseline]) -> list[BaselineSummary]:
    """A summary of each version."""
    highest = (
        select(Baseline.name, func.max(Baseline.version))
        .where(Baseline.name.in_({row.name for row in rows}))
        .group_by(Baseline.name)
    )
    newest = {row[0]: row[1] for row in session.execute(highest)}
    names = principal_names(session, {row.events[0].who for row in rows})
    return [
        of(BaselineSummary, row, **_summary(row, names), newest=newest[row.name] == row.version)
        for row in rows
    ]


def baseline_document(session: Session, row: Baseline, lease_seconds: float) -> BaselineDocument:
    """Everything about a version; reads its curves for the run-to-run noise."""
    names, members = (
        principal_names(session, {event.who for event in row.events}),
        baselines.members(row),
    )
    first = members[0]
    alike = [
        worker
        for worker in live_workers(session, lease_seconds)
        if worker.capability == first.capability != "external"
    ]
    return of(
        BaselineDocument,
        row,
        **_summary(row, names),
        newest=baselines.find(session, row.name).version == row.version,
        spec=spec_facts(run_spec(first)),
        manifest=first.manifest or {},
        members=[
            _run(link)
            for link in sorted(
                row.runs, key=lambda link: (link.role != "member", link.run.replicate, link.run_id)
            )
        ],
        noise=_noise(session, row),
        audit=[
            of(
                AuditEntry,
                event,
                at=time_text(event.created_at),
                who=names.get(event.who, event.who),
            )
            for event in row.events
        ],
        named_by=[job.id for job in baselines.used_by(session, row, _JOBS_NAMED)],
        workers=[reason for worker in alike if (reason := changed(worker, first.manifest or {}))],
    )


def diff(session: Session, row: Baseline, other: Baseline | str) -> BaselineDiff:
    """Differences between a version and another version or a job (by id)."""
    ours = baselines.members(row)[0]
    if isinstance(other, Baseline):
        run, called = baselines.members(other)[0], baselines.called(other)
        manifest = run.manifest
    else:
        arm = find_job(session, other).arms[0]
        run, called = arm.runs[0], f"job {other}"
        manifest = next((begun.manifest for begun in arm.job.runs if begun.manifest), None)
    return BaselineDiff(
        baseline=baselines.called(row),
        other=called,
        specification=spec_differences(run_spec(ours), run_spec(run), but=("replicate",)),
        environment=[] if manifest is None else manifest_differences(ours.manifest or {}, manifest),
        told=manifest is not None,
    )


def parsed_version(text: str) -> tuple[str, int | None]:
    """`name` or `name@3`."""
    name, mark, number = text.partition("@")
    if mark and not (number.isdecimal() and int(number)):
        raise InvalidError(f"{text!r:.100} is not a baseline version, expected NAME or NAME@NUMBER")
    return name, int(number) if mark else None


def _summary(row: Baseline, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a summary that the row does not have itself."""
    promoted, members = row.events[0], baselines.members(row)
    return {
        "job": members[0].job_id,
        "runs": len(members),
        "controls": len(row.runs) - len(members),
        "promoted_at": time_text(row.created_at),
        "promoted_by": names.get(promoted.who, promoted.who),
        "reason": promoted.reason,
        "expired": baselines.is_expired(row),
    }


def _run(link: BaselineRun) -> BaselineRunDocument:
    run: Run = link.run
    trained_at, age = time_text(run.finished_at), seconds_since(run.finished_at)
    return of(
        BaselineRunDocument,
        run,
        run=run.id,
        job=run.job_id,
        role=link.role,
        trained_at=trained_at,
        age_seconds=age,
    )


def _noise(session: Session, row: Baseline) -> RunNoise | None:
    """The judge's run-to-run noise for one run of the version, with all other runs as its
    controls.
    """
    policy = Policy(profile=NVFP4)
    runs, _ = independent_runs([loading.losses(session, link.run) for link in row.runs])
    window = plan_window(runs, row.runs[0].run.planned_steps, False, policy.window_fraction)
    together = align(runs, runs[:1], window.last)
    part = window.part(together.steps)
    if part.start >= part.stop:
        return None
    means = together.baseline[:, part].mean(axis=1)
    level = float(means.mean())
    floor = run_floor(
        prior_for(row.recipe, None, policy, level, rounding_of(run.rounding for run in runs)),
        means,
        [0] * len(means),
        np.empty(0),
    )
    return of(
        RunNoise,
        floor,
        tau_nats=floor.tau,
        tau_rel=floor.tau / level,
        source="controls" if floor.measured_df else "prior",
        prior_nats=floor.prior.tau,
    )


# Named baselines over REST: list, read, promote, attach controls, expire, compare.

router = APIRouter(prefix="/api/v1", tags=["baselines"], route_class=BodyRoute)

_Name = Annotated[str, Path(max_length=64, description="name of the baseline")]
_Version = Annotated[int, Path(ge=1, le=2**31, description="its version")]
_OTHER = baselines.NAME.removesuffix("$") + r"(@[1-9][0-9]{0,8})?$"
_Reason = Annotated[str, Field(min_length=1, max_length=1000)]


@frozen
class PromoteRequest(Body):
    """A finished arm of a job (default: its baseline) that becomes the next version of a name, and
    the reason.

    After `days` jobs can no longer name it; without `days` it does not expire.
    """

    name: Annotated[str, Field(pattern=baselines.NAME)]
    job: str
    reason: _Reason
    arm: str | None = None
    days: Annotated[float, Field(gt=0, le=3650)] | None = None


@frozen
class ControlsRequest(Body):
    """A rerun of a baseline, or a job with reruns, and the reason for attaching it."""

    runs_of: Annotated[str, Field(pattern=r"^[jr][0-9a-f]{12,}-[0-9a-f]{10}$")]
    reason: _Reason


@frozen
class ExpireRequest(Body):
    """The reason for expiring a version."""

    reason: _Reason


@frozen
class BaselinePage:
    """A page of versions, newest promotion first; `next_cursor` is null on the last page."""

    items: list[BaselineSummary]
    next_cursor: str | None


@router.get("/baselines")
def index(
    context: InContext,
    name: Annotated[
        str | None, Query(max_length=64, description="only versions of this name")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="versions per page")] = 50,
) -> BaselinePage:
    """Versions of baselines, newest promotion first, including expired ones."""
    statement = select(Baseline).options(*WHOLE).order_by(Baseline.id.desc()).limit(limit + 1)
    if name:
        statement = statement.where(Baseline.name == name)
    if cursor:
        statement = statement.where(Baseline.id < row_id_of(cursor, "b"))
    with context.database.read() as session:
        rows = session.scalars(statement).all()
        more = cursor_of(rows[limit - 1].id) if len(rows) > limit else None
        return BaselinePage(items=summaries(session, rows[:limit]), next_cursor=more)


@router.post("/baselines", status_code=201)
def promote(
    request: StrictBody[PromoteRequest], response: Response, context: InContext, who: Sender
) -> BaselineDocument:
    """Promote the finished runs of an arm to an immutable version. 409 if one of them failed,
    diverged or is incomplete.

    The next version of a name takes the owner of its newest one, or scope approve; so do the
    controls and the expiry of a version.
    """
    with context.database.write() as session:
        row = baselines.promote(
            session,
            request.name,
            request.job,
            request.arm,
            request.reason,
            who.id,
            request.days,
            overrules=who.may("approve"),
        )
        name, version = row.name, row.version
    response.headers["Location"] = f"/api/v1/baselines/{name}/versions/{version}"
    return _document(context, name, version)


@router.get("/baselines/{name}")
def newest(name: _Name, context: InContext) -> BaselineDocument:
    """The newest version of a name."""
    return _document(context, name, None)


# an int here, or it would also match VERSION:expire
@router.get("/baselines/{name}/versions/{version:int}")
def show(name: _Name, version: _Version, context: InContext) -> BaselineDocument:
    """One version: runs, specification, manifest, run-to-run noise, audit trail."""
    return _document(context, name, version)


@router.post("/baselines/{name}/versions/{version}/controls")
def attach_controls(
    name: _Name,
    version: _Version,
    request: StrictBody[ControlsRequest],
    context: InContext,
    who: Sender,
) -> BaselineDocument:
    """Attach reruns. In later jobs that name the version, the run-to-run noise is measured with
    them. 409 if none is a rerun.
    """
    with context.database.write() as session:
        row = baselines.find(session, name, version)
        baselines.attach_controls(
            session, row, request.runs_of, request.reason, who.id, overrules=who.may("approve")
        )
    return _document(context, name, version)


@router.post("/baselines/{name}/versions/{version}:expire")
def expire(
    name: _Name,
    version: _Version,
    request: StrictBody[ExpireRequest],
    context: InContext,
    who: Sender,
) -> BaselineDocument:
    """Expire a version now. Earlier verdicts do not change; expiring twice changes nothing."""
    with context.database.write() as session:
        baselines.expire(
            session,
            baselines.find(session, name, version),
            request.reason,
            who.id,
            overrules=who.may("approve"),
        )
    return _document(context, name, version)


@router.get("/baselines/{name}/versions/{version}/diff")
def compare(
    name: _Name,
    version: _Version,
    context: InContext,
    other: Annotated[
        str,
        Query(
            max_length=100, pattern=_OTHER, description="`NAME`, `NAME@VERSION`, or the id of a job"
        ),
    ],
) -> BaselineDiff:
    """Differences between a version and another version or a job's baseline arm: specification and
    environment.
    """
    with context.database.read() as session:
        ours = baselines.find(session, name, version)
        return diff(
            session,
            ours,
            other if is_id("j", other) else baselines.find(session, *parsed_version(other)),
        )


def _document(context: InContext, name: str, version: int | None) -> BaselineDocument:
    with context.database.read() as session:
        return baseline_document(
            session, baselines.find(session, name, version), context.settings.lease_seconds
        )


# Reruns as tables: those on record, by family, and those that were imported; both as `parity
# compare --noise-table` reads them.

noise_tables_router = APIRouter(prefix="/api/v1", tags=["noise tables"], route_class=BodyRoute)


@frozen
class ImportRequest(Body):
    """A noise table (CSV), and the one family of it that is imported; null: all."""

    table: Annotated[str, Field(max_length=MAX_BYTES)]
    family: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None


@noise_tables_router.get(
    "/noise-tables",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def table(
    context: InContext,
    of: Annotated[
        Literal["record", "imported"],
        Query(description="reruns of this server's jobs, or those that were imported"),
    ] = "record",
) -> Response:
    """The groups of reruns on record, or those imported (CSV): family, runs, mean loss and its
    standard deviation over runs, rounding.
    """
    with context.database.read() as session:
        text = (
            noise_table_on_record(session) if of == "record" else imported_noise_tables(session)
        ).csv()
    return Response(text, media_type="text/csv")


@noise_tables_router.post("/noise-tables", status_code=201)
def import_table(request: StrictBody[ImportRequest], context: InContext, who: Sender) -> Import:
    """Import a noise table, for jobs that name one of its families. All or nothing; the same groups
    twice change nothing.

    422 or 409 if a row is not usable, a family would lend nothing, or a name belongs to a public
    family or to one on record.
    """
    with context.database.write() as session:
        return import_noise_table(session, request.table, request.family, who.id)
