"""Who asked for a job in a gate, and which groups, such as pull requests, wait for it.

A group belongs to its principal: `nightly` of two principals is two groups. `jobs.gate_groups` has
a line for each:

    PRINCIPAL<tab>GROUP    the group's newest gate waits for the job
    PRINCIPAL<tab>         the principal wants it for good: a gate without a group
    <tab>PRINCIPAL         the principal asked for it, and waits no more
    GROUP                  written by older versions: a group of who submitted the job

None: it was submitted without a gate, and who submitted it wants it for good. Who asked is kept,
because nobody signs off a job that they asked for themselves. Call the functions that write under
the lock `gates`.
"""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.states import JOB_OPEN
from server.database.tables import LOCAL_ID, Job
from server.jobs.lifecycle import cancel_job

_TAB = "\t"  # no group has one


def requesters_of(job: Job) -> set[str]:
    """The principals that submitted a job, or asked for it in a gate."""
    parts = (line.partition(_TAB) for line in _lines(job.gate_groups, job.submitted_by))
    return {job.submitted_by or LOCAL_ID, *(first or second for first, _, second in parts)}


def note(job: Job, principal: str, group: str, *, is_new: bool) -> None:
    """Remember who asked for a job. Who gives no group wants it for good, so that no group's newer
    question cancels it.
    """
    before = set() if is_new else _lines(job.gate_groups, job.submitted_by)
    if job.status in JOB_OPEN:
        job.gate_groups = sorted({*before, f"{principal}{_TAB}{group}"})
    elif principal not in requesters_of(job):
        job.gate_groups = sorted({*before, f"{_TAB}{principal}"})


def cancel_superseded(session: Session, job: Job, principal: str, group: str) -> None:
    """Cancel the open jobs that only this group waited for; its newest question is answered by
    another one.
    """
    mine = f"{principal}{_TAB}{group}"
    open_jobs = (
        select(Job.id, Job.gate_groups, Job.submitted_by)
        .where(Job.status.in_(JOB_OPEN), Job.id != job.id)
        .order_by(Job.id)
    )
    for job_id, groups, submitter in session.execute(open_jobs).all():
        lines = _lines(groups, submitter)
        left = lines - {mine}
        if left == lines:
            continue
        if all(line.startswith(_TAB) for line in left):
            cancel_job(session, job_id, f"superseded by job {job.id}, the newer one of {group}")
        else:
            session.get_one(Job, job_id).gate_groups = sorted({*left, f"{_TAB}{principal}"})


def _lines(groups: Sequence[str] | None, submitter: str | None) -> set[str]:
    """The lines of a job as this version writes them."""
    owner = submitter or LOCAL_ID
    return {
        line if _TAB in line else f"{owner}{_TAB}{line}"
        for line in (("",) if groups is None else groups)
    }
