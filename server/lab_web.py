"""Analyses and searches in the web application (`server.web.additions`)."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.lab_tables import Analysis, Search, SearchStep
from server.database.tables import Job
from server.pages import searches as search_pages
from server.pages import why as why_pages
from server.routes import searches, why
from server.searches.record import find_search
from server.searching import Searcher
from server.web.additions import Additions
from server.web.context import Context


def _owner_of_search(session: Session, search_id: str) -> tuple[str, str | None]:
    search = find_search(session, search_id)
    return f"search {search.id}", search.submitted_by


def _searcher(context: Context) -> Searcher:
    return Searcher(context.settings, context.database, lambda capability: context.doorbell.ring(capability, times=1))


def _about_job(session: Session, job: Job) -> dict[str, object]:
    """Whether an analysis explains a job, the searches that start from it (newest first), and the search that it is a confirmation of."""
    return {
        "explained": session.scalar(select(Analysis.job_id).where(Analysis.explains == job.id).limit(1)) is not None,
        "searches": session.scalars(select(Search.id).where(Search.base_id == job.id).order_by(Search.created_at.desc())).all(),
        "search": session.scalar(select(SearchStep.search_id).where(SearchStep.job_id == job.id)),
    }


ADDITIONS = Additions(
    routes=(searches.router, why.router),
    pages=(search_pages.router, why_pages.router),
    owners={"search_id": _owner_of_search},
    threads=(_searcher,),
    about_job=_about_job,
)
