"""Whether a new job can train on the machines that are registered, before anybody waits for it.

What it answers: can no live worker that has the job's devices ever train it, and what would have
to change? Where no such worker is live the job waits (`server.jobs.workers.why_waiting`): one may
come that can.
"""

from sqlalchemy.orm import Session

from server.database.tables import Job
from server.errors import InvalidError
from server.jobs.workers import devices_fit, live_workers, refused_mesh


def check_fits(session: Session, job: Job, lease_seconds: float) -> None:
    """InvalidError if workers with the devices of a new job are live, and none of them can hold
    it.
    """
    suited = [
        worker
        for worker in live_workers(session, lease_seconds)
        if worker.capability == job.capability and devices_fit(worker, job)
    ]
    refusals = [(worker, refused_mesh(worker, job)) for worker in suited]
    if not refusals or any(reason is None for _, reason in refusals):
        return
    worker, reason = refusals[0]
    raise InvalidError(f"worker {worker.name} has the {job.devices} devices of this job: {reason}")
