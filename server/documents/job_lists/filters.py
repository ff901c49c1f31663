"""Which jobs a list shows: one set of filters for the page, the API and the trend, each of them a
part of the URL.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from fastapi import Query
from sqlalchemy import ColumnElement, exists, false, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from parity.canonical_json import fields_of
from parity.frozen import frozen
from server.database.tables import Arm, Baseline, Job, JobStatus, JobTag, Verdict
from server.documents.job_lists.parent_jobs import child_jobs
from server.errors import InvalidError

VerdictWord = Literal["pass", "fail", "inconclusive"]
Sort = Literal["newest", "oldest", "name", "ended", "gap"]
OUTCOMES: tuple[VerdictWord, ...] = get_args(VerdictWord)
STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)
SORTS: tuple[Sort, ...] = get_args(Sort)
_TEXT = 200


@frozen
class JobFilters:
    """Filters of a list of jobs, from the parameters of a request; each that is set must hold.
    Empty text and no tags filter nothing.

    `name` and `model` are parts of the name in any `revision` is how it begins; `recipe` is that of
    a candidate, `verdict` that on a candidate; a job has all of the `tags`; `since` and `until` are
    the days of its submission (UTC), both included; `baseline` is the name of a promoted one.
    """

    status: Annotated[JobStatus | None, Query(description="only jobs with this status")] = None
    verdict: Annotated[
        VerdictWord | None, Query(description="only jobs with this verdict on a candidate")
    ] = None
    find: Annotated[
        str,
        Query(
            max_length=_TEXT,
            description="only jobs with this text in the name, the model, a recipe of a candidate "
            "or a tag",
        ),
    ] = ""
    name: Annotated[
        str, Query(max_length=_TEXT, description="only jobs whose name contains this text")
    ] = ""
    tags: Annotated[
        list[str] | None,
        Query(
            alias="tag", max_length=20, description="only jobs with this tag; repeat it for several"
        ),
    ] = None
    recipe: Annotated[
        str, Query(max_length=_TEXT, description="only jobs with a candidate of this recipe")
    ] = ""
    model: Annotated[
        str, Query(max_length=_TEXT, description="only jobs whose model's name contains this text")
    ] = ""
    revision: Annotated[
        str, Query(max_length=_TEXT, description="only jobs whose revision begins with this text")
    ] = ""
    branch: Annotated[str, Query(max_length=_TEXT, description="only jobs of this branch")] = ""
    baseline: Annotated[
        str,
        Query(
            max_length=_TEXT, description="only jobs that name a version of this promoted baseline"
        ),
    ] = ""
    since: Annotated[
        str,
        Query(
            max_length=10, description="only jobs submitted on this day (UTC, 2026-11-23) or later"
        ),
    ] = ""
    until: Annotated[
        str, Query(max_length=10, description="only jobs submitted on this day (UTC) or earlier")
    ] = ""
    config_hash: Annotated[
        str | None,
        Query(
            pattern="^[0-9a-f]{64}$",
            description="only jobs with the same specification, policy, judge and revision",
        ),
    ] = None
    parent_job: Annotated[
        str,
        Query(
            max_length=_TEXT,
            description="only the analyses of this job",
        ),
    ] = ""

    def __post_init__(self) -> None:
        for name, value in fields_of(self).items():
            if isinstance(value, str):
                object.__setattr__(self, name, value.strip())
        object.__setattr__(
            self, "tags", list(dict.fromkeys(tag.strip() for tag in self.tags or () if tag.strip()))
        )

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filters as conditions on `Job`. InvalidError for a date that is none."""
        pairs: list[tuple[object, ColumnElement[bool]]] = [
            (self.status, Job.status == self.status),
            (self.name, _contains(Job.name, self.name)),
            (self.model, Job.model.icontains(self.model, autoescape=True)),
            (self.revision, Job.revision.startswith(self.revision, autoescape=True)),
            (self.branch, Job.branch == self.branch),
            (
                self.baseline,
                Job.baseline_id.in_(select(Baseline.id).where(Baseline.name == self.baseline)),
            ),
            (self.config_hash, Job.config_hash == self.config_hash),
        ]
        conditions = [condition for value, condition in pairs if value]
        # Ids sort by the time of submission, and have an index.
        if self.since:
            conditions.append(Job.id >= _first_id(_day("since", self.since)))
        if self.until:
            conditions.append(Job.id < _first_id(_day_after(_day("until", self.until))))
        # SQLite looks into other tables in this order; a tag leaves out the most jobs, a recipe the
        # fewest.
        conditions += [
            exists().where(JobTag.job_id == Job.id, JobTag.tag == tag) for tag in self.tags or ()
        ]
        if self.verdict:
            conditions.append(
                exists().where(Verdict.job_id == Job.id, Verdict.outcome == self.verdict)
            )
        if self.recipe:
            conditions.append(
                exists().where(
                    Arm.job_id == Job.id, Arm.recipe == self.recipe, Arm.role == "candidate"
                )
            )
        if self.parent_job:
            rows = child_jobs()
            conditions.append(
                false()
                if rows is None
                else Job.id.in_(select(rows.c.job_id).where(rows.c.parent_job == self.parent_job))
            )
        if self.find:
            conditions.append(_found(self.find))
        return conditions

    def query(self) -> list[tuple[str, str]]:
        """The filters that are set as parameters of a URL."""
        pairs: list[tuple[str, str]] = []
        for name, value in fields_of(self).items():
            if name == "tags":
                pairs += [("tag", tag) for tag in value or ()]
            elif value:
                pairs.append((name, value))
        return pairs


def _day(name: str, text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidError(f"{name} is {text!r}; expected a day such as 2026-11-23") from None


def _day_after(day: datetime) -> datetime:
    """The day after, or the end of the calendar on its last day."""
    return day + min(timedelta(days=1), datetime.max.replace(tzinfo=UTC) - day)


def _contains(column: InstrumentedAttribute[Any], text: str) -> ColumnElement[bool]:
    """Whether a column contains this text, in any case. PostgreSQL's ILIKE, which `icontains`
    becomes, takes half as long again.
    """
    literal = re.sub("[%_/]", r"/\g<0>", text)
    return func.lower(column).like(func.lower(f"%{literal}%"), escape="/")


def _found(text: str) -> ColumnElement[bool]:
    """Whether a job has this text in its name, its model, a recipe of a candidate or a tag. The
    other tables are read once.
    """
    tagged = select(JobTag.job_id).where(_contains(JobTag.tag, text))
    recipe_rows = select(Arm.job_id).where(Arm.role == "candidate", _contains(Arm.recipe, text))
    return or_(
        _contains(Job.name, text),
        _contains(Job.model, text),
        Job.id.in_(tagged),
        Job.id.in_(recipe_rows),
    )


def _first_id(at: datetime) -> str:
    """An id below those of all jobs that were submitted at a time or later."""
    return f"j{max(0, int(at.timestamp() * 1000)):012x}"
