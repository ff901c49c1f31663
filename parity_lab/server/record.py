"""A search on the record: it begins, goes on, ends, and is shown; and what the core asks of the
kinds of jobs that the lab has.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from parity.structure import frozen
from parity_lab.analysis import MeasureRequest, steps_spent
from parity_lab.analysis import setup_from as analysis_setup_from
from parity_lab.answer import Answer
from parity_lab.belief import Evaluation, Result, evaluations_from, results_from
from parity_lab.belief import Outcome as SearchOutcome
from parity_lab.replay import replay_steps
from parity_lab.search import (
    Rating,
    SearchSetup,
    SwitchSource,
    ask,
    forks_of,
    key_of,
    rate,
    setup_from,
)
from parity_lab.server.analyses import (
    answer_of,
    gap_words,
    readable_spec,
    record_requests,
    results_of,
)
from parity_lab.server.searches import (
    UNKNOWN,
    PlannedSearch,
    SearchOfFile,
    Wish,
    job_of,
    plan_search,
    queue_step,
    results_of_step,
    why_unfit,
)
from parity_lab.server.tables import Analysis, Search, SearchState, SearchStep
from server.concurrency import Repeating
from server.database import tables
from server.database.sessions import Database, hold_lock
from server.database.states import JOB_ENDED
from server.database.tables import Job, JobStatus, Run
from server.errors import ConflictError, LookError, NotFoundError, TooManyError
from server.jobs.conclude import Kind, Outcome
from server.jobs.fingerprint import job_spec, run_spec
from server.jobs.ledger import question_of
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import Order, check_queue
from server.records import of
from server.settings import Settings

# A search on the record: it begins, goes on when the job of its newest step has ended, and is
# cancelled or resumed.
#
# `parity_lab.search.ask` names what lacks, from the setup and the results on record: nothing else
# is kept. So a search whose server died goes on where it was, and two servers that advance it at
# once do the same once.
#
# The guarantee rests on three rules of this module. Each confirmation, once queued, is used: one
# that was cancelled or failed counts as one that did not pass. At most `setup.confirmations` are
# queued. And a question that one search has used a confirmation on is refused to others, whatever
# margin their base job has.

NOT_PASSED = {"value": 0.0, "se": UNKNOWN, "passed": False}
"""What a confirmation without a verdict counts as."""


def submit_search(
    session: Session,
    job_id: str,
    wish: Wish,
    submitted_by: str | None = None,
    order: Order | None = None,
) -> Search:
    """Write a search and its first step. Ring the doorbell after the commit. Errors as
    `plan_search`.
    """
    planned, order = plan_search(session, job_id, wish), order or Order()
    base = planned.arm.job
    question = question_of(base, planned.arm)
    hold_lock(session, f"search {question}")
    _check_new(session, question)
    search = Search(
        id=tables.new_id("s"),
        base=base,
        candidate=planned.arm.name,
        question=question,
        setup=asdict(planned.setup),
        state="running",
        priority=order.priority,
        max_run_seconds=order.max_run_seconds,
        submitted_by=submitted_by,
        created_at=time.time(),
    )
    session.add(search)
    session.flush()
    _write_next(session, search, planned.setup, ask(planned.setup.setting, ()))
    return search


def find_search(session: Session, search_id: str) -> Search:
    """A search by its id; NotFoundError for an unknown one."""
    search = session.get(Search, search_id) if tables.is_id("s", search_id) else None
    if search is None:
        raise NotFoundError(
            f"there is no search {search_id}; `parity search parity.yaml` begins one"
        )
    return search


def advance(
    database: Database,
    search_id: str,
    may_queue: Callable[[Session, str], None] = lambda _session, _sender: None,
) -> Job | None:
    """Record what the newest step gave, and queue the next one or end the search; the job that was
    queued. Safe to call at any time.

    What comes next is computed outside the write transaction. `may_queue` raises TooManyError for a
    sender whose queue is full.
    """
    with database.read() as session:
        search = find_search(session, search_id)
        if (
            search.state != "running"
            or not search.steps
            or search.steps[-1].job.status not in JOB_ENDED
        ):
            return None
        setup, newest = setup_from(search.setup), search.steps[-1]
        _keep_results(session, newest)  # to know what comes next; the transaction below keeps them
        given_up = _why_given_up(newest) if newest.results is None else ""
        unfit = why_unfit(session, setup, newest)
        number, results = newest.number, _results(search)
    barred, refusal = [setup.space.candidate], ""
    while True:
        decided: tuple[Evaluation, ...] | SearchOutcome | None = None
        if unfit:
            decided = SearchOutcome(reason=unfit)
        elif not given_up:
            decided = ask(setup.setting, results, barred)
        try:
            with database.write() as session:
                search = _locked(session, search_id)
                if search.state != "running" or search.steps[-1].number != number:
                    return None
                if decided is None:
                    _end(search, "failed", given_up)
                    return None
                _keep_results(session, search.steps[-1])
                job = _write_next(session, search, setup, decided, refusal)
                if job is not None:
                    may_queue(session, search.submitted_by or "")
                return job
        # another job has judged this assignment; the next best one is tried
        except LookError as error:
            if decided is None or isinstance(decided, SearchOutcome):
                raise
            barred.append(decided[0].assignment)
            refusal = refusal or f"assignment {decided[0].assignment} cannot be confirmed: {error}"


def waiting(session: Session) -> Sequence[str]:
    """The searches whose newest step has ended."""
    open_searches = session.scalars(
        select(Search).where(Search.state == "running").order_by(Search.id)
    )
    return [
        search.id
        for search in open_searches
        if search.steps and search.steps[-1].job.status in JOB_ENDED
    ]


def cancel_search(session: Session, search_id: str) -> bool:
    """Cancel a search and the job of its newest step; False if it had already ended."""
    find_search(session, search_id)
    search = _locked(session, search_id)
    if search.state != "running":
        return False
    if search.steps:
        cancel_job(session, search.steps[-1].job_id, f"search {search_id} was cancelled")
    _end(search, "cancelled", "cancelled by request")
    return True


def resume_search(session: Session, search_id: str) -> Search:
    """Let a cancelled or failed search go on: the step that it lacks is queued again. ConflictError
    for any other.

    A confirmation that had been queued is used, whatever became of it. If it is the newest step,
    `advance` queues what follows.
    """
    hold_lock(session, f"search {find_search(session, search_id).question}")
    search = _locked(session, search_id)
    if search.state not in {"cancelled", "failed"}:
        raise ConflictError(f"search {search.id} is {search.state}, expected cancelled or failed")
    _check_new(session, search.question, but=search.id)
    setup = setup_from(search.setup)
    search.state, search.message, search.finished_at = "running", None, None
    newest = search.steps[-1] if search.steps else None
    if newest is not None and newest.job.status in JOB_ENDED:
        _keep_results(session, newest)
        if newest.results is None and newest.evaluations[0]["kind"] == "confirmation":
            newest.results = [NOT_PASSED]
        if newest.results is not None:
            return search
    _write_next(
        session, search, setup, ask(setup.setting, _results(search), [setup.space.candidate])
    )
    return search


def _end(search: Search, state: SearchState, message: str, assignment: str | None = None) -> None:
    """End a search."""
    search.state, search.message, search.assignment, search.finished_at = (
        state,
        message,
        assignment,
        time.time(),
    )


def _spent(search: Search) -> float:
    """The cost of the steps that were queued, in steps of training."""
    return sum(step.cost for step in search.steps)


def _locked(session: Session, search_id: str) -> Search:
    """A search as it is now, which nobody else changes until the transaction ends."""
    hold_lock(session, f"search {search_id}")
    search = session.get_one(Search, search_id, populate_existing=True)
    session.refresh(search, ["steps"])
    return search


def _keep_results(session: Session, step: SearchStep) -> None:
    if step.results is None:
        step.results = results_of_step(session, step)


def _results_of(step: SearchStep) -> tuple[Result, ...]:
    """The results of a step on record; none before it has ended, and if it was given up."""
    if step.results is None:
        return ()
    return results_from(evaluations_from(step.evaluations), step.results)


def _results(search: Search) -> list[Result]:
    """The results on record."""
    return [result for step in search.steps for result in _results_of(step)]


def _why_given_up(step: SearchStep) -> str:
    """Why a step whose job has ended has no results."""
    job = step.job
    reason = f"{job.code}: {job.message}" if job.code else job.message or job.status
    return f"step {step.number} ({job.id}) {job.status}: {reason}"[:2000]


def _write_next(
    session: Session,
    search: Search,
    setup: SearchSetup,
    decided: tuple[Evaluation, ...] | SearchOutcome,
    refusal: str = "",
) -> Job | None:
    """Queue the next step, or end the search; the job. `refusal`: why a faster assignment could not
    be confirmed.
    """
    if isinstance(decided, SearchOutcome):
        if decided.assignment is None:
            _end(search, "none", "; ".join(filter(None, [decided.reason, refusal])))
        else:
            _check_confirmed(search, decided.assignment)
            _end(search, "found", decided.reason, decided.assignment)
        return None
    cost = setup.cost(decided)
    if setup.budget is not None and _spent(search) + cost > setup.budget:
        _end(
            search,
            "none",
            f"the next step costs {cost:,.0f} steps, more than the budget of {setup.budget:,.0f} "
            "leaves",
        )
        return None
    if decided[0].kind == "confirmation" and _used(search) >= setup.confirmations:
        _end(search, "none", "no confirmation is left")
        return None
    job = queue_step(session, search, setup, decided)
    number = max((step.number for step in search.steps), default=0) + 1
    evaluations = [asdict(each) for each in decided]
    search.steps.append(
        SearchStep(
            number=number,
            job=job,
            evaluations=evaluations,
            results=None,
            cost=cost,
            created_at=time.time(),
        )
    )
    session.flush()
    return job


def _used(search: Search) -> int:
    """Confirmations that were queued."""
    return sum(step.evaluations[0]["kind"] == "confirmation" for step in search.steps)


def _check_confirmed(search: Search, assignment: str) -> None:
    """The last line before an assignment is returned: that the judge's own verdict on record passed
    it, in a confirmation of this search.
    """
    for step in search.steps:
        own = step.evaluations[0]
        if (
            own["kind"] == "confirmation"
            and own["assignment"] == assignment
            and any(each.outcome == "pass" for each in step.job.verdicts)
        ):
            return
    raise RuntimeError(
        f"search {search.id} would return assignment {assignment}, which no confirmation on record "
        "passed"
    )


def _check_new(session: Session, question: str, but: str = "") -> None:
    """Refuse a second search on a question that an earlier one has used a confirmation on, or is
    still at.
    """
    for other in session.scalars(
        select(Search).where(Search.question == question, Search.id != but).order_by(Search.id)
    ):
        if other.state == "running":
            raise ConflictError(
                f"search {other.id} is at this question; wait for it, or cancel it: parity search "
                f"{other.id} --cancel"
            )
        if _used(other):
            raise ConflictError(
                f"search {other.id} has used {_used(other)} of its {other.setup['confirmations']} "
                "confirmations on this question; those "
                "that one search declares share the error. Judge the job again under a new name "
                "(policy.question), or resume it"
            )


# The thread of an API process that lets searches go on when the job of their newest step has ended.
#
# It runs here and not in the workers, which run strangers' job files and may queue nothing
# (`server/roles.sql`).

_log = logging.getLogger(__name__)


def searcher(settings: Settings, database: Database, ring: Callable[[str], None]) -> Repeating:
    """The thread of an API process that looks once every second at searches that run, or every
    `reconcile_seconds` if that is less.
    """

    def look() -> None:
        _advance_all(settings, database, ring)

    return Repeating(
        "searches", look, min(1.0, settings.reconcile_seconds), "searches could not be looked at"
    )


def _advance_all(settings: Settings, database: Database, ring: Callable[[str], None]) -> None:
    """Let every search go on whose newest step has ended; one whose sender's queue is full
    waits.
    """
    with database.read() as session:
        due = waiting(session)
    for search_id in due:
        try:
            job = advance(
                database, search_id, lambda session, sender: check_queue(session, settings, sender)
            )
        except TooManyError as error:
            _log.info("search %s waits: %s", search_id, error)
            continue
        except Exception:  # noqa: BLE001
            _log.exception("search %s could not go on and will be tried again", search_id)
            continue
        if job is not None:
            ring(job.capability)


# A search as the API and the pages show it: what it costs, what each step gave, where it is, and
# what it guarantees.

_SHOWN = 200  # assignments of a document, the fastest first
_TWO_SIGMA = 1.96
StepKind = Literal["forks", "pilot", "confirmation"]
AssignmentState = Literal["confirmed", "not confirmed", "tried", "estimated"]


@frozen
class SearchSwitch:
    """A part that can go back, and the override that does it."""

    name: str
    override: Mapping[str, Any]


@frozen
class SearchPlan:
    """What a search runs and costs. Losses are in nats, costs in steps of training; a pair of full
    runs has `pair_steps`.

    `switches_from`: the request, the answer of the job `analysis`, or parts of blocks by default;
    null for a search of an older version. `least_steps` is the cost of the first forks,
    `most_steps` that of everything. `target` is the largest gap that is confirmed with 95 % power.
    `candidate_speed`: how many times as fast as the baseline's a step of the candidate is.
    `seconds`: about how long `most_steps` take on one device; null while that is unknown.
    """

    base: str
    base_name: str
    candidate: str
    switches: list[SearchSwitch]
    switches_from: SwitchSource | None
    analysis: str | None
    parents: Sequence[str]
    fork_step: int
    fork_steps: int
    pairs: int
    pilots: int
    confirmations: int
    confidence: float
    margin: float
    target: float
    candidate_speed: float
    least_steps: float
    most_steps: float
    pair_steps: int
    seconds: float | None
    guarantee: str


@frozen
class SearchStepDocument:
    """A step: its job, what it evaluates, its cost in steps of training, and what came of it in one
    sentence.
    """

    number: int
    kind: StepKind
    job: str
    status: JobStatus
    assignments: list[str]
    cost: float
    outcome: str


@frozen
class AssignmentDocument:
    """An assignment: the switches that it takes back, its speed as a multiple of the baseline's,
    and its gap (nats) with a 95 % interval after the results so far. `state`: confirmed by the
    judge, not confirmed, tried in forks or runs, or only estimated from others.
    """

    assignment: str
    takes_back: list[str]
    speed: float
    gap: float
    low: float
    high: float
    passes: float
    state: AssignmentState


@frozen
class SearchDocument:
    """A search: its state, plan, steps and assignments. `assignment` is the one that the judge
    confirmed, with the job that trains it as `job`; null unless the state is `found`.
    """

    id: str
    state: SearchState
    message: str | None
    plan: SearchPlan
    steps: list[SearchStepDocument]
    assignments: list[AssignmentDocument]
    assignment: str | None
    speed: float | None
    job: Mapping[str, Any] | None
    policy: Mapping[str, Any]
    steps_spent: float
    created_at: str | None
    finished_at: str | None


def plan_document(planned: PlannedSearch) -> SearchPlan:
    """A plan."""
    return _plan(planned.setup, planned.arm.job, planned.arm.name, planned.seconds)


def search_document(search: Search) -> SearchDocument:
    """A search on record."""
    setup = setup_from(search.setup)
    job = None
    if search.assignment is not None:
        job = job_of(search, setup, [search.assignment], setup.pairs).document()
    return of(
        SearchDocument,
        search,
        plan=_plan(setup, search.base, search.candidate, None),
        steps=[_step(each) for each in search.steps],
        assignments=_assignments(search, setup),
        speed=None if search.assignment is None else 1.0 / setup.times[int(search.assignment, 2)],
        job=job,
        policy=search.base.policy,
        steps_spent=_spent(search),
    )


def _plan(setup: SearchSetup, base: Job, candidate: str, seconds: float | None) -> SearchPlan:
    return of(
        SearchPlan,
        setup,
        base=base.id,
        base_name=base.name,
        candidate=candidate,
        switches=[of(SearchSwitch, each) for each in setup.switches],
        confidence=setup.confirmation.confidence,
        target=setup.target or 0.0,
        candidate_speed=1.0 / setup.times[-1],
        pair_steps=2 * setup.run_steps,
        seconds=seconds,
        guarantee=setup.confirmation.guarantee,
    )


def _step(step: SearchStep) -> SearchStepDocument:
    own = evaluations_from(step.evaluations)
    kinds: Mapping[str, StepKind] = {
        "fork": "forks",
        "run": "pilot",
        "confirmation": "confirmation",
    }
    return of(
        SearchStepDocument,
        step,
        kind=kinds[own[0].kind],
        job=step.job_id,
        status=step.job.status,
        assignments=list(dict.fromkeys(each.assignment for each in own)),
        outcome=_outcome(step, _results_of(step)),
    )


def _outcome(step: SearchStep, results: Sequence[Result]) -> str:
    if not results:
        if step.job.status in {"failed", "cancelled"}:
            return "given up"
        return ""
    first = results[0]
    if first.evaluation.kind == "fork":
        return f"{len(results)} forks"
    if first.evaluation.kind == "run":
        return f"loss {first.value:.4f} nats"
    if not step.job.verdicts:
        return "no verdict: used, and counted as not passed"
    verdict = step.job.verdicts[0]
    words = [
        verdict.outcome
        if verdict.outcome == "pass" or verdict.code is None
        else f"{verdict.outcome}, {verdict.code}"
    ]
    if gap := gap_words(verdict):
        words.append(f"gap {gap}")
    if verdict.outcome != "pass":
        words.append(json.loads(verdict.document)["reasons"][0]["sentence"])
    return ": ".join(words)


def _assignments(search: Search, setup: SearchSetup) -> list[AssignmentDocument]:
    """The assignments after the results on record: those that were tried, and the fastest
    others.
    """
    batches = [results for step in search.steps if (results := _results_of(step))]
    if not batches:
        return []
    try:
        rating = rate(setup.setting, batches)
    except (ValueError, ZeroDivisionError):  # forks that tell nothing: the search says so
        return []
    done = [result.evaluation for batch in batches for result in batch]
    states: dict[str, AssignmentState] = dict.fromkeys(
        [*setup.given, *(each.assignment for each in done)], "tried"
    )
    states |= {each.assignment: "not confirmed" for each in done if each.kind == "confirmation"}
    if search.assignment is not None:
        states[search.assignment] = "confirmed"
    ranked = sorted(
        range(len(rating.assignments)),
        key=lambda at: (rating.assignments[at] not in states, setup.times[at], at),
    )
    return [
        _assignment(setup, rating, at, states.get(rating.assignments[at], "estimated"))
        for at in ranked[:_SHOWN]
    ]


def _assignment(
    setup: SearchSetup, rating: Rating, at: int, state: AssignmentState
) -> AssignmentDocument:
    own, gap, sd = (
        rating.assignments[at],
        float(rating.belief.mean[at]),
        float(rating.belief.sd[at]),
    )
    return AssignmentDocument(
        assignment=own,
        takes_back=[each.name for each in setup.space.taken_back(own)],
        speed=1.0 / setup.times[at],
        gap=gap,
        low=gap - _TWO_SIGMA * sd,
        high=gap + _TWO_SIGMA * sd,
        passes=float(rating.passes[at]),
        state=state,
    )


# The kinds of jobs of analyses and searches (`server.jobs.conclude`), and what the key `search` of
# a job file holds.


def _request(session: Session, run: Run) -> MeasureRequest:
    """What a run of kind why measures: an analysis, or the forks of a step of a search, whose job
    has an arm for each assignment.
    """
    own, results = session.get(Analysis, run.job_id), results_of(session, run.job_id)
    baseline = assignments = None
    if own is not None:
        setup, replays = own.setup, analysis_setup_from(own.setup).replays
        spent = steps_spent(analysis_setup_from(setup), results)
        if own.against == "baseline":
            spec = readable_spec(run.job)
            baseline = spec.run_of(spec.baseline, 0).document()
    else:
        step, spec = session.scalars(_step_of_job(run.job)).one(), job_spec(run.job)
        forks = forks_of(setup_from(step.search.setup), evaluations_from(step.evaluations))
        setup, replays = asdict(forks), forks.replays
        spent = replay_steps(results) + forks.fork_steps * sum(
            key_of(each) in results for each in evaluations_from(step.evaluations)
        )
        assignments = {
            arm.name: spec.run_of(arm, run.replicate).document() for arm in spec.candidates
        }
    return {
        "setup": setup,
        "parents": {
            parent: run_spec(session.get_one(Run, parent)).document() for parent in setup["parents"]
        },
        "baseline": baseline,
        "assignments": assignments,
        "records": record_requests(session, replays),
        "results": results,
        "spent": spent,
    }


def _conclude(session: Session, job: Job) -> Outcome:
    """How the job of an analysis, or of forks or a pilot, ends: complete (an analysis with its
    answer) if its run finished; no verdict.
    """
    (run,) = job.runs
    analysis = session.get(Analysis, job.id)
    if run.state == "finished":
        if analysis is None:
            return Outcome(verdicts=(), complete=True)
        answer = answer_of(session, analysis)
        replay = answer["replay"]
        message = replay["sentence"] if replay["code"] else None
        return Outcome(
            verdicts=(),
            code=replay["code"],
            message=message,
            complete=True,
            write=partial(_keep_answer, job.id, answer),
        )
    message = run.message or f"its run was {run.state}"
    if analysis is None:
        why = f"{run.code}: {run.message}" if run.code else f"it was {run.state}"
        message = f"1 of 1 runs did not finish; run {run.id} of arm {run.arm.name}: {why}"
    return Outcome(verdicts=(), code=run.code or "CANCELLED", message=message)


def _keep_answer(job_id: str, answer: Answer, session: Session) -> None:
    session.get_one(Analysis, job_id).answer = dict(answer)


def _page(session: Session, job: Job) -> str:
    """That of the analysis, or of the search; only confirmations of a search have a page as
    jobs.
    """
    if session.get(Analysis, job.id) is not None:
        return f"/jobs/{job.id}/why"
    return f"/searches/{session.scalars(_step_of_job(job)).one().search_id}"


def _links(session: Session, job: Job) -> dict[str, str]:
    if session.get(Analysis, job.id) is None:
        return {}
    return {"why": f"/api/v1/jobs/{job.id}/why"}


def _step_of_job(job: Job) -> Select[SearchStep]:
    return select(SearchStep).where(SearchStep.job_id == job.id)


_WHY = Kind(request=_request, conclude=_conclude, page=_page, links=_links)
KINDS = {"why": _WHY, "pilot": replace(_WHY, request=lambda _session, _run: None)}
KEY_OF_JOB_FILE = SearchOfFile
