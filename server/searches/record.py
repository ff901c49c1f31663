"""A search on the record: it begins, goes on when the job of its newest step has ended, and is cancelled or resumed.

`parity.search.search.ask` names what lacks, from the setup and the results on record: nothing else is kept. So a search whose server died
goes on where it was, and two servers that advance it at once do the same once.

The guarantee rests on three rules of this module. Each confirmation, once queued, is used: one that was cancelled or failed counts as one
that did not pass. At most `setup.confirmations` are queued. And a question that one search has used a confirmation on is refused to others,
whatever margin their base job has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.search.evaluations import Evaluation, Outcome, Result, documents, evaluations_from, results_from
from parity.search.search import ask
from parity.search.setup import SearchSetup, setup_from
from server.database import tables
from server.database.lab_tables import Search, SearchState, SearchStep
from server.database.locks import hold_lock
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.errors import ConflictError, LookError, NotFoundError
from server.jobs.cancel import cancel_job
from server.jobs.ledger import question_of
from server.jobs.submit import Order
from server.searches.plan import Wish, plan_search
from server.searches.steps import UNKNOWN, queue_step, results_of_step

NOT_PASSED = {"value": 0.0, "se": UNKNOWN, "passed": False}
"""What a confirmation without a verdict counts as."""


def submit_search(session: Session, job_id: str, wish: Wish, submitted_by: str | None = None, order: Order | None = None) -> Search:
    """Write a search and its first step. Ring the doorbell after the commit. Errors as `plan_search`."""
    planned, order = plan_search(session, job_id, wish), order or Order()
    question = question_of(planned.job, planned.arm)
    hold_lock(session, f"search {question}")
    _check_new(session, question)
    search = Search(
        id=tables.new_id("s"),
        base=planned.job,
        candidate=planned.arm.name,
        question=question,
        setup=planned.setup.document(),
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
        raise NotFoundError(f"there is no search {search_id}; `parity search parity.yaml` begins one")
    return search


def advance(database: Database, search_id: str, may_queue: Callable[[Session, str], None] = lambda _session, _sender: None) -> Job | None:
    """Record what the newest step gave, and queue the next one or end the search; the job that was queued. Safe to call at any time.

    What comes next is computed outside the write transaction. `may_queue` raises TooManyError for a sender whose queue is full.
    """
    with database.read() as session:
        search = find_search(session, search_id)
        if search.state != "running" or not search.steps or search.steps[-1].job.status not in JOB_ENDED:
            return None
        setup, newest = setup_from(search.setup), search.steps[-1]
        given_up = _why_given_up(session, newest)
        number = newest.number
        results = [*_results(search), *_new_results(session, newest)]
    barred, refusal = [setup.space.candidate], ""
    while True:
        decided = None if given_up else ask(setup.setting, results, barred)
        try:
            with database.write() as session:
                search = _locked(session, search_id)
                if search.state != "running" or search.steps[-1].number != number:
                    return None
                if decided is None:
                    end(search, "failed", given_up)
                    return None
                _keep_results(session, search.steps[-1])
                job = _write_next(session, search, setup, decided, refusal)
                if job is not None:
                    may_queue(session, search.submitted_by or "")
                return job
        except LookError as error:  # another job has judged this policy; the next best one is tried
            if decided is None or isinstance(decided, Outcome):
                raise
            barred.append(decided[0].policy)
            refusal = refusal or f"policy {decided[0].policy} cannot be confirmed: {error}"


def waiting(session: Session) -> Sequence[str]:
    """The searches whose newest step has ended."""
    open_searches = session.scalars(select(Search).where(Search.state == "running").order_by(Search.id))
    return [search.id for search in open_searches if search.steps and search.steps[-1].job.status in JOB_ENDED]


def cancel_search(session: Session, search_id: str) -> bool:
    """Cancel a search and the job of its newest step; False if it had already ended."""
    find_search(session, search_id)
    search = _locked(session, search_id)
    if search.state != "running":
        return False
    if search.steps:
        cancel_job(session, search.steps[-1].job_id, f"search {search_id} was cancelled")
    end(search, "cancelled", "cancelled by request")
    return True


def resume_search(session: Session, search_id: str) -> Job | None:
    """Let a cancelled or failed search go on: the step that it lacks is queued again. ConflictError for any other.

    A confirmation that had been queued is used, whatever became of it. If it is the newest step, `advance` queues what follows.
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
            return None
    return _write_next(session, search, setup, ask(setup.setting, _results(search), [setup.space.candidate]))


