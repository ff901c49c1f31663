"""What a job's gaps are computed from, so that a gap that was computed before is used only while none of it has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.canonical_json import canonical_json
from parity.version import JUDGE_VERSION, VERSION
from server.curves.loading import begun_runs
from server.database import store
from server.database.states import JOB_ENDED
from server.database.tables import Chunk, Job

OUTGROWN = 1.01
"""Growth in steps after which what was computed of a job in training is computed again."""
_FORMAT = 1  # raise it with a change that gives the same curves other numbers, or stores them in another form


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """First and last recorded training step of an attempt, and the number of its steps."""

    first_step: int
    last_step: int
    count: int


Extents = Mapping[str, Mapping[int, Extent]]
"""By the run under whose id a curve is stored, and by attempt."""


def extents(session: Session, job: Job) -> Extents:
    """What is recorded of each curve of a job's arms; a curve without a step is left out."""
    curves = {store.curve_of(session, run.id) for arm in job.arms for run in begun_runs(arm)}
    query = select(Chunk.run_id, Chunk.epoch, func.min(Chunk.first_step), func.max(Chunk.last_step), func.sum(Chunk.count))
    rows = session.execute(query.where(Chunk.run_id.in_(curves), Chunk.kind == "train").group_by(Chunk.run_id, Chunk.epoch))
    recorded: dict[str, dict[int, Extent]] = {}
    for curve, epoch, first, last, count in rows:
        recorded.setdefault(curve, {})[epoch] = Extent(first_step=first, last_step=last, count=int(count))
    return recorded


def identity(job: Job) -> str:
    """SHA-256 of the job's policy, verdicts, runs and attempts; a run of a job in training may have more steps with the same identity."""
    runs = [
        # After a run's end only retention changes its message, when it deletes the curve.
        [run.id, run.reused_from, run.epoch, run.state, run.rounding, run.message if job.status in JOB_ENDED else None]
        for arm in job.arms
        for run in begun_runs(arm)
    ]
    content = {
        "format": [_FORMAT, VERSION, JUDGE_VERSION],
        "job": [job.id, job.status, job.criteria, job.look, job.look_candidates],
        "verdicts": sorted(verdict.id for verdict in job.verdicts),
        "runs": runs,
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def made_from(job: Job, recorded: Extents) -> str:
    """SHA-256 of the identity of a job; once it has ended, also of what is recorded of each curve, because no step follows."""
    own = identity(job)
    if job.status not in JOB_ENDED:
        return own
    steps = sorted([curve, epoch, one.first_step, one.last_step, one.count] for curve, of in recorded.items() for epoch, one in of.items())
    return hashlib.sha256(canonical_json({"identity": own, "steps": steps}).encode()).hexdigest()


def steps_of(recorded: Extents) -> int:
    """The number of recorded training steps of all curves and attempts."""
    return sum(one.count for attempts in recorded.values() for one in attempts.values())
