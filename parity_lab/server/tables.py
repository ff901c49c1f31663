"""The tables of analyses and searches, and what the core asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    ColumnElement,
    ForeignKey,
    String,
    Subquery,
    Text,
    literal,
    select,
    union_all,
)
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship

from server.database.states import RUN_ENDED
from server.database.tables import Base, Job, Run

SearchState = Literal["running", "found", "none", "failed", "cancelled"]
Against = Literal["baseline", "bf16"]


class Analysis(Base):
    """What a job of kind why explains: the gap of a candidate of another job, against that job's
    baseline or bf16.

    `setup` is `parity_lab.analysis.Setup` as a document, `answer` that of `parity_lab.answer`, set
    when the job concludes.
    """

    __tablename__ = "analyses"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    explains: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    candidate: Mapped[str]
    against: Mapped[Against] = mapped_column(String(32))
    setup: Mapped[dict[str, Any]]
    answer: Mapped[dict[str, Any] | None]

    job: Mapped[Job] = relationship(foreign_keys=job_id)
    explained: Mapped[Job] = relationship(foreign_keys=explains)


class AnalysisResult(Base):
    """One measurement of an analysis, by its key. Rows are only added, never changed."""

    __tablename__ = "analysis_results"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)


class Search(Base):
    """A search for the fastest assignment inside the margin: the job that it starts from, its
    candidate, and its plan.

    `setup` is `parity_lab.search.SearchSetup` as a document. `question` is that of the candidate,
    by which further searches are refused once one has used a confirmation. `assignment` is the
    confirmed one, set with the state `found`.
    """

    __tablename__ = "searches"

    id: Mapped[str] = mapped_column(primary_key=True)
    base_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    candidate: Mapped[str]
    question: Mapped[str] = mapped_column(index=True)
    setup: Mapped[dict[str, Any]]
    state: Mapped[SearchState] = mapped_column(String(32), index=True)
    assignment: Mapped[str | None]
    message: Mapped[str | None] = mapped_column(Text)
    priority: Mapped[int] = mapped_column(default=0)
    max_run_seconds: Mapped[float | None]
    submitted_by: Mapped[str | None]
    created_at: Mapped[float]
    finished_at: Mapped[float | None]

    base: Mapped[Job] = relationship()
    steps: Mapped[list[SearchStep]] = relationship(
        order_by="SearchStep.number", back_populates="search"
    )


class SearchStep(Base):
    """A step of a search: a job that evaluates assignments. `results` are set when the job has
    ended and the step has its losses or verdict; a step without them whose job has ended was given
    up. Rows are only added.
    """

    __tablename__ = "search_steps"

    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    evaluations: Mapped[Any] = mapped_column(JSON)
    results: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    cost: Mapped[float]
    created_at: Mapped[float]

    search: Mapped[Search] = relationship(back_populates="steps")
    job: Mapped[Job] = relationship()


def keep_results(session: Session, run_id: str, values: Mapping[str, Any]) -> None:
    """Add results of a run of kind why. A key that is on record already, by a write whose commit
    was not confirmed, is left as it is.
    """
    ours = AnalysisResult.run_id == run_id
    there = set(
        session.scalars(select(AnalysisResult.key).where(ours, AnalysisResult.key.in_(values)))
    )
    session.add_all(
        AnalysisResult(run_id=run_id, key=key, value=value)
        for key, value in values.items()
        if key not in there
    )


def is_needed() -> ColumnElement[bool]:
    """Whether a job must not be deleted, because it is part of a search's record."""
    return select(SearchStep.job_id).where(SearchStep.job_id == Job.id).exists()


@cache
def belonging() -> Subquery:
    """The jobs that belong to another: `job_id`, its `parent_job`, and whether it is an "analysis"
    of it or a "step" of a search.
    """
    analyses = select(
        Analysis.job_id.label("job_id"),
        Analysis.explains.label("parent_job"),
        literal("analysis").label("kind"),
    )
    steps = select(SearchStep.job_id, Search.base_id, literal("step")).join(
        Search, Search.id == SearchStep.search_id
    )
    return union_all(analyses, steps).subquery()


def parents_in_use(session: Session) -> set[str]:
    """The runs whose checkpoints an analysis or a search that has not ended starts from, or
    replays.
    """
    analysed = (
        select(Analysis.setup)
        .join(Run, Run.job_id == Analysis.job_id)
        .where(Run.state.not_in(RUN_ENDED))
    )
    searched = select(Search.setup).where(Search.state == "running")
    setups = [*session.scalars(analysed), *session.scalars(searched)]
    replayed = {each["run"] for setup in setups for each in setup.get("replays", ())}
    return replayed | {run_id for setup in setups for run_id in setup["parents"]}
