"""Analyses and healings in the web application (`server.web.lab_additions`)."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity_lab.server.ablations import possible_ablations
from parity_lab.server.api import why_router
from parity_lab.server.healing_pages import healing_pages
from parity_lab.server.pages import pages
from parity_lab.server.tables import Analysis, Healing
from server.database.tables import Job
from server.web.lab_additions import Additions


def _about_job(session: Session, job: Job) -> dict[str, object]:
    """Whether an analysis explains a job, or a healing heals it; whether its runs kept checkpoints;
    and which of its candidates have ablations in it.
    """
    explains = select(Analysis.job_id).where(Analysis.explains == job.id).limit(1)
    heals = select(Healing.job_id).where(Healing.heals == job.id).limit(1)
    return {
        "explained": session.scalar(explains) is not None,
        "healed": session.scalar(heals) is not None,
        "kept": bool(job.spec.get("keep_checkpoints")),
        "ablations": possible_ablations(job),
    }


ADDITIONS = Additions(routes=(why_router,), pages=(pages, healing_pages), about_job=_about_job)
