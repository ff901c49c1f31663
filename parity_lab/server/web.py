"""Analyses in the web application: routes, pages and their figures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity_lab.analysis import label
from parity_lab.answer import IF_NONE_IS_NAMED, IF_NOT_IN_PRECISION, IF_NOT_REPLAYED, assumed_words
from parity_lab.server.analyses import (
    AblationsDocument,
    AnalysisDocument,
    AnalysisPlan,
    WhyRequest,
    ablations_document,
    analysis_document,
    plan_analysis,
    plan_document,
    submit_analysis,
)
from parity_lab.server.tables import Analysis
from server.api.curves import pair_of
from server.api.jobs import ring
from server.database.sessions import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.jobs.submission_limits import check_queue
from server.pages.rendering import templates, visitor
from server.web.auth import Additions, InContext, Sender
from server.web.requests import BodyRoute, StrictBody
from training.overrides import GEMMS

# A waterfall of parts with intervals: where each row's bar stands, in units of its SVG's view box.

WATERFALL_WIDTH = 320.0
# nats: differences that the numbers next to the figure do not show have no length in it either
_LEAST_AXIS = 0.001


@frozen
class Bar:
    """A row of a waterfall: its value and interval in nats, and where the bar, its interval and
    zero lie, from 0 to WIDTH.
    """

    name: str
    kind: str
    value: float
    low: float
    high: float
    zero: float
    begin: float
    end: float
    low_at: float
    high_at: float


def bars(rows: Sequence[tuple[str, str, Mapping[str, float]]]) -> list[Bar]:
    """Rows on one axis; a part begins where the part before it ended."""
    begin, placed = 0.0, []
    for name, kind, own in rows:
        start = 0.0 if kind == "whole" else begin
        placed.append((name, kind, own, start))
        begin = 0.0 if kind == "whole" else start + own["value"]
    ends = [start + own[key] for *_, own, start in placed for key in ("value", "low", "high")]
    least, most = min(0.0, *ends), max(0.0, *ends)
    scale = (WATERFALL_WIDTH - 8) / max(most - least, _LEAST_AXIS)

    def at(value: float) -> float:
        return round(4 + (value - least) * scale, 1)

    return [
        Bar(
            name=name,
            kind=kind,
            value=own["value"],
            low=own["low"],
            high=own["high"],
            zero=at(0.0),
            begin=at(start),
            end=at(start + own["value"]),
            low_at=at(start + own["low"]),
            high_at=at(start + own["high"]),
        )
        for name, kind, own, start in placed
    ]


# The page of an analysis: the effect at the checkpoint in parts with intervals, and a heat map of
# layer x GEMM; and of ablation runs.

pages = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
LEVELS = 8
_UNITS_SHOWN = 6


@frozen
class Cell:
    """One GEMM of a layer: the error of the gradient that it causes alone, and its part of the
    forward loss; None if it is no GEMM.

    The levels are 0 to LEVELS, from none to the largest of the map; the forward level is negative
    for a GEMM that helps.
    """

    unit: str
    error: Mapping[str, float] | None
    error_level: int
    forward: Mapping[str, float] | None
    forward_level: int
    named: bool


@pages.get("/jobs/{job_id}/why")
def analysis_page(job_id: str, request: Request, context: InContext) -> Response:
    """An analysis by its own job, or the newest one of an explained job."""
    with context.database.read() as session:
        document = analysis_document(session, job_id)
    if document.job != job_id:
        return RedirectResponse(f"/jobs/{document.job}/why", 303)
    answer = document.answer or {}
    values = {
        "analysis": document,
        "plan": document.plan,
        "answer": answer,
        "ended": document.status in JOB_ENDED,
        "width": WATERFALL_WIDTH,
        "levels": range(LEVELS + 1),
        "label": label,
        "if_none_is_named": IF_NONE_IS_NAMED,
        "if_not_in_precision": IF_NOT_IN_PRECISION,
        "if_not_replayed": IF_NOT_REPLAYED,
        "forks": fork_bars(document),
        "forward": forward_bars(answer),
        "layers": layers(document),
        "gemms": GEMMS,
    }
    return templates.TemplateResponse(request, "why.html", values)


@pages.get("/jobs/{job_id}/why/ablations")
def ablations_page(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: str | None = None,
    ablation: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """The gap of a candidate in parts, by other candidates of the job; without a name, its first
    candidate.
    """
    with context.database.read() as session:
        _, first = pair_of(find_job(session, job_id), None)
        document = ablations_document(session, job_id, candidate or first.name, ablation or ())
    values = {
        "own": document,
        "bars": ablation_bars(document),
        "assumed": assumed_words(document.assumed),
        "width": WATERFALL_WIDTH,
    }
    return templates.TemplateResponse(request, "ablations.html", values)


def ablation_bars(document: AblationsDocument) -> list[Bar]:
    """The gap, its parts in order, and what they leave unexplained."""
    parts = [(f"left out in {each.name}", "part", asdict(each.part)) for each in document.parts]
    return bars(
        [
            ("gap", "whole", asdict(document.whole)),
            *parts,
            ("unexplained", "rest", asdict(document.unexplained)),
        ]
    )


def fork_bars(document: AnalysisDocument) -> list[Bar]:
    """The gap of the full runs, the effect at the checkpoint, its named parts, their interaction
    and what is unexplained.
    """
    answer, gap = document.answer, document.plan.gap
    if answer is None or answer["effect"] is None:
        return []
    rows: list[tuple[str, str, Mapping[str, float]]] = []
    if gap.gap is not None and gap.low is not None and gap.high is not None:
        rows.append(
            ("gap of the full runs", "whole", {"value": gap.gap, "low": gap.low, "high": gap.high})
        )
    rows.append((f"effect at step {document.plan.fork_step:,}", "whole", answer["effect"]))
    if answer["named"]:
        rows += [(label(each["gemms"]), "part", each["without"]) for each in answer["named"]]
        # an answer of an earlier version has no interaction
        for name in ("interaction", "unexplained"):
            if answer.get(name):
                rows.append((name, "rest", answer[name]))
    return bars(rows)


def forward_bars(answer: Mapping[str, Any]) -> list[Bar]:
    """The forward loss, its largest parts, the other GEMMs together, and what single GEMMs leave
    unexplained.
    """
    instant = answer.get("instant")
    if instant is None:
        return []
    units = sorted(instant["gemms"], key=lambda part: -abs(part["without"]["value"]))
    shown = [part for part in units[:_UNITS_SHOWN] if part["without"]["value"]]
    rest = sum(part["without"]["value"] for part in units[_UNITS_SHOWN:])
    rows = [
        ("forward loss", "whole", instant["whole"]),
        *((part["name"], "part", part["without"]) for part in shown),
    ]
    if rest:
        rows.append(
            (
                f"{len(units) - _UNITS_SHOWN} other GEMMs",
                "part",
                {"value": rest, "low": rest, "high": rest},
            )
        )
    return bars([*rows, ("unexplained", "rest", instant["unexplained_without"])])


def layers(document: AnalysisDocument) -> list[tuple[str, list[Cell | None]]]:
    """The rows of the heat map: a layer (`block.projection`) and a cell for each GEMM, None where
    it is no GEMM.
    """
    answer = document.answer or {}
    errors = {each["name"]: each["error"] for each in answer.get("gradients") or ()}
    forward = {
        part["name"]: part["without"] for part in (answer.get("instant") or {"gemms": ()})["gemms"]
    }
    if not errors and not forward:
        return []
    named = {unit for each in answer.get("named", ()) for unit in each["gemms"]}
    units = set(document.plan.gemms)
    most_error = max((errors[unit]["value"] for unit in units if unit in errors), default=0.0)
    most_forward = max((abs(each["value"]) for each in forward.values()), default=0.0)

    def cell(unit: str) -> Cell | None:
        if unit not in units:
            return None
        error, part = errors.get(unit), forward.get(unit)
        return Cell(
            unit=unit,
            error=error,
            error_level=_level(error["value"], most_error) if error else 0,
            forward=part,
            forward_level=_level(part["value"], most_forward) if part else 0,
            named=unit in named,
        )

    names = sorted({unit.rsplit(".", 1)[0] for unit in units}, key=_place)
    return [(name, [cell(f"{name}.{gemm}") for gemm in GEMMS]) for name in names]


def _level(value: float, most: float) -> int:
    if not most:
        return 0
    return round(LEVELS * value / most)


def _place(layer: str) -> tuple[int, str]:
    block, projection = layer.split(".", 1)
    return int(block), projection


# Analyses over REST: what one would cost, submit it, and what it says.

why_router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)


@why_router.post("/jobs/{job_id}/why:plan")
def plan(job_id: str, request: StrictBody[WhyRequest], context: InContext) -> AnalysisPlan:
    """What an analysis of a candidate's gap would measure and cost: nothing is queued. 409 if its
    runs kept no checkpoint.
    """
    with context.database.read() as session:
        return plan_document(session, plan_analysis(session, job_id, request))


@why_router.post("/jobs/{job_id}/why", status_code=202)
def submit(
    job_id: str,
    request: StrictBody[WhyRequest],
    response: Response,
    context: InContext,
    sender: Sender,
) -> AnalysisDocument:
    """Queue an analysis of a candidate's gap, as a job of its own; an open one with the same plan
    is returned instead.
    """
    with context.database.write() as session:
        job = submit_analysis(session, job_id, request, sender.id)
        check_queue(session, context.settings, sender.id)
        document = analysis_document(session, job.id)
    ring(context, job)
    response.headers["Location"] = f"/api/v1/jobs/{document.job}/why"
    return document


@why_router.get("/jobs/{job_id}/why")
def show(job_id: str, context: InContext) -> AnalysisDocument:
    """An analysis by its own job, or the newest one of an explained job: its plan, and its answer
    so far.
    """
    with context.database.read() as session:
        return analysis_document(session, job_id)


@why_router.get("/jobs/{job_id}/why/ablations")
def by_ablations(
    job_id: str,
    context: InContext,
    candidate: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    ablation: Annotated[list[str] | None, Query(max_length=64)] = None,
) -> AblationsDocument:
    """The gap of a candidate in parts, from other candidates of the job that leave a part of its
    recipe out; of any engine.

    `ablation`: the names of these candidates, repeatable; without one all others. Nothing is
    queued. 409 while the job is open, and for arms without runs in common.
    """
    with context.database.read() as session:
        return ablations_document(session, job_id, candidate, ablation or ())


# Analyses in the web application (`server.web.auth`).


def _about_job(session: Session, job: Job) -> dict[str, object]:
    """Whether an analysis explains a job."""
    newest = select(Analysis.job_id).where(Analysis.explains == job.id).limit(1)
    return {"explained": session.scalar(newest) is not None}


ADDITIONS = Additions(routes=(why_router,), pages=(pages,), about_job=_about_job)
