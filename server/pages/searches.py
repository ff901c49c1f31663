"""The page of a search: the policies by speed against gap, the path of its steps, and what it guarantees."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from server.documents.search import search_document
from server.pages.figures.policies import chart
from server.pages.rendering import templates, visitor
from server.searches.record import find_search
from server.web.context import InContext

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])


@router.get("/searches/{search_id}")
def show(search_id: str, request: Request, context: InContext) -> Response:
    """A search."""
    with context.database.read() as session:
        document = search_document(find_search(session, search_id))
    values = {
        "search": document,
        "plan": document.plan,
        "ended": document.state != "running",
        "chart": chart(document),
    }
    return templates.TemplateResponse(request, "search.html", values)
