"""How much one job and one sender may ask for, so that a mistake in a script does not fill the
queue.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.database.tables import Job, Run
from server.errors import InvalidError, TooManyError
from server.settings import Settings
from training.spec import JobSpec


def check_size(settings: Settings, spec: JobSpec) -> None:
    """InvalidError for a job with more runs or steps than the settings allow."""
    runs = sum(arm.replicates for arm in spec.arms) + len(spec.arms) * (
        spec.short_reruns.runs if spec.short_reruns else 0
    )
    if runs > settings.max_runs_per_job:
        raise InvalidError(
            f"the job has {runs} runs; expected at most {settings.max_runs_per_job} "
            "(PARITY_MAX_RUNS_PER_JOB): use fewer replicates or candidates, or several jobs"
        )
    if spec.schedule.steps > settings.max_steps:
        raise InvalidError.at(
            "/job/schedule/steps",
            f"schedule.steps is {spec.schedule.steps:,}; expected 1 to {settings.max_steps:,} "
            "(PARITY_MAX_STEPS)",
        )


def check_queue(session: Session, settings: Settings, sender: str) -> None:
    """TooManyError if the sender has more runs in the queue than the settings allow, those of this
    transaction included.
    """
    queued = select(func.count()).select_from(Run).join(Job, Job.id == Run.job_id)
    waiting = (
        session.scalar(
            queued.where(
                Run.state == "queued", Run.capability != "external", Job.submitted_by == sender
            )
        )
        or 0
    )
    if waiting > settings.max_queued_runs:
        raise TooManyError(
            f"{waiting} of your runs would wait in the queue; expected at most "
            f"{settings.max_queued_runs} (PARITY_MAX_QUEUED_RUNS): "
            "wait until some have started, or cancel jobs that you no longer need"
        )
