"""What is decided when a run has told its manifest and has not trained a step: whether it must be trained, and whether it may.

A run of a baseline arm whose fingerprint an earlier one has is not trained again: it takes that one's curve. A candidate whose manifest
is not that of the promoted baseline which its job names can't be compared with it: it fails with what differs, and its job with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import events
from server.database.states import RUN_ENDED, end_attempt, move_run
from server.database.tables import Job, Run
from server.jobs.fingerprint import equal_run, taken, unlike_named
from workers import lease
from workers.lease import Claim

DIFFERS = "BASELINE_DIFFERS"


def refusal(session: Session, held: Claim, manifest: Mapping[str, str]) -> str | None:
    """Why what would train here can't be compared with the baseline that the job names; None where it can, or where none is named."""
    return unlike_named(session.get_one(Job, held.job_id), manifest)


def reused(session: Session, held: Claim, fingerprint: str) -> bool:
    """End the run with the curve of an equal one that was trained before; False where there is none. Call it with the lease renewed."""
    source = equal_run(session, fingerprint) if held.reuses else None
    if source is None:
        return False
    note = f"not trained: run {source.id} of job {source.job_id} has the same fingerprint, and its curve is reused"
    lease.end(session, held, "finished", note=note, **taken(source))
    return True


def refuse(session: Session, held: Claim, reason: str) -> None:
    """Fail the run and cancel the others of its job that have not ended: none of them could be judged."""
    runs = session.scalars(select(Run).where(Run.job_id == held.job_id).order_by(Run.id).with_for_update()).all()
    lease.end(session, held, "failed", code=DIFFERS, message=reason)
    values: dict[str, Any] = {"finished_at": time.time(), "lease_expires_at": None, "message": f"run {held.run_id} of this job: {reason}"}
    for run in runs:
        if run.id != held.run_id and run.state not in RUN_ENDED and move_run(session, run.id, (run.state,), "cancelled", **values):
            end_attempt(session, run.id, run.epoch, "cancelled")
            events.emit(session, held.job_id, "run", {"run": run.id, "arm": run.arm.name, "state": "cancelled"})
