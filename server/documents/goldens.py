"""Goldens as the API and the pages show them, with their types for OpenAPI."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.golden.update import taken_gaps
from server.database.clock import time_text
from server.database.tables import LOCAL_ID, Golden
from server.documents.principals import principal_names
from server.jobs import goldens
from server.records import from_attributes


@frozen
class GoldenSummary:
    """A version of a golden in a list: what its check by the version before answered (null for a
    first one), who took it, when and why, and who removed it.

    `newest` marks the version that a check uses if it names none.
    """

    name: str
    version: int
    newest: bool
    recipe: str
    steps: int
    answer: str | None
    gap_pct: float
    accepted: bool
    reason: str
    taken_at: str | None
    taken_by: str
    removed_at: str | None
    removed_by: str | None
    remove_reason: str | None


@frozen
class GoldenDocument(GoldenSummary):
    """A version of a golden: what is on record of its run, the sum of the gaps in % that were taken
    since a person last accepted one, the text of its `file`, and all versions of its name, newest
    first.
    """

    random: list[str]
    container: str | None
    hardware: str | None
    data: str | None
    facts: Mapping[str, str]
    first_step: int
    last_step: int
    taken_pct: float
    file: str
    history: list[GoldenSummary]


def golden_summaries(session: Session, rows: Sequence[Golden]) -> list[GoldenSummary]:
    """A summary of each version."""
    highest = (
        select(Golden.name, func.max(Golden.version))
        .where(Golden.name.in_({row.name for row in rows}))
        .group_by(Golden.name)
    )
    newest = {row[0]: row[1] for row in session.execute(highest)}
    names = principal_names(
        session, {one for row in rows for one in (row.owner, row.removed_by) if one}
    )
    return [
        from_attributes(GoldenSummary, row, **_summary(row, names, newest[row.name]))
        for row in rows
    ]


def newest_goldens(session: Session, most: int) -> list[GoldenSummary]:
    """A summary of the newest version of each name, taken last first."""
    highest = (
        select(Golden.name, func.max(Golden.version).label("version"))
        .group_by(Golden.name)
        .subquery()
    )
    is_newest = (Golden.name == highest.c.name) & (Golden.version == highest.c.version)
    rows = session.scalars(
        select(Golden).join(highest, is_newest).order_by(Golden.id.desc()).limit(most)
    ).all()
    return golden_summaries(session, rows)


def golden_document(session: Session, row: Golden) -> GoldenDocument:
    """Everything about a version."""
    golden, every = goldens.read(row), goldens.versions(session, row.name)
    history = golden_summaries(session, every)
    summary = next(one for one in history if one.version == row.version)
    steps = golden.curve.steps
    return from_attributes(
        GoldenDocument,
        summary,
        taken_at=summary.taken_at,
        removed_at=summary.removed_at,
        random=list(golden.random),
        container=golden.container,
        hardware=golden.hardware,
        data=golden.data,
        facts=golden.facts,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        taken_pct=taken_gaps(golden.updates),
        file=row.text,
        history=history,
    )


def _summary(row: Golden, names: Mapping[str, str], newest: int) -> dict[str, Any]:
    owner, removed_by = row.owner or LOCAL_ID, row.removed_by
    return {
        "newest": row.version == newest,
        "taken_at": time_text(row.created_at),
        "taken_by": names.get(owner, owner),
        "removed_by": None if removed_by is None else names.get(removed_by, removed_by),
    }
