"""Jobs over REST: list, read, cancel, add a run, conclude, and the verdict with its evidence."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from sqlalchemy.orm import Session

from parity.cards.card import Card
from parity.cards.card_file import card_yaml
from parity.cards.card_markdown import card_markdown
from parity.cards.make_card import ServerFacts, make_card
from parity.frozen import frozen
from parity.judging.bundles.server_record import BundleJob
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import AnyCase
from parity.judging.document_types import VerdictDocument
from server.api.submit import notify_workers
from server.concurrency.turns import Turns
from server.database.lookups import find_job
from server.database.tables import JobStatus
from server.documents.job_lists.filters import JobFilters, Sort
from server.documents.job_lists.page import JobPage, job_list
from server.documents.jobs import JobDocument, failed_by, job_document
from server.documents.remarks import remarks_of
from server.documents.runs import RunDocument
from server.errors import NotFoundError
from server.jobs import evaluations, projects
from server.jobs.added_runs import AddedRunRequest, add_runs
from server.jobs.conclude import judge_again
from server.jobs.cost import price_of
from server.jobs.fingerprint import job_spec
from server.jobs.judge_input import case_of
from server.jobs.lifecycle import cancel_job
from server.jobs.submission_limits import check_queue, check_size
from server.jobs.verdict_rows import shown_documents, verdict_documents
from server.records import from_attributes
from server.web.access.authorization import Sender, check_rule
from server.web.access.principals import Principal
from server.web.access.rules import RULES
from server.web.context import Context, InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_packing = Turns("packing evidence")


@frozen
class VerdictPage:
    """The verdicts of a job; empty until its last run has ended. `status` and `message` give the
    reason.
    """

    status: JobStatus
    code: str | None
    message: str | None
    verdicts: list[Mapping[str, Any]]


@router.get("/jobs")
def index(
    context: InContext,
    filters: Annotated[JobFilters, Depends()],
    sort: Annotated[
        Sort,
        Query(description="order; `gap`: the largest gap of a candidate, in % of the loss, first"),
    ] = "newest",
    cursor: Annotated[
        str | None, Query(max_length=1000, description="`next_cursor` of the previous page")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="jobs per page")] = 50,
    count: Annotated[bool, Query(description="whether to count all jobs that match")] = False,
) -> JobPage:
    """Jobs, newest first unless sorted otherwise. All filters that are given must hold."""
    with context.database.read() as session:
        return job_list(session, filters, sort, cursor, limit, counted=count)


@router.get("/jobs/{job_id}")
def show(job_id: str, context: InContext) -> JobDocument:
    """One job with its arms, runs and verdicts."""
    return _document(context, job_id)


@router.get("/jobs/{job_id}/runs")
def runs(job_id: str, context: InContext) -> list[RunDocument]:
    """Every run of a job, arm by arm, with its attempts; an arm's short reruns follow its full
    runs.
    """
    with context.database.read() as session:
        evaluations.check_has_runs(find_job(session, job_id), "list of runs")
    return [
        run for arm in _document(context, job_id).arms for run in (*arm.runs, *arm.short_reruns)
    ]


@router.post("/jobs/{job_id}:cancel")
def cancel(job_id: str, context: InContext) -> JobDocument:
    """Cancel a job, as its owner or an admin. Cancelling an ended job changes nothing and is not an
    error.
    """
    with context.database.write() as session:
        cancel_job(session, job_id)
    return _document(context, job_id)


@router.post("/jobs/{job_id}:add-run", status_code=202)
def add_run(
    job_id: str, request: StrictBody[AddedRunRequest], context: InContext, sender: Sender
) -> JobDocument:
    """Add a run to each arm of a job that has no verdict yet, as its owner or an admin.

    Once a candidate has trained this takes a look that the policy registered; 409 where none is
    left, and for a job that takes no run.
    """
    return submit_run(context, job_id, request, sender)


def submit_run(
    context: Context, job_id: str, request: AddedRunRequest, sender: Principal
) -> JobDocument:
    """Add a run to each arm of an open job, within the limits of one job and one sender, and wake
    the workers.
    """
    with context.database.write() as session:
        evaluations.check_takes_runs(
            find_job(session, job_id), "push the losses of all runs: `parity compare --push`"
        )
        job = add_runs(session, job_id, request, sender.id)
        check_size(context.settings, job_spec(job))
        check_queue(session, context.settings, sender.id)
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
    notify_workers(context, job)
    return document


@router.post("/jobs/{job_id}:conclude", status_code=202)
def conclude(job_id: str, context: InContext, sender: Sender) -> JobDocument:
    """Close a project, as its owner or an admin: its finished runs are judged soon after, and it
    takes no further run. An admin has a job that failed with `JUDGE_FAILED` judged again, so that
    it gets its verdict.

    409 for another job, while a run of the project trains, and where an arm has no finished run.
    """
    with context.database.write() as session:
        if find_job(session, job_id).status == "failed":
            check_rule(context, RULES["POST /api/v1/tokens"], sender, {})
            judge_again(session, job_id)
        else:
            projects.close(session, job_id)
    context.judge.wake(job_id)
    return _document(context, job_id)


@router.get("/jobs/{job_id}/verdict")
def verdict(job_id: str, context: InContext) -> VerdictPage:
    """The verdict of each candidate, as the judge wrote it, with its path and the chances of one
    more pair of runs.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        return from_attributes(VerdictPage, job, verdicts=[*shown_documents(session, job)])


