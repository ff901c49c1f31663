"""Jobs that belong to another: the analyses of its gap. The lab has them, if any."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Subquery, func, select
from sqlalchemy.orm import Session

from parity.extensions import lab
from server.database.tables import Job


def child_jobs() -> Subquery | None:
    """The jobs that belong to others, each with its parent; None without the lab."""
    tables = lab().part("tables")
    if tables is None:
        return None
    jobs: Subquery = tables.belonging()
    return jobs


def parent_jobs(session: Session, ids: Sequence[str]) -> Mapping[str, str]:
    """The job to which each of these belongs; one on its own has no entry."""
    rows = child_jobs()
    if rows is None:
        return {}
    statement = select(rows.c.job_id, rows.c.parent_job).where(rows.c.job_id.in_(ids))
    return {row.job_id: row.parent_job for row in session.execute(statement)}


def parentless() -> list[ColumnElement[bool]]:
    """The condition that a job belongs to no other."""
    rows = child_jobs()
    if rows is None:
        return []
    return [Job.id.not_in(select(rows.c.job_id))]


def child_counts(session: Session, ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """How many analyses belong to each of these jobs; a job without any has no entry."""
    rows = child_jobs()
    counted: dict[str, dict[str, int]] = defaultdict(dict)
    if rows is not None:
        columns = rows.c.parent_job, rows.c.kind
        for parent, kind, number in session.execute(
            select(*columns, func.count()).where(columns[0].in_(ids)).group_by(*columns)
        ):
            counted[parent][kind] = number
    return counted
