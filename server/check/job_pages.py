"""All jobs of the record a page at a time, so that a check holds few of them in memory."""

from collections.abc import Iterator, Sequence

from sqlalchemy import select

from server.database.sessions import Database
from server.database.tables import Job


def job_pages(database: Database, jobs_a_page: int) -> Iterator[Sequence[Job]]:
    """The jobs in the order of their ids. A page is read in a transaction of its own, which lasts
    until the next one is asked for.
    """
    last = ""
    while True:
        with database.read() as session:
            page = select(Job).where(Job.id > last).order_by(Job.id).limit(jobs_a_page)
            jobs = session.scalars(page).all()
            if not jobs:
                return
            last = jobs[-1].id
            yield jobs