@router.get("/jobs/{job_id}/evidence.zip", response_class=Response)
def evidence(job_id: str, context: InContext) -> Response:
    """The evidence bundle (curves, policy, verdicts, sign-offs, the job whose fail stands against
    its pass), which can be recomputed offline.
    `parity verify FILE` checks it.
    """
    with _packing.take():
        with context.database.read() as session:
            judged = _judged(context, session, job_id, "evidence")
        bundle = bundle_bytes(judged.case, judged.documents, judged.sign_offs, judged.job)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-evidence.zip"'}
    return Response(bundle, media_type="application/zip", headers=headers)


@router.get("/jobs/{job_id}/card.yaml", response_class=Response)
def card(job_id: str, context: InContext) -> Response:
    """The verification card: the verdicts with what they rest on, as YAML. `parity verify CARD
    evidence.zip` checks it.
    """
    text = card_yaml(_card(context, job_id))
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-card.yaml"'}
    return Response(text, media_type="application/yaml", headers=headers)


@router.get("/jobs/{job_id}/card.md", response_class=Response)
def markdown_card(job_id: str, context: InContext) -> Response:
    """The verification card as Markdown, for a pull request, a model card or a paper."""
    text = card_markdown(_card(context, job_id))
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-card.md"'}
    return Response(text, media_type="text/markdown", headers=headers)


def _card(context: Context, job_id: str) -> Card:
    with _packing.take():
        with context.database.read() as session:
            judged = _judged(context, session, job_id, "card")
        facts = ServerFacts(
            job=judged.job.id, failed_by=judged.job.failed_by, sign_offs=judged.sign_offs
        )
        return make_card(judged.case, judged.documents, facts=facts)


@frozen(eq=False)
class _Judged:
    """What the verdicts of a job rest on, what people said of them, and the fail that stands
    against them.
    """

    job: BundleJob
    case: AnyCase
    documents: list[VerdictDocument]
    sign_offs: list[dict[str, Any]]


def _judged(context: Context, session: Session, job_id: str, what: str) -> _Judged:
    """Raises NotFoundError where a job has no verdict, so that it has no `what`."""
    job = find_job(session, job_id)
    documents = verdict_documents(job)
    if not documents:
        raise NotFoundError(f"job {job.id} is {job.status} and has no verdict, so it has no {what}")
    case: AnyCase
    if job.has_evaluations:
        case = evaluations.case_of(session, job)
    else:
        case = case_of(session, job)
    return _Judged(
        job=BundleJob(id=job_id, failed_by=failed_by(session, job, context.settings.lease_seconds)),
        case=case,
        documents=documents,
        sign_offs=[asdict(sign_off) for sign_off in remarks_of(session, job).sign_offs],
    )


def _document(context: Context, job_id: str) -> JobDocument:
    with context.database.read() as session:
        return job_document(
            session,
            find_job(session, job_id),
            context.settings.lease_seconds,
            price_of(context.settings),
        )
