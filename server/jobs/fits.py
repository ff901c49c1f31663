"""Whether a new job can train on the machines that are registered, before anybody waits for it.

What it answers: can no live worker that has the job's devices ever train it, and what would have
to change? Where no such worker is live the job waits (`server.jobs.workers.why_waiting`): one may
come that can.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from server.database.tables import Job, Worker
from server.errors import InvalidError
from server.jobs.needs import too_large
from server.jobs.workers import devices_fit, live_workers, refused_mesh
from training.spec import JobSpec


def suited(session: Session, job: Job, lease_seconds: float) -> Sequence[Worker]:
    """The live workers of a job's kind on which a run finds as many devices as it trains on."""
    return [
        worker
        for worker in live_workers(session, lease_seconds)
        if worker.capability == job.capability and devices_fit(worker, job)
    ]


def refusal(job: Job, spec: JobSpec, workers: Sequence[Worker]) -> str | None:
    """Why none of these workers can hold a job, by the first of them; None if one can, or if there
    are none.
    """
    reasons = [(worker, refused_mesh(worker, job) or too_large(spec, worker)) for worker in workers]
    if not reasons or any(reason is None for _, reason in reasons):
        return None
    worker, reason = reasons[0]
    devices = "device" if job.devices == 1 else f"{job.devices} devices"
    return f"worker {worker.name} has the {devices} of this job: {reason}"


def check_fits(session: Session, job: Job, spec: JobSpec, lease_seconds: float) -> None:
    """InvalidError if workers with the devices of a new job are live, and none of them can hold
    it.
    """
    if reason := refusal(job, spec, suited(session, job, lease_seconds)):
        raise InvalidError(reason)
