"""Lists of jobs: one set of filters for the page, the API and the trend, each a part of the URL; a
page of rows, and its summaries.
"""

import base64
import binascii
import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import Query
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Row,
    Select,
    Subquery,
    and_,
    bindparam,
    exists,
    false,
    func,
    or_,
    select,
)
from sqlalchemy.orm import InstrumentedAttribute, Session

from parity.canonical_json import fields_of
from parity.extensions import lab
from parity.frozen import frozen
from server.database.states import JOB_OPEN
from server.database.tables import (
    LOCAL_ID,
    LOCAL_NAME,
    Arm,
    Baseline,
    Job,
    JobStatus,
    JobTag,
    Run,
    Token,
    Verdict,
    is_id,
    table_of,
)
from server.errors import InvalidError
from server.jobs.ledger import QUESTION_DIGITS
from server.jobs.verdict_rows import VerdictSummary, verdict_summary
from server.records import digest, of
from server.web.requests import cursor_of, row_id_of

# Names of those who submitted jobs or changed baselines, by the id in a row.


def principal_names(session: Session, ids: Collection[str | None]) -> Mapping[str, str]:
    """Names by id, for tokens and for local use without a token; unknown ids have no entry."""
    tokens = session.execute(
        select(Token.id, Token.name).where(Token.id.in_({one for one in ids if one}))
    )
    return {LOCAL_ID: LOCAL_NAME} | {row[0]: row[1] for row in tokens}


# Jobs as lists show them. Read by columns, without their specifications and verdict documents,
# which take most of a job's bytes.

_jobs, _arms, _tags, _verdicts, _runs = (
    table_of(each).c for each in (Job, Arm, JobTag, Verdict, Run)
)
_IDS: BindParameter[Sequence[str]] = bindparam("ids", expanding=True)
_JOB_COLUMNS = (
    "id",
    "name",
    "status",
    "engine",
    "model",
    "revision",
    "branch",
    "submitted_by",
    "created_at",
    "finished_at",
)
_QUESTION_COLUMNS = ("code", "baseline_id", "policy")
_VERDICT_COLUMNS = (
    "id",
    "job_id",
    "candidate",
    "outcome",
    "lead",
    "code",
    "gap",
    "ci_low",
    "ci_high",
    "gap_rel",
    "margin",
)
_JOBS = select(*_jobs[_JOB_COLUMNS + _QUESTION_COLUMNS]).where(_jobs.id.in_(_IDS))
_ARMS = (
    select(*_arms["job_id", "name", "recipe", "question"])
    .where(_arms.job_id.in_(_IDS))
    .order_by(_arms.job_id, _arms.position)
)
_TAGS = (
    select(*_tags["job_id", "tag"]).where(_tags.job_id.in_(_IDS)).order_by(_tags.job_id, _tags.tag)
)
_VERDICTS = select(*_verdicts[_VERDICT_COLUMNS]).where(_verdicts.job_id.in_(_IDS))
_DOCUMENTS = select(*_verdicts["id", "document"]).where(_verdicts.id.in_(_IDS))
_STEPS = (
    select(
        _runs.job_id,
        func.sum(_runs.steps_done),
        func.sum(_runs.planned_steps),
        func.max(_runs.planned_steps),
    )
    .where(_runs.job_id.in_(_IDS), _runs.planned_steps.is_not(None))
    .group_by(_runs.job_id)
)


@frozen
class JobSummary:
    """A job in a list; `recipes` are those of its candidates, `submitted_by` the name of the token,
    `code` why it has no verdict.

    Jobs of one `group` ask one question again: they have the same name, candidates, baseline,
    policy and steps, whatever the code's revision. `parent_job` is the job that an analysis
    explains.
    """

    id: str
    name: str
    status: JobStatus
    code: str | None
    group: str
    parent_job: str | None
    engine: str
    model: str | None
    baseline: str
    candidates: list[str]
    recipes: list[str]
    revision: str | None
    branch: str | None
    tags: list[str]
    share_done: float
    submitted_by: str | None
    created_at: str
    finished_at: str | None
    verdicts: list[VerdictSummary]


def job_summaries(session: Session, ids: Sequence[str]) -> list[JobSummary]:
    """The summaries of these jobs, in this order; jobs that do not exist are left out."""
    if not ids:
        return []
    # On tables and not on classes, which costs half of the time of a list.
    execute, chosen = session.connection().execute, {"ids": ids}
    jobs = {job.id: job for job in execute(_JOBS, chosen)}
    arms, tags, verdicts = defaultdict(list), defaultdict(list), defaultdict(list)
    for arm in execute(_ARMS, chosen):
        arms[arm.job_id].append(arm)
    for tag in execute(_TAGS, chosen):
        tags[tag.job_id].append(tag.tag)
    rows = execute(_VERDICTS, chosen).all()
    untold = [row.id for row in rows if row.lead is None]
    documents = (
        {row.id: row.document for row in execute(_DOCUMENTS, {"ids": untold})} if untold else {}
    )
    for verdict in rows:
        verdicts[verdict.job_id].append(verdict_summary(verdict, documents.get(verdict.id)))
    done, longest = dict[str, float](), dict[str, int]()
    for job_id, steps, planned, most in execute(_STEPS, chosen):
        done[job_id], longest[job_id] = (
            (float(steps) / float(planned) if planned else 0.0),
            int(most),
        )
    parents = _parents(session, ids)
    names = principal_names(session, {job.submitted_by for job in jobs.values()})
    summaries = []
    for job in (jobs[each] for each in ids if each in jobs):
        baseline, *candidates = arms[job.id]
        position = {arm.name: number for number, arm in enumerate(candidates)}
        summaries.append(
            of(
                JobSummary,
                job,
                group=_group(job, arms[job.id], longest.get(job.id)),
                parent_job=parents.get(job.id),
                baseline=baseline.name,
                candidates=[arm.name for arm in candidates],
                recipes=[*dict.fromkeys(arm.recipe for arm in candidates)],
                tags=tags[job.id],
                share_done=done.get(job.id, 0.0),
                submitted_by=names.get(job.submitted_by or ""),
                verdicts=sorted(verdicts[job.id], key=lambda verdict: position[verdict.candidate]),
            )
        )
    return summaries


