"""Searches over REST: what one would cost, begin it, read it, cancel it, resume it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Response
from pydantic import Field

from parity.search.power import MOST_CONFIRMATIONS
from server.documents.search import SearchDocument, SearchPlan, plan_document, search_document
from server.jobs.limits import check_queue
from server.searches.plan import MOST_PAIRS, SwitchWish, Wish, plan_search
from server.searches.record import cancel_search, find_search, resume_search, submit_search
from server.web.auth import Sender
from server.web.context import Context, InContext
from server.web.strict_body import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["searches"], route_class=BodyRoute)
_MOST_STEPS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Wish):
    """What to search from a job that has ended: which of its candidates (null: the only one), and which of its parts can go back.

    Without `switches` the space is attention and MLP by GEMM, in ranges of blocks. `step`: a kept checkpoint of the baseline's runs (null:
    the one nearest to 60 % of the steps). `speed` is what a step takes. `pairs`: runs of each arm of a confirmation. `budget`: the largest
    cost, in steps of training.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    candidate: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    switches: Annotated[list[SwitchWish], Field(max_length=64)] = field(default_factory=list)
    step: Annotated[int, Field(ge=1, le=1e9)] | None = None
    fork_steps: Annotated[int, Field(ge=2, le=1e9)] | None = None
    pairs: Annotated[int, Field(ge=1, le=MOST_PAIRS)] | None = None
    pilots: Annotated[int, Field(ge=0, le=20)] = 6
    confirmations: Annotated[int, Field(ge=1, le=MOST_CONFIRMATIONS)] = 2
    budget: Annotated[float, Field(gt=0, le=_MOST_STEPS, allow_inf_nan=False)] | None = None


@router.post("/jobs/{job_id}/searches:plan")
def plan(job_id: str, request: StrictBody[SearchRequest], context: InContext) -> SearchPlan:
    """What a search from a job would run and cost: nothing is queued. 409 if its baseline kept no checkpoint."""
    with context.database.read() as session:
        return plan_document(plan_search(session, job_id, request))


@router.post("/jobs/{job_id}/searches", status_code=202)
def submit(job_id: str, request: StrictBody[SearchRequest], response: Response, context: InContext, sender: Sender) -> SearchDocument:
    """Begin a search for the fastest policy inside the margin. Its steps are jobs; each queues the next one when it has ended.

    409 if another search is at the same question, or has used a confirmation on it.
    """
    with context.database.write() as session:
        search = submit_search(session, job_id, request, sender.id)
        check_queue(session, context.settings, sender.id)
        document, capability = search_document(search), search.base.capability
    _ring(context, document, capability)
    response.headers["Location"] = f"/api/v1/searches/{document.id}"
    return document


@router.get("/searches/{search_id}")
def show(search_id: str, context: InContext) -> SearchDocument:
    """A search: its plan, its steps so far, what they say of the policies, and the one that the judge confirmed."""
    with context.database.read() as session:
        return search_document(find_search(session, search_id))


@router.post("/searches/{search_id}:cancel")
def cancel(search_id: str, context: InContext) -> SearchDocument:
    """Cancel a search and its open job. A confirmation that was queued is used; a search that has ended is unchanged."""
    with context.database.write() as session:
        cancel_search(session, search_id)
        return search_document(find_search(session, search_id))


@router.post("/searches/{search_id}:resume", status_code=202)
def resume(search_id: str, context: InContext, sender: Sender) -> SearchDocument:
    """Let a cancelled or failed search go on with what is on record. A confirmation without a verdict counts as one that did not pass."""
    with context.database.write() as session:
        resume_search(session, search_id)
        check_queue(session, context.settings, sender.id)
        search = find_search(session, search_id)
        document, capability = search_document(search), search.base.capability
    _ring(context, document, capability)
    return document


def _ring(context: Context, document: SearchDocument, capability: str) -> None:
    """Wake the workers for the job of the newest step."""
    if document.state == "running":
        context.doorbell.ring(capability, times=1)
