"""Pictures for reports: the figure of a verdict, drawn once and kept by the verdict's id, and badges.

A verdict never changes, so neither does its figure; the engine's version is in the file's name, because the drawing may. matplotlib's
settings belong to the process: one figure at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.report.figures import draw_figure
from parity.report.text import MARKS
from parity.version import ENGINE_VERSION
from parity.wording import signed
from server.database.lookup import find_job
from server.database.tables import Job, Verdict, is_id
from server.documents.job import verdict_documents
from server.errors import NotFoundError
from server.jobs.conclude import case_of
from server.settings import Settings

Kind = Literal["svg", "png", "pdf"]
_drawing = threading.Lock()

_WORST_FIRST = ("fail", "inconclusive", "pass")
# The page's own colours, dark enough for white letters.
_COLOURS = {"pass": "#0b6e4f", "fail": "#b3261e", "inconclusive": "#7a5c00", "none": "#5f6368"}
_LETTER_PIXELS, _PAD_PIXELS = 6.6, 6


def figure(session: Session, settings: Settings, job: Job, candidate: str | None, kind: Kind) -> bytes:
    """The figure of one candidate's verdict (default: the job's first); NotFoundError where there is none."""
    documents = {str(document["candidate"]["name"]): document for document in verdict_documents(job)}
    name = candidate or next(iter(documents), None)
    if name is None or name not in documents:
        there = f"; it has verdicts of {', '.join(documents)}" if documents else ""
        raise NotFoundError(f"job {job.id} is {job.status} and has no verdict{f' of {name!r}' if name else ''}{there}")
    verdict = next(row for row in job.verdicts if row.candidate == name)
    path = settings.state_dir / "figures" / f"{verdict.id}-{ENGINE_VERSION}.{kind}"
    if not path.exists():
        _draw(session, job, verdict, documents[name], path)
    return path.read_bytes()


def _draw(session: Session, job: Job, verdict: Verdict, document: Mapping[str, Any], path: Path) -> None:
    case = case_of(session, job)
    runs = case.candidates[verdict.candidate]
    path.parent.mkdir(parents=True, exist_ok=True)
    half_done = path.with_name(f"{os.getpid()}-{threading.get_ident()}-{path.name}")
    with _drawing:
        draw_figure(str(half_done), document, case.baseline, runs, case.criteria, case.planned_steps)
    half_done.replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A badge in the words of shields.io's endpoint (schemaVersion 1)."""

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
        raise NotFoundError(f"there is no job and no concluded job named {job_or_name!r}; `parity status` lists the jobs")
    return _badge(job.status, verdict_documents(job))


def _badge(status: str, documents: Sequence[Mapping[str, Any]]) -> Badge:
    worst = min(documents, key=lambda document: _WORST_FIRST.index(document["verdict"]), default=None)
    if worst is None:
        return Badge(schemaVersion=1, label="parity", message=f"no verdict, {status}", color=_COLOURS["none"])
    gap = worst["gap"]
    words = f"{worst['candidate']['name']} {worst['verdict']}" + (f", gap {signed(gap['mean'], 4)} nats" if gap else "")
    return Badge(schemaVersion=1, label="parity", message=f"{MARKS[worst['verdict']]} {words}", color=_COLOURS[worst["verdict"]])


def badge_svg(made: Badge) -> str:
    """The badge as SVG without a script, a font or a link."""
    left, right = (round(len(text) * _LETTER_PIXELS) + 2 * _PAD_PIXELS for text in (made.label, made.message))
    label, message, title = (escape(text, {'"': "&quot;"}) for text in (made.label, made.message, f"{made.label}: {made.message}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}"><title>{title}</title>'
        f'<rect width="{left}" height="20" fill="#3c4043"/><rect x="{left}" width="{right}" height="20" fill="{made.color}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{_PAD_PIXELS}" y="14" textLength="{left - 2 * _PAD_PIXELS}">{label}</text>'
        f'<text x="{left + _PAD_PIXELS}" y="14" textLength="{right - 2 * _PAD_PIXELS}">{message}</text></g></svg>\n'
    )
