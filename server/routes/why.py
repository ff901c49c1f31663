"""Analyses over REST: what one would cost, submit it, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query, Response
from pydantic import Field

from server.documents.ablations import AblationsDocument, ablations_document
from server.documents.analysis import AnalysisDocument, AnalysisPlan, analysis_document, plan_document
from server.jobs.analyses import Question, analysis_of, plan_analysis, submit_analysis
from server.jobs.limits import check_queue
from server.routes.jobs import ring
from server.web.auth import Sender
from server.web.context import InContext
from server.web.strict_body import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_MOST_STEPS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRequest(Question):
    """Which candidate to explain (null: the job's only one), what a unit takes that is off, and whose checkpoints are forked.

    `step`: a kept checkpoint (null: the one nearest to 60 % of the steps). `fork_steps` and `budget`, the largest cost in steps of
    training, have defaults. `anyway`: also explain a gap that passed, or one that forks probably cannot see.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    candidate: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    step: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
    fork_steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
    budget: Annotated[float, Field(gt=0, le=_MOST_STEPS, allow_inf_nan=False)] | None = None


@router.post("/jobs/{job_id}/why:plan")
def plan(job_id: str, request: StrictBody[WhyRequest], context: InContext) -> AnalysisPlan:
    """What an analysis of a candidate's gap would measure and cost: nothing is queued. 409 if its runs kept no checkpoint."""
    with context.database.read() as session:
        return plan_document(plan_analysis(session, job_id, request))


@router.post("/jobs/{job_id}/why", status_code=202)
def submit(job_id: str, request: StrictBody[WhyRequest], response: Response, context: InContext, sender: Sender) -> AnalysisDocument:
    """Queue an analysis of a candidate's gap, as a job of its own; an open one with the same plan is returned instead."""
    with context.database.write() as session:
        job = submit_analysis(session, job_id, request, sender.id)
        check_queue(session, context.settings, sender.id)
        analysis = analysis_of(session, job.id)
        document = analysis_document(session, analysis)
    ring(context, job)
    response.headers["Location"] = f"/api/v1/jobs/{document.job}/why"
    return document


@router.get("/jobs/{job_id}/why")
def show(job_id: str, context: InContext) -> AnalysisDocument:
    """An analysis by its own job, or the newest one of an explained job: its plan, and its answer so far."""
    with context.database.read() as session:
        return analysis_document(session, analysis_of(session, job_id))


@router.get("/jobs/{job_id}/why/ablations")
def by_ablations(
    job_id: str,
    context: InContext,
    candidate: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    ablation: Annotated[list[str] | None, Query(max_length=64)] = None,
) -> AblationsDocument:
    """The gap of a candidate in parts, from other candidates of the job that leave a part of its recipe out; of any engine.

    `ablation`: the names of these candidates, repeatable; without one all others. Nothing is queued. 409 while the job is open, and for
    arms without runs in common.
    """
    with context.database.read() as session:
        return ablations_document(session, job_id, candidate, ablation or ())
