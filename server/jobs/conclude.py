"""How a job comes to its end: its curves are read and judged outside any write, then the verdicts are written in one."""

from __future__ import annotations

import logging

from server.database.sessions import Database
from server.jobs import submit as jobs
from server.jobs.submit import Outcome

_log = logging.getLogger(__name__)


def conclude(database: Database, job_id: str) -> None:
    """Judge a job and write its verdicts if all its runs have ended and nobody did. Safe to call at any time, twice too."""
    with database.read() as session:
        if not jobs.ready_to_conclude(session, job_id):
            return
        try:
            outcome = jobs.decide(session, job_id)
        except Exception as error:  # noqa: BLE001 (whatever breaks the judge, the job must end and say so)
            _log.exception("job %s could not be judged", job_id)
            outcome = Outcome(verdicts=(), code="JUDGE_FAILED", message=f"the curves are kept, but judging them failed: {error!r}")
    with database.write() as session:
        jobs.conclude(session, job_id, outcome)
