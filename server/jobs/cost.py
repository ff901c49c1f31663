"""What a job cost: the device seconds of the runs that it trained, those of the runs that it
reused, and a price where one is stated.

A run that a scheduler trained counts with the time that its jobs ran, never with the time that they
waited. Any other run that has ended counts with its recorded step times (a step that is not logged
lasts as long as the next one that is, a step that was trained again after a crash counts once),
else with the time of its attempts; each second on as many devices as the run had, 1 where that is
not known. An open run counts with its steps at the speed last measured, which is an estimate. The
times of an external run are those in its files alone, once it has ended: nobody knows when its
trainer began, and an estimate before would be followed by none.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.concurrency.cache import Cache
from server.curves.training_time import seconds_of
from server.database import clock
from server.database.metrics.many_runs import read_each
from server.database.states import RUN_ENDED
from server.database.tables import Attempt, Job, Run
from server.jobs import submissions
from server.settings import Settings
from training.command import ENGINE as COMMAND

SECONDS_OF_AN_HOUR = 3600.0
NO_TIMES_IN_FILES, NO_TIMES = (
    "no step times in these files",
    "no step times and no attempts on record",
)
NOT_YET = "known from the step times that your runs log, once they have ended"
_ended = Cache(4096)  # seconds by run: those of an ended run never change


@frozen
class Price:
    """What an hour of one device costs, as the operator states it; `currency` may be empty."""

    device_hour: float
    currency: str


@frozen
class CostDocument:
    """What a job cost. `missing` says why device seconds are null; `is_estimate` that a run trains,
    so that they change; `price` is null unless the server knows the price of a device hour.

    `reused_device_seconds` are those that other jobs spent on the curves that this one reused; they
    are in no price.
    """

    device_seconds: float | None
    trained_runs: int
    reused_runs: int
    reused_device_seconds: float | None
    price: float | None
    currency: str | None
    missing: str | None
    is_estimate: bool


def price_of(settings: Settings) -> Price | None:
    """The price of a device hour, where the operator states one."""
    if settings.device_hour_price is None:
        return None
    return Price(device_hour=settings.device_hour_price, currency=settings.currency)


def cost_of(session: Session, job: Job, price: Price | None) -> CostDocument:
    """The cost of a job so far, short reruns and failed runs included."""
    reused = [run for run in job.runs if run.reused_from is not None]
    trained = [
        run
        for run in job.runs
        if run.reused_from is None and (run.attempt_number or run.steps_done)
    ]
    seconds, reused_seconds = _device_seconds(session, trained), _device_seconds(session, reused)
    total, unknown = _total(seconds.values()), [run for run in trained if seconds[run.id] is None]
    return CostDocument(
        device_seconds=total,
        trained_runs=len(trained),
        reused_runs=len(reused),
        reused_device_seconds=_total(reused_seconds.values()),
        price=None
        if price is None or total is None
        else total / SECONDS_OF_AN_HOUR * price.device_hour,
        currency=(price.currency or None) if price else None,
        missing=_why(job, unknown, len(trained)) if unknown else None,
        is_estimate=any(run.state not in RUN_ENDED for run in trained),
    )


def _total(seconds: Iterable[float | None]) -> float | None:
    total = 0.0
    for run_seconds in seconds:
        if run_seconds is None:
            return None
        total += run_seconds
    return total


def _why(job: Job, unknown: Sequence[Run], runs: int) -> str:
    if job.engine != "external":
        reason = NO_TIMES
    elif any(run.state not in RUN_ENDED for run in unknown):
        return NOT_YET
    else:
        reason = NO_TIMES_IN_FILES
    if len(unknown) == runs:
        return reason
    return f"{reason} of {len(unknown)} of {runs} runs"


def _device_seconds(session: Session, runs: Sequence[Run]) -> Mapping[str, float | None]:
    """Seconds times devices by run; None where neither steps nor attempts say it."""
    found = _submission_seconds(session, runs)
    for run in runs:
        if run.id in found:
            continue
        seconds = _ended.get(_key(run), float)
        is_estimated = run.state not in RUN_ENDED and run.job.engine != "external"
        if seconds is None and is_estimated and run.steps_per_second:
            seconds = max(0, run.steps_done - run.first_step) / run.steps_per_second
        if seconds is not None:
            found[run.id] = seconds
    found |= _step_seconds(
        session, [run for run in runs if run.id not in found and run.state in RUN_ENDED]
    )
    found |= _attempt_seconds(
        session, [run for run in runs if run.id not in found and run.job.engine != "external"]
    )
    return {
        run.id: found[run.id] * _devices(run.source or run) if run.id in found else None
        for run in runs
    }


def _submission_seconds(session: Session, runs: Sequence[Run]) -> dict[str, float]:
    """How long the jobs of schedulers ran that trained these runs, or those whose curves they
    reuse.
    """
    trained = {run.id: (run.source or run).id for run in runs if run.capability == COMMAND}
    submitted, now = (
        submissions.grouped_by_run(session, {*trained.values()}),
        clock.now(session),
    )
    took = {
        run_id: sum(submissions.device_seconds(submission, now) for submission in of_run)
        for run_id, of_run in submitted.items()
    }
    return {run_id: took[source] for run_id, source in trained.items() if source in took}


def _key(run: Run) -> tuple[str, int, int]:
    """What the seconds of an ended run are known by: an external run that goes on after its end has
    other steps or attempts.
    """
    return run.id, run.attempt_number, run.steps_done


def _step_seconds(session: Session, runs: Sequence[Run]) -> Mapping[str, float]:
    """The recorded step times of ended runs, summed."""
    found = {}
    recorded = (
        read_each(session, [run.id for run in runs], "train", ["step_seconds"]) if runs else ()
    )
    for run, (steps, columns) in zip(runs, recorded, strict=True):
        step_seconds = columns["step_seconds"]
        if np.isfinite(step_seconds).any():
            found[run.id] = float(seconds_of(steps, np.maximum(step_seconds, 0.0))[-1])
            _ended.put(_key(run), found[run.id])
    return found


def _attempt_seconds(session: Session, runs: Sequence[Run]) -> Mapping[str, float]:
    """How long the attempts at each run took together, or have taken so far; the curve of a reused
    run was trained by its source.
    """
    if not runs:
        return {}
    trained = {run.id: run.source or run for run in runs}
    runs_by_id = {run.id: run for run in trained.values()}
    now = clock.now(session)
    rows = session.execute(
        select(Attempt.run_id, Attempt.started_at, Attempt.ended_at).where(
            Attempt.run_id.in_(runs_by_id)
        )
    )
    took: dict[str, float] = {}
    for run_id, started_at, ended_at in rows:
        until = ended_at or runs_by_id[run_id].finished_at or now
        took[run_id] = took.get(run_id, 0.0) + max(until - started_at, 0.0)
    return {run_id: took[source.id] for run_id, source in trained.items() if source.id in took}


def _devices(run: Run) -> int:
    """The devices that a run trained on: as its trainer recorded, else as its job asked for."""
    recorded = str((run.manifest or {}).get("devices", ""))
    if recorded.isdecimal() and 0 < int(recorded) < 10**6:
        return int(recorded)
    return max(run.job.devices, 1)
