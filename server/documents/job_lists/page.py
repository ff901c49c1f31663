"""A page of the list of jobs: filtered, sorted, and continued where the page before it ended, so
that page 200 costs what page 1 does.

Ids first: filters and orders read indexes, not the rows with their specifications. Jobs that lack
what they are sorted by come last.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from parity.frozen import frozen
from server.database.tables import Job, JobTag, is_id
from server.documents.job_lists.filters import JobFilters, Sort
from server.documents.job_lists.summaries import JobSummary, job_summaries
from server.errors import InvalidError
from server.web.requests.cursors import cursor_of, row_id_of

# A list counts no further: a larger number says no more than "many", and its cost would grow with
# the record.
MOST_COUNTED = 10_000
_TAGS_OFFERED = 200
_COLUMNS: Mapping[Sort, InstrumentedAttribute[Any]] = {
    "name": Job.name,
    "ended": Job.finished_at,
    "gap": Job.worst_gap,
}
_DESCENDING = ("newest", "ended", "gap")


@frozen
class JobPage:
    """A page of jobs; `next_cursor` is null on the last page.

    `total` is the number of jobs that match, null unless `count` is true; it stops at 10,000, and
    `more` says whether there are more.
    """

    items: list[JobSummary]
    next_cursor: str | None
    total: int | None
    more: bool | None


def job_list(
    session: Session,
    filters: JobFilters,
    sort: Sort,
    cursor: str | None,
    limit: int,
    *,
    counted: bool,
    also: Sequence[ColumnElement[bool]] = (),
) -> JobPage:
    """One page of the jobs for which the conditions in `also` hold, too. InvalidError for a cursor
    that is not of this order, or a date that is none.
    """
    conditions = [*filters.conditions(), *also]
    column = _COLUMNS.get(sort)
    statement = (
        select(Job.id, (Job.id if column is None else column).label("value"))
        .where(*conditions)
        .limit(limit + 1)
    )
    if cursor:
        statement = statement.where(_jobs_after_cursor(sort, cursor))
    rows = session.execute(_ordered(statement, sort)).all()
    shown = rows[:limit]
    following = _cursor(sort, shown[-1].value, shown[-1].id) if len(rows) > limit else None
    total, more = None, None
    if counted:  # a list that is one page is counted by now
        total = len(rows) if not cursor and len(rows) <= limit else _count(session, conditions)
        total, more = min(total, MOST_COUNTED), total > MOST_COUNTED
    return JobPage(
        items=job_summaries(session, [row.id for row in shown]),
        next_cursor=following,
        total=total,
        more=more,
    )


def known_tags(session: Session) -> list[str]:
    """The tags that a filter offers: the first of all in alphabetical order."""
    # From one tag to the next in the index: DISTINCT would read the rows of all jobs.
    tags = select(func.min(JobTag.tag).label("tag")).cte(recursive=True)
    following = select(func.min(JobTag.tag)).where(JobTag.tag > tags.c.tag).scalar_subquery()
    tags = tags.union_all(select(following).where(tags.c.tag.is_not(None)))
    return [
        *session.scalars(select(tags.c.tag).where(tags.c.tag.is_not(None)).limit(_TAGS_OFFERED))
    ]


def _count(session: Session, conditions: list[ColumnElement[bool]]) -> int:
    some = select(Job.id).where(*conditions).limit(MOST_COUNTED + 1).subquery()
    return session.scalar(select(func.count()).select_from(some)) or 0


def _ordered(statement: Select[Any], sort: Sort) -> Select[Any]:
    column = _COLUMNS.get(sort)
    descending = sort in _DESCENDING
    id_order = Job.id.desc() if descending else Job.id.asc()
    if column is None:
        return statement.order_by(id_order)
    return statement.order_by(column.desc().nulls_last() if descending else column.asc(), id_order)


def _cursor(sort: Sort, value: Any, job_id: str) -> str:
    if sort not in _COLUMNS:
        return cursor_of(job_id)
    return base64.urlsafe_b64encode(json.dumps([sort, value, job_id]).encode()).decode()


def _jobs_after_cursor(sort: Sort, cursor: str) -> ColumnElement[bool]:
    """The jobs that follow a cursor in this order."""
    column, descending = _COLUMNS.get(sort), sort in _DESCENDING
    value, job_id = (None, row_id_of(cursor, "j")) if column is None else _parsed(sort, cursor)
    later = Job.id < job_id if descending else Job.id > job_id
    if column is None:
        return later
    if value is None:
        return and_(column.is_(None), later)
    beyond = column < value if descending else column > value
    return or_(beyond, and_(column == value, later), *([column.is_(None)] if descending else []))


def _parsed(sort: Sort, cursor: str) -> tuple[Any, str]:
    try:
        made_for, value, job_id = json.loads(
            base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        )
    except (binascii.Error, ValueError, TypeError, RecursionError):
        made_for, value, job_id = None, None, None
    if sort == "name":
        right = isinstance(value, str)
    else:
        right = value is None or (isinstance(value, float) and math.isfinite(value))
    if made_for != sort or not right or not isinstance(job_id, str) or not is_id("j", job_id):
        raise InvalidError(
            f"cursor is {cursor!r:.80}, expected the next_cursor of an earlier page with sort "
            f"{sort}; leave it out for the first"
        )
    return value, job_id
