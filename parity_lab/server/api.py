"""Analyses and healings over REST: what one would cost, submit it, and what it says."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from parity_lab.server.ablations import AblationsDocument, ablations_document
from parity_lab.server.analyses import WhyRequest, plan_analysis, submit_analysis
from parity_lab.server.documents import (
    AnalysisDocument,
    AnalysisPlan,
    analysis_document,
    plan_document,
)
from parity_lab.server.healing_documents import (
    HealingDocument,
    HealingPlan,
    healing_document,
    healing_plan_document,
)
from parity_lab.server.healings import HealRequest, plan_healing, submit_healing
from server.api.submit import notify_workers
from server.jobs.submission_limits import check_queue
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

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
        job, is_new = submit_analysis(session, job_id, request, sender.id)
        if is_new:
            check_queue(session, context.settings, sender.id)
        document = analysis_document(session, job.id)
    if is_new:
        notify_workers(context, job)
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


@why_router.post("/jobs/{job_id}/heal:plan")
def plan_heal(job_id: str, request: StrictBody[HealRequest], context: InContext) -> HealingPlan:
    """What a healing of a candidate would look at and cost: nothing is queued. 409 if its runs kept
    no checkpoint in common, or there is nothing to heal.
    """
    with context.database.read() as session:
        return healing_plan_document(session, plan_healing(session, job_id, request))


@why_router.post("/jobs/{job_id}/heal", status_code=202)
def submit_heal(
    job_id: str,
    request: StrictBody[HealRequest],
    response: Response,
    context: InContext,
    sender: Sender,
) -> HealingDocument:
    """Queue a healing of a candidate, as a job of its own; an open one with the same plan is
    returned instead.
    """
    with context.database.write() as session:
        job, is_new = submit_healing(session, job_id, request, sender.id)
        if is_new:
            check_queue(session, context.settings, sender.id)
        document = healing_document(session, job.id)
    if is_new:
        notify_workers(context, job)
    response.headers["Location"] = f"/api/v1/jobs/{document.job}/heal"
    return document


@why_router.get("/jobs/{job_id}/heal")
def show_heal(job_id: str, context: InContext) -> HealingDocument:
    """A healing by its own job, or the newest one of a job's candidates: its plan, its answer so
    far, and the job that it proposes.
    """
    with context.database.read() as session:
        return healing_document(session, job_id)
