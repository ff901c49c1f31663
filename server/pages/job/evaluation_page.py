"""The page of a job of engine evaluations: its answer with its picture, then what was sent."""

from collections.abc import Mapping, Sequence
from html import escape

from fastapi import Request, Response
from markupsafe import Markup

from parity.report.candidates import safest_first
from parity.report.html.page_details import (
    code_row,
    curves_row,
    numbers_row,
    reasons_row,
    table_html,
)
from parity.report.html.screen import DetailsRow
from parity.report.picture.scene import Dots, scene_of
from parity.report.view import EvaluationView, views_of
from parity.wording import count
from server.database.lookups import find_job
from server.documents.jobs import JobDocument, job_document
from server.jobs.cost import price_of
from server.pages.job import forms
from server.pages.job.buttons import Actions, buttons_of
from server.pages.job.first_screen import LiveCurves, first_screen
from server.pages.rendering import templates
from server.web.context import Context

_LOSS_DIGITS = 5
_SENT = ("arm", "run", "last point", "loss where compared, nats", "cluster")


def evaluation_page(
    request: Request, context: Context, job_id: str, candidate: str = ""
) -> Response:
    """The page; `candidate` is the one that the picture highlights."""
    with context.database.read() as session:
        document = job_document(
            session,
            find_job(session, job_id),
            context.settings.lease_seconds,
            price_of(context.settings),
        )
    drawn: Mapping[str, Dots] | LiveCurves = {} if document.verdicts else LiveCurves(paths={})
    buttons = buttons_of(document, Actions())
    values = {
        "job": document,
        "screen": first_screen(document, drawn, candidate, (), buttons),
        "rows": [
            row._replace(answer=Markup(row.answer), body=Markup(row.body))  # noqa: S704
            for row in _rows(document)
        ],
        "verdicts": {
            verdict["candidate"]["name"]: verdict["verdict"] for verdict in document.verdicts
        },
        **forms.values(request, context, document),
    }
    return templates.TemplateResponse(request, "evaluations.html", values)


def _rows(job: JobDocument) -> list[DetailsRow]:
    """What the details of a judged job hold."""
    views = safest_first(views_of(job.verdicts))
    if not views:
        return []
    return [
        reasons_row(views, ""),
        numbers_row(views, job.name),
        *curves_row(scene_of(job.verdicts)),  # type: ignore[arg-type]
        _sent_row([view for view in views if isinstance(view, EvaluationView)]),
        code_row("p", "Policy", "margin, confidence and checks of this job", job.policy),
    ]


def _sent_row(views: Sequence[EvaluationView]) -> DetailsRow:
    """Every run that was sent and counts, the baseline's first."""
    arms = [views[0].document["baseline"], *(view.document["candidate"] for view in views)]
    rows = [
        (
            arm["name"],
            run["label"],
            f"{run['last_step']:,}",
            "" if run["loss"] is None else f"{run['loss']:.{_LOSS_DIGITS}f}",
            run["cluster"] or "",
        )
        for arm in arms
        for run in arm["runs"]
    ]
    body = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Losses sent">'
        f"{table_html([_SENT, *rows])}</div>"
    )
    answer = f"{count(len(rows), 'run')} of {count(len(arms), 'arm')}, held-out losses as sent"
    return DetailsRow("l", "Losses sent", escape(answer), body)
