"""The figure of a verdict, drawn once and stored by the verdict's id.

A verdict never changes, but its drawing may, so the file name includes the version of the drawing
code. matplotlib's settings are global, so only one figure is drawn at a time. Who waits for that
holds neither a database connection nor curves, and so does not keep other requests from theirs.
"""

import os
import threading
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Response

from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.document import EVALUATION_SCHEMA
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.report.figures.evaluation_figure import draw_evaluation_figure
from parity.report.figures.verdict_figure import draw_figure
from parity.version import VERSION
from server.concurrency.turns import Turns
from server.database.lookups import find_job
from server.database.sessions import Database
from server.errors import NotFoundError
from server.jobs.judge_input import case_of
from server.jobs.verdict_rows import shown_documents
from server.settings import Settings
from server.web.context import InContext
from server.web.requests.entity_tags import ClientCopy

router = APIRouter(prefix="/api/v1", tags=["images"])
drawing = Turns("drawing figures")

_SVG = "image/svg+xml"
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {_SVG: {}}},
    304: {"description": "The client already has this version"},
}


@router.get("/jobs/{job_id}/verdict.svg", response_class=Response, responses=_PICTURE)
def verdict_figure(
    job_id: str,
    context: InContext,
    response: Response,
    candidate: Annotated[
        str | None, Query(max_length=64, description="candidate; default: the first")
    ] = None,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """The figure of a verdict: its first lines and the picture of its page. Drawn once, then
    stored.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        if job.verdicts:
            headers = ClientCopy(response, if_none_match).check(job, "figure", VERSION, candidate)
        else:
            headers = {}
    return Response(
        figure(context.settings, context.database, job_id, candidate),
        media_type=_SVG,
        headers=headers,
    )


def figure(settings: Settings, database: Database, job_id: str, candidate: str | None) -> bytes:
    """The figure of one candidate's verdict (default: the job's first), drawn if it was not before.
    Call it without a session.

    NotFoundError if there is no such verdict, UnavailableError if too many wait for theirs.
    """
    with database.read() as session:
        job = find_job(session, job_id)
        documents = {
            str(document["candidate"]["name"]): document
            for document in shown_documents(session, job)
        }
        name = candidate or next(iter(documents), None)
        if name is None or name not in documents:
            there = f"; it has verdicts of {', '.join(documents)}" if documents else ""
            raise NotFoundError(
                f"job {job.id} is {job.status} and has no "
                f"verdict{f' of {name!r}' if name else ''}{there}"
            )
        verdict = next(row for row in job.verdicts if row.candidate == name)
        path = settings.state_dir / "figures" / f"{verdict.id}-{VERSION}.svg"
    if not path.exists():
        with drawing.take():
            if not path.exists():  # another request has drawn it meanwhile
                _draw(database, job_id, documents[name], path)
    return path.read_bytes()


def _draw(database: Database, job_id: str, document: VerdictDocument, path: Path) -> None:
    case = None
    if document["schema"] != EVALUATION_SCHEMA:
        with database.read() as session:
            case = case_of(session, find_job(session, job_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    half_done = path.with_name(f"{os.getpid()}-{threading.get_ident()}-{path.name}")
    if case is None:
        draw_evaluation_figure(str(half_done), cast("EvaluationDocument", document))
    else:
        draw_figure(str(half_done), document, case)
    half_done.replace(path)
