"""What a job's gaps are computed from, so that a gap that was computed before is used only while
none of it has changed.
"""

from collections.abc import Hashable, Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.curves.judged_curves import begun_runs
from server.database.metrics import coverage, replaced_steps
from server.database.states import JOB_ENDED
from server.database.tables import Chunk, Job

OUTGROWN = 1.01
"""Growth in steps after which what was computed of a job in training is computed again."""
Extents = Mapping[str, Mapping[int, coverage.Range]]
"""What training steps are recorded: by the run under whose id a curve is stored, and by attempt."""


def extents(session: Session, job: Job) -> Extents:
    """What is recorded of each curve of a job's arms; a curve without a step is left out."""
    curves = {
        replaced_steps.curve_of(session, run.id) for arm in job.arms for run in begun_runs(arm)
    }
    query = select(
        Chunk.run_id,
        Chunk.attempt_number,
        func.min(Chunk.first_step),
        func.max(Chunk.last_step),
        func.sum(Chunk.count),
    )
    rows = session.execute(
        query.where(Chunk.run_id.in_(curves), Chunk.kind == "train").group_by(
            Chunk.run_id, Chunk.attempt_number
        )
    )
    recorded: dict[str, dict[int, coverage.Range]] = {}
    for curve, attempt_number, first, last, count in rows:
        recorded.setdefault(curve, {})[attempt_number] = coverage.Range(
            first_step=first, last_step=last, count=int(count)
        )
    return recorded


def identity(job: Job) -> Hashable:
    """A job's verdicts, runs and attempts; a run of a job in training may have more steps with the
    same identity.
    """
    has_ended = job.status in JOB_ENDED
    runs = [
        # After a run's end only retention changes its message, when it deletes the curve.
        (
            run.id,
            run.reused_from,
            run.attempt_number,
            run.state,
            run.rounding,
            run.message if has_ended else None,
        )
        for arm in job.arms
        for run in begun_runs(arm)
    ]
    return (
        job.id,
        job.status,
        job.look,
        job.look_candidates,
        tuple(verdict.id for verdict in job.verdicts),
        tuple(runs),
    )


def is_current(job: Job, before: Extents, recorded: Extents) -> bool:
    """Whether a chart of the steps `before` still counts: exactly these once the job has ended,
    else until its runs are 1 % longer.
    """
    if job.status in JOB_ENDED:
        return recorded == before
    return _steps_of(recorded) <= OUTGROWN * _steps_of(before)


def _steps_of(recorded: Extents) -> int:
    return sum(one.count for attempts in recorded.values() for one in attempts.values())
