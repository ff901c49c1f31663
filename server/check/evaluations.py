"""Are the held-out losses of each job of engine evaluations as they were sent?"""

from collections.abc import Iterator

from sqlalchemy import select

from server.check.damage import BACKUP, Checked, Damage
from server.database.sessions import Database
from server.database.tables import EVALUATIONS, Job
from server.errors import ServiceError
from server.jobs.evaluations import case_of


def check_evaluations(database: Database) -> Iterator[Checked]:
    """Read the losses of each job, one by one: they may be long."""
    with database.read() as session:
        ids = session.scalars(select(Job.id).where(Job.engine == EVALUATIONS).order_by(Job.id))
        job_ids = ids.all()
    for job_id in job_ids:
        with database.read() as session:
            job = session.get(Job, job_id)
            damage = None
            if job is not None:  # retention may have deleted it meanwhile
                try:
                    case_of(session, job)
                except ServiceError as error:
                    damage = Damage(what=error.detail.partition(";")[0], remedies=(BACKUP,))
        yield Checked(kind="bundle", pieces=1, damage=() if damage is None else (damage,))
