"""The pages of named baselines: every version, and one with its runs, its noise, what was done to it and what differs from another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import select

from server import baselines
from server.baseline_documents import WHOLE, baseline_document, diff, parsed_version, summaries
from server.context import InContext
from server.database.models import Baseline, is_id
from server.errors import InvalidError, NotFoundError
from server.pages.rendering import templates, visitor

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
VERSIONS_SHOWN = 200


@router.get("/baselines")
def index(request: Request, context: InContext) -> Response:
    """Versions, promoted last first."""
    with context.database.read() as session:
        rows = session.scalars(select(Baseline).options(*WHOLE).order_by(Baseline.id.desc()).limit(VERSIONS_SHOWN)).all()
        found = summaries(session, rows)
    return templates.TemplateResponse(request, "baselines.html", {"baselines": found, "shown": VERSIONS_SHOWN})


@router.get("/baselines/{name}/{version}")
def show(name: str, version: int, request: Request, context: InContext, other: Annotated[str, Query(max_length=100)] = "") -> Response:
    """One version, and what differs from another or from a job where that is asked."""
    asked, difference, problem = other.strip(), None, None
    with context.database.read() as session:
        row = baselines.find(session, name, version)
        document = baseline_document(session, row, context.settings.lease_seconds)
        try:
            if asked:
                difference = diff(session, row, asked if is_id("j", asked) else baselines.find(session, *parsed_version(asked)))
        except (NotFoundError, InvalidError) as error:
            problem = error.detail
    values = {"baseline": document, "asked": asked, "difference": difference, "problem": problem}
    return templates.TemplateResponse(request, "baseline.html", values)
