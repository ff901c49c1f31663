"""Can this version read everything that is stored as JSON?"""

from collections.abc import Callable, Iterator
from functools import partial

from sqlalchemy.orm import Session

from server.check.damage import BACKUP, Checked, Damage
from server.check.job_pages import job_pages
from server.database.sessions import Database
from server.database.tables import Job
from server.errors import StoredFormError
from server.jobs import forecasts
from server.jobs.fingerprint import job_spec
from server.jobs.imported_noise import imported_noise_tables

_ROWS_A_READ = 100


def check_stored_forms(database: Database) -> Iterator[Checked]:
    """Read the forms of each job, and of what jobs share, as the service reads them."""
    for jobs in job_pages(database, _ROWS_A_READ):
        damage = tuple(found for job in jobs for found in _damage_of(job))
        yield Checked(kind="job", pieces=len(jobs), damage=damage)
    with database.read() as session:
        yield Checked(kind="shared form", pieces=1, damage=tuple(_shared(session)))


def _damage_of(job: Job) -> Iterator[Damage]:
    if not job.has_evaluations:  # whose losses `server.check.evaluations` reads
        yield from _tried(lambda: job_spec(job), f"job {job.id}: its specification")
    yield from _tried(job.read_policy, f"job {job.id}: its policy")
    for arm in job.arms:
        place = f"job {job.id}, arm {arm.name}"
        yield from _tried(partial(getattr, arm, "overrides"), f"{place}: overrides")
        yield from _tried(partial(getattr, arm, "stated_recipe"), f"{place}: its recipe")
        yield from _tried(partial(forecasts.forecasts, job, arm.name), f"{place}: forecasts")
        yield from _tried(partial(forecasts.pairs_of, job, arm), f"{place}: sums of forecasts")


def _shared(session: Session) -> Iterator[Damage]:
    yield from _tried(lambda: imported_noise_tables(session), "imported noise tables")


def _tried(read: Callable[[], object], place: str) -> Iterator[Damage]:
    """The damage that reading a form finds."""
    try:
        read()
    except StoredFormError as error:
        problem = error.detail.partition(";")[0]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = f"{place} cannot be read ({error!r:.200})"
    else:
        return
    newer = "where a newer version stored it: run that version (docs/operate.md, Upgrade)"
    yield Damage(what=problem, remedies=(newer, BACKUP))
