"""Named baselines over REST: list, read, promote, attach controls, expire, compare."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from sqlalchemy import select

from parity.frozen import frozen
from server.database.tables import Baseline, is_id
from server.documents.baselines import (
    WHOLE,
    BaselineDiff,
    BaselineDocument,
    BaselineSummary,
    baseline_document,
    diff,
    parsed_version,
    summaries,
)
from server.jobs import baselines
from server.records import Body
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody
from server.web.requests.cursors import cursor_of, row_id_of

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
