"""Images for reports: the figure of a verdict, drawn once and stored by the verdict's id, and the data of badges.

A verdict never changes, but its drawing may, so the file name includes the version of the drawing code. matplotlib's settings are
global, so only one figure is drawn at a time. Who waits for that holds neither a database connection nor curves, and so does not keep
other requests from theirs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.decision import worst
from parity.judging.document_types import VerdictDocument
from parity.report.figures import draw_figure
from parity.report.headline import MARKS
from parity.version import VERSION
from parity.wording import signed
from server.database.lookup import find_job
from server.database.sessions import Database
from server.database.tables import Job, is_id
from server.documents.verdicts import verdict_documents
from server.errors import NotFoundError
from server.jobs.conclude import case_of
from server.settings import Settings
from server.turns import Turns

drawing = Turns("drawing figures")

# The colors of the pages, dark enough for white letters.
_COLORS = {"pass": "#0b6e4f", "fail": "#b3261e", "inconclusive": "#7a5c00", "none": "#5f6368"}


def figure(settings: Settings, database: Database, job_id: str, candidate: str | None) -> bytes:
    """The figure of one candidate's verdict (default: the job's first), drawn if it was not before. Call it without a session.

    NotFoundError if there is no such verdict, UnavailableError if too many wait for theirs.
    """
    with database.read() as session:
        job = find_job(session, job_id)
        documents = {str(document["candidate"]["name"]): document for document in verdict_documents(job)}
        name = candidate or next(iter(documents), None)
        if name is None or name not in documents:
            there = f"; it has verdicts of {', '.join(documents)}" if documents else ""
            raise NotFoundError(f"job {job.id} is {job.status} and has no verdict{f' of {name!r}' if name else ''}{there}")
        verdict = next(row for row in job.verdicts if row.candidate == name)
        path = settings.state_dir / "figures" / f"{verdict.id}-{VERSION}.svg"
    if not path.exists():
        with drawing.take():
            if not path.exists():  # another request has drawn it meanwhile
                _draw(database, job_id, documents[name], path)
    return path.read_bytes()


def _draw(database: Database, job_id: str, document: VerdictDocument, path: Path) -> None:
    with database.read() as session:
        case = case_of(session, find_job(session, job_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    half_done = path.with_name(f"{os.getpid()}-{threading.get_ident()}-{path.name}")
    draw_figure(str(half_done), document, case)
    half_done.replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A badge in the format of shields.io's endpoint (schemaVersion 1)."""

    schemaVersion: int  # noqa: N815 (their name)
    label: str
    message: str
    color: str


def badge(session: Session, job_or_name: str) -> Badge:
    """The badge of a job, or of the newest concluded job of this name; the worst candidate decides."""
    if is_id("j", job_or_name):
        job: Job | None = find_job(session, job_or_name)
    else:
        newest = select(Job).where(Job.name == job_or_name, Job.status == "concluded").order_by(Job.id.desc()).limit(1)
        job = session.scalars(newest).first()
    if job is None:
        raise NotFoundError(f"{job_or_name!r} is neither the id of a job nor the name of a concluded job; `parity status` lists the jobs")
    return _badge(job.status, verdict_documents(job))


def _badge(status: str, documents: Sequence[VerdictDocument]) -> Badge:
    if not documents:
        return Badge(schemaVersion=1, label="parity", message=f"no verdict, {status}", color=_COLORS["none"])
    outcome = worst(document["verdict"] for document in documents)
    shown = next(document for document in documents if document["verdict"] == outcome)
    gap = f", gap {signed(shown['gap']['mean'], 4)} nats" if shown["gap"] else ""
    message = f"{MARKS[outcome]} {shown['candidate']['name']} {outcome}{gap}"
    return Badge(schemaVersion=1, label="parity", message=message, color=_COLORS[outcome])
