"""The kinds of jobs of analyses and searches (`server.jobs.kinds`), and what the key `search` of a job file holds (`SearchOfFile`)."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from parity.search.evaluations import evaluations_from
from parity.search.setup import forks_of
from parity.search.setup import setup_from as search_setup
from parity.why.answer import Answer
from parity.why.search import steps_spent
from parity.why.setup import MeasureRequest, setup_from
from server.database.lab_tables import Analysis, SearchStep
from server.database.tables import Job, Run
from server.jobs.analyses import answer_of, baseline_of, results_of
from server.jobs.fingerprint import job_spec, run_spec
from server.jobs.kinds import Kind, Outcome
from server.searches.plan import SearchOfFile


def _request(session: Session, run: Run) -> MeasureRequest:
    """What a run of kind why measures: an analysis, or the forks of a step of a search, whose job has an arm for each policy."""
    own, results = session.get(Analysis, run.job_id), results_of(session, run.job_id)
    baseline = policies = None
    if own is not None:
        setup = own.setup
        spent = steps_spent(setup_from(setup), results)
        if own.against == "baseline":
            baseline = baseline_of(run.job).document()
    else:
        step, spec = session.scalars(_step(run.job)).one(), job_spec(run.job)
        forks = forks_of(search_setup(step.search.setup), evaluations_from(step.evaluations))
        setup = forks.document()
        spent = float(forks.fork_steps * len(results))
        policies = {arm.name: spec.run_of(arm, run.replicate).document() for arm in spec.candidates}
    return {
        "setup": setup,
        "parents": {parent: run_spec(session.get_one(Run, parent)).document() for parent in setup["parents"]},
        "baseline": baseline,
        "policies": policies,
        "results": results,
        "spent": spent,
    }


def _conclude(session: Session, job: Job) -> Outcome:
    """How the job of an analysis, or of forks or a pilot, ends: complete (an analysis with its answer) if its run finished; no verdict."""
    (run,) = job.runs
    analysis = session.get(Analysis, job.id)
    if run.state == "finished":
        write = None if analysis is None else partial(_keep_answer, job.id, answer_of(session, analysis))
        return Outcome(verdicts=(), complete=True, write=write)
    message = run.message or f"its run was {run.state}"
    if analysis is None:
        why = f"{run.code}: {run.message}" if run.code else f"it was {run.state}"
        message = f"1 of 1 runs did not finish; run {run.id} of arm {run.arm.name}: {why}"
    return Outcome(verdicts=(), code=run.code or "CANCELLED", message=message)


def _keep_answer(job_id: str, answer: Answer, session: Session) -> None:
    session.get_one(Analysis, job_id).answer = dict(answer)


def _page(session: Session, job: Job) -> str:
    """That of the analysis, or of the search; only confirmations of a search have a page as jobs."""
    if session.get(Analysis, job.id) is not None:
        return f"/jobs/{job.id}/why"
    return f"/searches/{session.scalars(_step(job)).one().search_id}"


def _links(session: Session, job: Job) -> dict[str, str]:
    return {} if session.get(Analysis, job.id) is None else {"why": f"/api/v1/jobs/{job.id}/why"}


def _step(job: Job) -> Select[SearchStep]:
    return select(SearchStep).where(SearchStep.job_id == job.id)


KINDS = {
    "why": Kind(request=_request, conclude=_conclude, page=_page, links=_links),
    "pilot": Kind(request=lambda _session, _run: None, conclude=_conclude, page=_page, links=_links),
}

__all__ = ["KINDS", "SearchOfFile"]
