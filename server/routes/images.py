"""Images for reports: the figure of a verdict, and the badge for shields.io."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from parity.version import VERSION
from server.database.lookup import find_job
from server.documents.images import Badge, badge, figure
from server.web.context import InContext
from server.web.etags import ClientCopy

router = APIRouter(prefix="/api/v1", tags=["images"])
_SVG = "image/svg+xml"
_PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {_SVG: {}}}, 304: {"description": "The client already has this version"}}

Named = Annotated[str, Path(max_length=200, description="a job's id, or a job name, which selects the newest concluded job of that name")]


@router.get("/jobs/{job_id}/verdict.svg", response_class=Response, responses=_PICTURE)
def verdict_figure(
    job_id: str,
    context: InContext,
    response: Response,
    candidate: Annotated[str | None, Query(max_length=64, description="candidate; default: the first")] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """The one-page figure of a verdict: losses, gap with its band and the margin, noise. Drawn once, then stored."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        headers = ClientCopy(response, if_none_match).check(job, "figure", VERSION, candidate) if job.verdicts else {}
    return Response(figure(context.settings, context.database, job_id, candidate), media_type=_SVG, headers=headers)


@router.get("/badges/{named:path}.json")
def badge_endpoint(named: Named, context: InContext) -> Badge:
    """The worst verdict of a job, for shields.io's endpoint badge."""
    with context.database.read() as session:
        return badge(session, named)
