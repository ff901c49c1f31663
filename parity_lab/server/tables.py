"""The tables of analyses and healings, and what the core asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    ForeignKey,
    String,
    Subquery,
    literal,
    select,
    union_all,
)
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship

from server.database.states import RUN_ENDED
from server.database.tables import Base, Job, Run

Against = Literal["baseline", "bf16"]


class Analysis(Base):
    """What a job of kind why explains: the gap of a candidate of another job, against that job's
    baseline or bf16.

    `setup` is `parity_lab.analysis_plan.Setup` as a document, `answer` that of `parity_lab.answer`,
    set when the job concludes.
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


class Healing(Base):
    """What a job of kind heal looks for: the latest step from which a candidate of another job may
    go on with a safer recipe.

    `setup` is `parity_lab.healing.HealingSetup` as a document, `answer` that of
    `parity_lab.healing_answer`, set when the job concludes.
    """

    __tablename__ = "healings"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    heals: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    candidate: Mapped[str]
    setup: Mapped[dict[str, Any]]
    answer: Mapped[dict[str, Any] | None]

    job: Mapped[Job] = relationship(foreign_keys=job_id)
    healed: Mapped[Job] = relationship(foreign_keys=heals)


class AnalysisResult(Base):
    """One measurement of an analysis, or one look of a healing, by its key. Rows are only added,
    never changed.
    """

    __tablename__ = "analysis_results"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)


def keep_results(session: Session, run_id: str, values: Mapping[str, Any]) -> None:
    """Add results of a run of the lab. A key that is on record already, by a write whose commit
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


@cache
def belonging() -> Subquery:
    """The jobs that belong to another: `job_id`, its `parent_job`, and of which `kind` it is,
    "analysis" or "healing".
    """
    analyses = select(
        Analysis.job_id.label("job_id"),
        Analysis.explains.label("parent_job"),
        literal("analysis").label("kind"),
    )
    healings = select(Healing.job_id, Healing.heals, literal("healing"))
    return union_all(analyses, healings).subquery()


def parents_in_use(session: Session) -> set[str]:
    """The runs whose checkpoints an analysis or a healing that has not ended starts from, or
    replays.
    """
    setups = [
        setup
        for table in (Analysis, Healing)
        for setup in session.scalars(
            select(table.setup)
            .join(Run, Run.job_id == table.job_id)
            .where(Run.state.not_in(RUN_ENDED))
        )
    ]
    replayed = {replay["run"] for setup in setups for replay in setup.get("replays", ())}
    return replayed | {run_id for setup in setups for run_id in setup["parents"]}