def _group(
    job: Row[*tuple[Any, ...]], arms: Sequence[Row[*tuple[Any, ...]]], steps: int | None
) -> str:
    """What all repeats of a question have in common. `Arm.question` begins with what the ledger
    knows of it: model, data, schedule.
    """
    asked = [(arm.name, arm.recipe, (arm.question or "")[:QUESTION_DIGITS]) for arm in arms]
    return digest([job.name, job.engine, job.model, job.baseline_id, job.policy, steps, asked])


# Jobs that belong to another: the analyses of its gap. The lab has them, if any.


def _belonging() -> Subquery | None:
    tables = lab().part("tables")
    if tables is None:
        return None
    return cast("Subquery", tables.belonging())


def _parents(session: Session, ids: Sequence[str]) -> Mapping[str, str]:
    rows = _belonging()
    if rows is None:
        return {}
    statement = select(rows.c.job_id, rows.c.parent_job).where(rows.c.job_id.in_(ids))
    return {row.job_id: row.parent_job for row in session.execute(statement)}


def on_their_own() -> list[ColumnElement[bool]]:
    """The condition that a job belongs to no other."""
    rows = _belonging()
    if rows is None:
        return []
    return [Job.id.not_in(select(rows.c.job_id))]


def belonging_to(session: Session, ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """How many analyses belong to each of these jobs; a job without any has no entry."""
    rows = _belonging()
    counted: dict[str, dict[str, int]] = defaultdict(dict)
    if rows is not None:
        columns = rows.c.parent_job, rows.c.kind
        for parent, kind, number in session.execute(
            select(*columns, func.count()).where(columns[0].in_(ids)).group_by(*columns)
        ):
            counted[parent][kind] = number
    return counted


# Which jobs a list shows: one set of filters for the page, the API and the trend, each of them a
# part of the URL.

VerdictWord = Literal["pass", "fail", "inconclusive"]
Sort = Literal["newest", "oldest", "name", "ended", "gap"]
OUTCOMES: tuple[VerdictWord, ...] = get_args(VerdictWord)
STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)
SORTS: tuple[Sort, ...] = get_args(Sort)
_TEXT = 200


@frozen
class Wanted:
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
        told: list[tuple[object, ColumnElement[bool]]] = [
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
        conditions = [condition for value, condition in told if value]
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
            rows = _belonging()
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
    of_recipe = select(Arm.job_id).where(Arm.role == "candidate", _contains(Arm.recipe, text))
    return or_(
        _contains(Job.name, text),
        _contains(Job.model, text),
        Job.id.in_(tagged),
        Job.id.in_(of_recipe),
    )


def _first_id(at: datetime) -> str:
    """An id below those of all jobs that were submitted at a time or later."""
    return f"j{max(0, int(at.timestamp() * 1000)):012x}"


# A page of the list of jobs: filtered, sorted, and continued where the page before it ended, so
# that page 200 costs what page 1 does.
#
# Ids first: filters and orders read indexes, not the rows with their specifications. Jobs that lack
# what they are sorted by come last.

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
    wanted: Wanted,
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
    conditions = [*wanted.conditions(), *also]
    column = _COLUMNS.get(sort)
    statement = (
        select(Job.id, (Job.id if column is None else column).label("value"))
        .where(*conditions)
        .limit(limit + 1)
    )
    if cursor:
        statement = statement.where(_after(sort, cursor))
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


# The answer of a job: that of its safest candidate; before it has one, that it trains, or did not
# finish.

AnswerState = Literal["fail", "inconclusive", "pass", "running", "unfinished"]
ANSWERS: tuple[AnswerState, ...] = get_args(AnswerState)
_UNFINISHED: tuple[JobStatus, ...] = ("failed", "cancelled")


def with_answer(state: AnswerState) -> ColumnElement[bool]:
    """The condition that a job has this answer."""
    if state == "running":
        return Job.status.in_(JOB_OPEN)
    if state == "unfinished":
        return Job.status.in_(_UNFINISHED)
    return Job.answer == state


def answer_counts(
    session: Session, wanted: Wanted, also: Sequence[ColumnElement[bool]] = ()
) -> Mapping[str, int]:
    """How many jobs have each answer; "" are those without any, such as analyses. Of more than
    10,000 jobs the newest are counted.
    """
    conditions = [*wanted.conditions(), *also]
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


def _ordered(statement: Select[Any], sort: Sort) -> Select[Any]:
    column = _COLUMNS.get(sort)
    descending = sort in _DESCENDING
    by_id = Job.id.desc() if descending else Job.id.asc()
    if column is None:
        return statement.order_by(by_id)
    return statement.order_by(column.desc().nulls_last() if descending else column.asc(), by_id)


def _cursor(sort: Sort, value: Any, job_id: str) -> str:
    if sort not in _COLUMNS:
        return cursor_of(job_id)
    return base64.urlsafe_b64encode(json.dumps([sort, value, job_id]).encode()).decode()


def _after(sort: Sort, cursor: str) -> ColumnElement[bool]:
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
