"""Several jobs side by side: a row per job, a column per recipe (or name) of a candidate, and what
keeps rows from being compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.frozen import frozen
from server.database.tables import Arm, Job, is_id
from server.documents.comparability import differences, facts
from server.documents.job_lists.summaries import JobSummary, job_summaries
from server.errors import InvalidError, NotFoundError
from server.jobs.verdict_rows import VerdictSummary, verdict_summary

MOST_JOBS = 30
Columns = Literal["recipe", "name"]


@frozen
class MatrixCell:
    """The verdicts of a job in one column: more than one where several of its candidates have this
    recipe; none where it has none.
    """

    column: str
    verdicts: list[VerdictSummary]
    waiting: list[str]


@frozen
class MatrixRow:
    """A job of the matrix. `differs` names what differs from the first job, so that gaps cannot be
    compared with its; empty: nothing.
    """

    job: JobSummary
    differs: list[str]
    cells: list[MatrixCell]


@frozen
class Matrix:
    """Jobs by recipes or names of candidates; `comparable` is true where no row differs from the
    first.
    """

    by: Columns
    columns: list[str]
    rows: list[MatrixRow]
    comparable: bool


def matrix(session: Session, ids: Sequence[str], by: Columns) -> Matrix:
    """The matrix of these jobs, in this order. InvalidError for no or too many jobs, NotFoundError
    for an unknown one.
    """
    job_ids = list(dict.fromkeys(ids))
    if not 1 <= len(job_ids) <= MOST_JOBS:
        raise InvalidError(f"{len(job_ids)} jobs are selected; expected 1 to {MOST_JOBS}")
    valid_ids = [job_id for job_id in job_ids if is_id("j", job_id)]
    options = (selectinload(Job.arms), selectinload(Job.verdicts))
    jobs = {
        job.id: job
        for job in session.scalars(select(Job).options(*options).where(Job.id.in_(valid_ids)))
    }
    missing = [job_id for job_id in job_ids if job_id not in jobs]
    if missing:
        raise NotFoundError(
            f"job {missing[0]!r:.80} does not exist; `parity status` lists the jobs"
        )
    columns = list(
        dict.fromkeys(_column(arm, by) for job_id in job_ids for arm in jobs[job_id].arms[1:])
    )
    summaries = job_summaries(session, job_ids)
    judged = {job_id: facts(jobs[job_id], _judge(jobs[job_id])) for job_id in job_ids}
    rows = [
        MatrixRow(
            job=summary,
            differs=differences(judged[job_ids[0]], judged[summary.id]),
            cells=[_cell(jobs[summary.id], column, by) for column in columns],
        )
        for summary in summaries
    ]
    return Matrix(
        by=by, columns=columns, rows=rows, comparable=not any(row.differs for row in rows)
    )


def _column(arm: Arm, by: Columns) -> str:
    if by == "recipe":
        return arm.stated_recipe or arm.recipe
    return arm.name


def _cell(job: Job, column: str, by: Columns) -> MatrixCell:
    verdicts = {row.candidate: row for row in job.verdicts}
    names = [arm.name for arm in job.arms[1:] if _column(arm, by) == column]
    return MatrixCell(
        column=column,
        verdicts=[verdict_summary(verdicts[name]) for name in names if name in verdicts],
        waiting=[name for name in names if name not in verdicts],
    )


def _judge(job: Job) -> str | None:
    """The version of the judge that gave the job's verdicts; None before."""
    return str(job.verdicts[0].read_document()["engine_version"]) if job.verdicts else None
