"""The page of a golden: its newest version, and the history of its name."""

from fastapi import Request, Response

from server.documents.goldens import golden_document
from server.jobs import goldens
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()


@router.get("/goldens/{golden}")
def show(golden: str, request: Request, context: InContext) -> Response:
    """The newest version of a golden."""
    with context.database.read() as session:
        document = golden_document(session, goldens.find(session, golden))
    return templates.TemplateResponse(request, "golden.html", {"golden": document})
