"""Jobs by their answer, as a filter and as counts: the worst of their candidates' verdicts; before
a job has one, that it trains, or did not finish.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from server.database.states import JOB_OPEN
from server.database.tables import Job, JobStatus
from server.documents.job_lists.filters import JobFilters
from server.documents.job_lists.page import MOST_COUNTED

AnswerState = Literal["fail", "inconclusive", "pass", "running", "unfinished"]
ANSWERS: tuple[AnswerState, ...] = get_args(AnswerState)
_UNFINISHED: tuple[JobStatus, ...] = ("failed", "cancelled")


def answer_condition(state: AnswerState) -> ColumnElement[bool]:
    """The condition that a job has this answer."""
    if state == "running":
        return Job.status.in_(JOB_OPEN)
    if state == "unfinished":
        return Job.status.in_(_UNFINISHED)
    return Job.answer == state


def answer_counts(
    session: Session, filters: JobFilters, also: Sequence[ColumnElement[bool]] = ()
) -> Mapping[str, int]:
    """How many jobs have each answer; "" are those without any, such as analyses. Of more than
    10,000 jobs the newest are counted.
    """
    conditions = [*filters.conditions(), *also]
    some = (
        select(Job.status, Job.answer)
        .where(*conditions)
        .order_by(Job.id.desc())
        .limit(MOST_COUNTED + 1)
        .subquery()
    )
    counts: dict[str, int] = defaultdict(int)
    for row in session.execute(select(*some.c, func.count().label("jobs")).group_by(*some.c)):
        counts[_state(row.status, row.answer)] += row.jobs
    return counts


def _state(status: JobStatus, answer: str | None) -> str:
    if status in JOB_OPEN:
        return "running"
    if status in _UNFINISHED:
        return "unfinished"
    return answer or ""