def end(search: Search, state: SearchState, message: str, policy: str | None = None) -> None:
    """End a search."""
    search.state, search.message, search.policy, search.finished_at = state, message, policy, time.time()


def spent(search: Search) -> float:
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
        step.results = results_of_step(session, step, evaluations_from(step.evaluations))


def _results(search: Search) -> list[Result]:
    """The results on record."""
    return [
        result
        for step in search.steps
        if step.results is not None
        for result in results_from(evaluations_from(step.evaluations), step.results)
    ]


def _new_results(session: Session, step: SearchStep) -> Sequence[Result]:
    """Those of the newest step, which has ended, if they are not on record yet."""
    evaluations = evaluations_from(step.evaluations)
    rows = None if step.results is not None else results_of_step(session, step, evaluations)
    return results_from(evaluations, rows) if rows is not None else ()


def _why_given_up(session: Session, step: SearchStep) -> str:
    """Why a step whose job has ended has no results; empty if it has them."""
    if step.results is not None or results_of_step(session, step, evaluations_from(step.evaluations)) is not None:
        return ""
    job = step.job
    reason = f"{job.code}: {job.message}" if job.code else job.message or job.status
    return f"step {step.number} ({job.id}) {job.status}: {reason}"[:2000]


def _write_next(
    session: Session, search: Search, setup: SearchSetup, decided: tuple[Evaluation, ...] | Outcome, refusal: str = ""
) -> Job | None:
    """Queue the next step, or end the search; the job. `refusal`: why a faster policy could not be confirmed."""
    if isinstance(decided, Outcome):
        if decided.policy is None:
            end(search, "none", "; ".join(filter(None, [decided.reason, refusal])))
        else:
            _check_confirmed(search, decided.policy)
            end(search, "found", decided.reason, decided.policy)
        return None
    cost = setup.cost(decided)
    if setup.budget is not None and spent(search) + cost > setup.budget:
        end(search, "none", f"the next step costs {cost:,.0f} steps, more than the budget of {setup.budget:,.0f} leaves")
        return None
    if decided[0].kind == "confirmation" and _used(search) >= setup.confirmations:
        end(search, "none", "no confirmation is left")
        return None
    job = queue_step(session, search, setup, decided)
    number = max((step.number for step in search.steps), default=0) + 1
    search.steps.append(SearchStep(number=number, job=job, evaluations=documents(decided), results=None, cost=cost, created_at=time.time()))
    session.flush()
    return job


def _used(search: Search) -> int:
    """Confirmations that were queued."""
    return sum(step.evaluations[0]["kind"] == "confirmation" for step in search.steps)


def _check_confirmed(search: Search, policy: str) -> None:
    """The last line before a policy is returned: that the judge's own verdict on record passed it, in a confirmation of this search."""
    for step in search.steps:
        own = step.evaluations[0]
        if own["kind"] == "confirmation" and own["policy"] == policy and any(each.outcome == "pass" for each in step.job.verdicts):
            return
    raise RuntimeError(f"search {search.id} would return policy {policy}, which no confirmation on record passed")


def _check_new(session: Session, question: str, but: str = "") -> None:
    """Refuse a second search on a question that an earlier one has used a confirmation on, or is still at."""
    for other in session.scalars(select(Search).where(Search.question == question, Search.id != but).order_by(Search.id)):
        if other.state == "running":
            raise ConflictError(f"search {other.id} is at this question; wait for it, or cancel it: parity search {other.id} --cancel")
        if _used(other):
            raise ConflictError(
                f"search {other.id} has used {_used(other)} of its {other.setup['confirmations']} confirmations on this question; those "
                "that one search declares share the error. Judge the job again under a new name (criteria.question), or resume it"
            )
