"""The page of a healing: its answer, the final gap over the step of the switch, and what each look
says.
"""

from dataclasses import asdict

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from parity_lab.healing_lines import NO_VERDICT_YET, lead, remarks
from parity_lab.server.healing_chart import HEIGHT, WIDTH, healing_chart
from parity_lab.server.healing_documents import healing_document
from server.database.states import JOB_ENDED
from server.pages.rendering import templates, visitor
from server.web.context import InContext

healing_pages = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])


@healing_pages.get("/jobs/{job_id}/heal")
def healing_page(job_id: str, request: Request, context: InContext) -> Response:
    """A healing by its own job, or the newest one of a job's candidates."""
    with context.database.read() as session:
        document = healing_document(session, job_id)
    if document.job != job_id:
        return RedirectResponse(f"/jobs/{document.job}/heal", 303)
    written = asdict(document)
    plan, answer = written["plan"], written["answer"]
    values = {
        "healing": document,
        "plan": plan,
        "answer": answer,
        "ended": document.status in JOB_ENDED,
        "headline": _headline(lead(plan, answer), (plan["candidate"], plan["recipe"])),
        "remarks": [*remarks(written)],
        "no_verdict": NO_VERDICT_YET,
        "chart": healing_chart(plan, answer),
        "width": WIDTH,
        "height": HEIGHT,
    }
    return templates.TemplateResponse(request, "heal.html", values)


def _headline(text: str, names: tuple[str, ...]) -> str:
    """The text as a sentence; a name at its beginning keeps its case."""
    return text if text.startswith(names) else text[0].upper() + text[1:]
