"""How much one job and one sender may ask for, so that a mistake in a script does not fill the
queue.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.database.states import HELD_KINDS
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

    Of the runs that are held back as many count as a job can queue at once, one for each run that
    they go on from: they are queued later, when nobody is there to be refused.
    """
    queued = (
        select(func.count())
        .select_from(Run)
        .join(Job, Job.id == Run.job_id)
        .where(Run.state == "queued", Run.capability != "external", Run.kind.not_in(HELD_KINDS))
        .where(Job.submitted_by == sender)
    )
    queued_at_once = (
        select(Run.job_id, Run.forked_from)
        .join(Job, Job.id == Run.job_id)
        .where(Run.state.in_(("queued", "awaiting_data")), Run.kind.in_(HELD_KINDS))
        .where(Job.submitted_by == sender)
        .distinct()
        .subquery()
    )
    held = select(func.count()).select_from(queued_at_once)
    waiting = session.scalars(queued).one() + session.scalars(held).one()
    if waiting > settings.max_queued_runs:
        raise TooManyError(
            f"{waiting} of your runs would wait in the queue; expected at most "
            f"{settings.max_queued_runs} (PARITY_MAX_QUEUED_RUNS): "
            "wait until some have started, or cancel jobs that you no longer need"
        )
