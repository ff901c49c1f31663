"""The kinds of jobs that the lab has: what a worker measures for one, how it ends, and where its
page is (`server.jobs.job_kinds`).
"""

from functools import partial

from sqlalchemy.orm import Session

from parity_lab.analysis import steps_spent
from parity_lab.analysis_plan import MeasureRequest, setup_from
from parity_lab.answer import AnalysisAnswer
from parity_lab.server.analyses import answer_of
from parity_lab.server.forks import results_of
from parity_lab.server.healings import conclude_healing
from parity_lab.server.judged_jobs import readable_spec
from parity_lab.server.replays import record_requests
from parity_lab.server.tables import Analysis
from server.database.tables import Job, Run
from server.jobs.fingerprint import run_spec
from server.jobs.job_kinds import JobOutcome, Kind


def _request(session: Session, run: Run) -> MeasureRequest:
    analysis, results = session.get_one(Analysis, run.job_id), results_of(session, run.job_id)
    setup = setup_from(analysis.setup)
    baseline = None
    if analysis.against == "baseline":
        spec = readable_spec(run.job)
        baseline = spec.run_of(spec.baseline, 0).document()
    return {
        "setup": analysis.setup,
        "parents": {
            parent: run_spec(session.get_one(Run, parent)).document() for parent in setup.parents
        },
        "baseline": baseline,
        "records": record_requests(session, setup.replays),
        "results": results,
        "spent": steps_spent(setup, results),
    }


def _conclude(session: Session, job: Job) -> JobOutcome:
    """Complete, with its answer, if its run finished; no verdict."""
    (run,) = job.runs
    if run.state != "finished":
        return JobOutcome(
            code=run.code or "CANCELLED", message=run.message or f"its run was {run.state}"
        )
    answer = answer_of(session, session.get_one(Analysis, job.id))
    replay = answer["replay"]
    return JobOutcome(
        code=replay["code"],
        message=replay["sentence"] if replay["code"] else None,
        complete=True,
        write=partial(_keep_answer, job.id, answer),
    )


def _keep_answer(job_id: str, answer: AnalysisAnswer, session: Session) -> None:
    session.get_one(Analysis, job_id).answer = dict(answer)


def _page(_session: Session, job: Job) -> str:
    return f"/jobs/{job.id}/why"


def _links(_session: Session, job: Job) -> dict[str, str]:
    return {"why": f"/api/v1/jobs/{job.id}/why"}


def _no_request(_session: Session, _run: Run) -> None:
    """A fork of a healing trains like any other run."""


def _healing_page(_session: Session, job: Job) -> str:
    return f"/jobs/{job.id}/heal"


def _healing_links(_session: Session, job: Job) -> dict[str, str]:
    return {"heal": f"/api/v1/jobs/{job.id}/heal"}


KINDS = {
    "why": Kind(request=_request, conclude=_conclude, page=_page, links=_links),
    "heal": Kind(
        request=_no_request, conclude=conclude_healing, page=_healing_page, links=_healing_links
    ),
}
