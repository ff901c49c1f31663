"""The progress of a job's runs, for pages that follow it.

Recorded steps are no events: all runs of a job would wait for each other's commit. They are read
from the runs' rows. A reader that misses one sees the next, or, when it connects again, the
newest.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.tables import Arm, Run


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True, eq=False)
class RunProgress:
    """Where a training run of a job is, as of `recorded_at`."""

    job_id: str
    run_id: str
    arm: str
    step: int
    steps_per_second: float | None
    recorded_at: float


def progress(session: Session, job_ids: Collection[str]) -> list[RunProgress]:
    """The progress of the runs of these jobs that train and have recorded steps."""
    columns = (Run.job_id, Run.id, Arm.name, Run.steps_done, Run.steps_per_second, Run.recorded_at)
    training = (Run.job_id.in_(job_ids), Run.state == "running", Run.recorded_at.is_not(None))
    rows = session.execute(select(*columns).join(Arm, Run.arm_id == Arm.id).where(*training))
    return [
        RunProgress(
            job_id=job, run_id=run, arm=arm, step=steps - 1, steps_per_second=speed, recorded_at=at
        )
        for job, run, arm, steps, speed, at in rows
        if at is not None
    ]
