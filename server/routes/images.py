"""Images for reports: a verdict as SVG, PNG or PDF, and the badge for shields.io."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from parity.version import VERSION
from server.database.lookup import find_job
from server.documents.images import Badge, Kind, badge, drawn, figure
from server.web.context import InContext
from server.web.etags import ClientCopy

router = APIRouter(prefix="/api/v1", tags=["images"])
_TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in _TYPES.values()}},
    304: {"description": "The client already has this version"},
}

Named = Annotated[str, Path(max_length=200, description="a job's id, or a job name, which selects the newest concluded job of that name")]


@router.get("/jobs/{job_id}/verdict.{kind}", response_class=Response, responses=_PICTURE)
def verdict_figure(
    job_id: str,
    kind: Kind,
    context: InContext,
    response: Response,
    candidate: Annotated[str | None, Query(max_length=64, description="candidate; default: the first")] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """The one-page figure of a verdict: losses, gap with its band and the margin, noise. Drawn once, then stored."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        headers = ClientCopy(response, if_none_match).check(job, "figure", VERSION, kind, candidate) if job.verdicts else {}
        wanted = figure(context.settings, job, candidate, kind)
    return Response(drawn(context.database, wanted), media_type=_TYPES[kind], headers=headers)


@router.get("/badges/{named:path}.json")
def badge_endpoint(named: Named, context: InContext) -> Badge:
    """The worst verdict of a job, for shields.io's endpoint badge."""
    with context.database.read() as session:
        return badge(session, named)
