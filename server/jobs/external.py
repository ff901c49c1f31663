"""Runs that the user trains: attach, append, finish; and what their silence means."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from parity.judging.curves.curve import Rounding
from parity.judging.curves.outside_plan import last_recorded
from parity.recipes import UNSTATED, RecipeError, check_rounding
from parity.structure import frozen
from server.concurrency import Repeating
from server.database import sessions, store
from server.database.sessions import Database, find_run
from server.database.states import JOB_ENDED, RUN_ENDED, SILENT
from server.database.store import Coverage, Range, coverage, stride_of
from server.database.tables import LISTENING, Attempt, Chunk, Duty, Run, RunState
from server.errors import ConflictError, InvalidError, StaleAttemptError
from server.jobs import lifecycle, statements
from server.jobs.fingerprint import external_fingerprint, named_baseline_mismatch
from server.records import Body
from server.settings import Settings

# Steps that a user's trainer sends: in any order, in batches of any size, possibly more than once.
#
# The chunks of one attempt never overlap: a batch among recorded steps is merged into the chunks
# that it touches. Recorded values never change: the same step with the same numbers is ignored,
# with other numbers it is an error. A column that a batch lacks is NaN there.


class DifferentError(Exception):
    """A step is already recorded with another value; `step` and `column` name it."""

    def __init__(self, step: int, column: str) -> None:
        super().__init__(f"step {step} is already recorded with another {column}")
        self.step = step
        self.column = column


def merge(
    session: Session,
    run_id: str,
    kind: str,
    attempt_number: int,
    steps: NDArray[np.int64],
    columns: Mapping[str, NDArray[np.float64]],
) -> int:
    """Record the new steps of a batch; returns their number. Call it under the run's fence.

    Args:
        steps: (n,) in any order, n >= 1.
        columns: name -> (n,) float64, NaN and Inf allowed.

    Raises:
        DifferentError: a step is given twice, or was recorded before, with different numbers;
        nothing is written.
    """
    batch = _distinct({"step": steps.astype(np.float64), **columns})
    first, last = int(batch["step"][0]), int(batch["step"][-1])
    touched = [
        piece
        for piece in store.pieces(session, run_id, kind, first, last)
        if piece.attempt_number == attempt_number
    ]
    if not touched:
        store.append_all(session, store.cut(run_id, kind, attempt_number, batch))
        return len(batch["step"])
    recorded = store.join(store.load(session, run_id, kind, touched))
    merged = _distinct(store.join([recorded, batch]))
    new = len(merged["step"]) - len(recorded["step"])
    if new:
        store.replace(session, run_id, kind, touched, merged)
    return new


def ranges(session: Session, curve_id: str, kind: str) -> Sequence[Range]:
    """The ranges of steps that the chunks of a curve (`store.curve_of`) cover, ascending; the
    newest attempt wins.
    """
    whole = store.pieces(session, curve_id, kind)
    if len({piece.attempt_number for piece in whole}) < 2:
        return whole
    limits, stride = store.superseded_from(session, curve_id, kind), stride_of(whole) or 1
    parts = (piece.up_to(limits[piece.attempt_number], max(1, stride)) for piece in whole)
    return [part for part in parts if part is not None]


def _distinct(table: store.Columns) -> store.Columns:
    """A table by ascending step, each once; DifferentError if the rows of a step differ in
    any bit.
    """
    order = np.argsort(table["step"], kind="stable")
    ordered = {name: values[order] for name, values in table.items()}
    step = ordered["step"]
    again = np.flatnonzero(step[1:] == step[:-1])
    if not len(again):
        return ordered
    for name, values in ordered.items():
        bits = np.ascontiguousarray(values).view(np.int64)
        differing = again[bits[again] != bits[again + 1]]
        if len(differing):
            raise DifferentError(int(step[differing[0]]), name)
    kept = np.append(True, step[1:] != step[:-1])
    return {name: values[kept] for name, values in ordered.items()}


# Runs that the user trains: attach, append, finish. Plain functions of a session.
#
# A trainer attaches to its run and gets the number of its attempt, which it sends with every
# request. Attaching again fences the earlier trainer. A run does not fail because its trainer
# stopped early: it awaits the next attach, until it has been silent for too long. Even then a
# trainer that comes back goes on, if the job has not ended meanwhile.

Kind = Literal["train", "validation"]
Outcome = Literal["finished", "failed", "broke_off"]
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]
_Text = Annotated[str, Field(max_length=1000)]

JUDGED = "lm_loss"
STALE = "STALE"
ABOVE_PLAN = "STEPS_ABOVE_PLAN"
_LARGEST_STEP = 2**53
_MOST_COLUMNS = 1000  # of a run, over all of its batches
_MOST_FACTS = 262_144  # characters of a run's manifest, over all of its attempts
_FIRST_VALUES, _LAST_VALUES, _BETWEEN = 4, 4, "…"  # of a fact that differs between attempts


@frozen
class AttachRequest(Body):
    """A trainer's description of itself when it begins or continues a run.

    `manifest` has the facts that must agree between the arms (versions, device class, data digest,
    code revision); a difference is `CONFOUNDED`. `recipe` must be the arm's; `rounding` states how
    the trainer rounds gradients. With `after`, the request succeeds only if the run has had exactly
    that many attempts.
    """

    manifest: Annotated[Mapping[Name, _Text], Field(max_length=100)]
    recipe: _Text | None = None
    after: Annotated[int, Field(ge=0, le=_LARGEST_STEP)] | None = None
    rounding: Rounding | None = None


@frozen(eq=False)
class Batch:
    """Steps (n,) in any order and their columns, name -> (n,)."""

    steps: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        if not len(self.steps):
            raise _wrong("steps", "has no step, expected at least one")
        if self.steps.min() < 0 or self.steps.max() > _LARGEST_STEP:
            raise _wrong(
                "steps",
                f"has step {self.steps.min()} or {self.steps.max()}, expected 0 to {_LARGEST_STEP}",
            )
        for name, values in self.columns.items():
            if len(values) != len(self.steps):
                raise _wrong(
                    f"columns/{name}",
                    f"has {len(values)} values for {len(self.steps)} steps, expected one value "
                    "per step",
                )


def covered(session: Session, run: Run) -> Coverage:
    """Which steps of a run have arrived, and which are missing."""
    return coverage(ranges(session, run.reused_from or run.id, "train"))


def attach(
    session: Session,
    settings: Settings,
    run_id: str,
    request: AttachRequest,
    key: str | None = None,
) -> Run:
    """Begin an attempt of a run and fence the previous one; returns the run, whose `attempt_number`
    is that of the attempt.

    `key` is the trainer's name for this attach. Until another trainer attaches, the same key means
    the same attempt. `after` is for steps that were recorded while the server was away. An error if
    the recipe is not the arm's, or the rounding contradicts it.
    """
    run = _external(session, run_id)
    newest = None if key is None else session.get(Attempt, (run_id, run.attempt_number))
    is_repeated = newest is not None and newest.key == key
    stated = statements.of_arm(run.arm)
    known = stated.recipe if run.arm.recipe == UNSTATED else run.arm.recipe
    if request.rounding is not None and stated.rounding not in (None, request.rounding):
        raise InvalidError(
            f"rounding is {request.rounding}, expected {stated.rounding}, which is stated of arm "
            f"{run.arm.name}"
        )
    if request.recipe is not None and known not in (None, request.recipe):
        raise InvalidError(
            f"recipe is {request.recipe}, expected {known}, the recipe of arm {run.arm.name} of "
            f"run {run_id}"
        )
    try:
        check_rounding(known, request.rounding, f"rounding of arm {run.arm.name}")
    except RecipeError as error:
        raise InvalidError(str(error)) from None
    if is_repeated:
        lifecycle.go_on(session, run, settings.external_stale_seconds)
    if run.state in RUN_ENDED and not lifecycle.may_go_on(session, run):
        raise StaleAttemptError(
            f"run {run_id} has ended ({run.state}){_why(run)} and accepts no further attempt; "
            "submit a new job"
        )
    if is_repeated and run.state == "running":
        return run
    if request.after is not None and request.after != run.attempt_number and not is_repeated:
        raise StaleAttemptError(
            f"run {run_id} has had {run.attempt_number} attempts, not {request.after}: a newer "
            "trainer has taken over"
        )
    if run.state == "running":
        # the best estimate until the new trainer has its own
        speed = {"steps_per_second": run.steps_per_second}
        lifecycle.requeue(
            session,
            run,
            attempt="lost",
            code="SUPERSEDED",
            message="another trainer attached to this run",
            **speed,
        )
    merged = _merged(
        run.manifest, {**request.manifest, "engine": "external"}, begun=run.steps_done > 0
    )
    if reason := named_baseline_mismatch(run.job, merged):
        raise ConflictError(f"run {run_id} cannot begin: {reason}")
    lifecycle.attach(
        session,
        run,
        merged,
        external_fingerprint(run, merged),
        key,
        settings.external_stale_seconds,
    )
    if request.rounding is not None:
        run.rounding = request.rounding
    return run


def append(
    session: Session, settings: Settings, run_id: str, attempt_number: int, kind: Kind, batch: Batch
) -> tuple[int, int]:
    """Record a batch of an attempt; returns how many steps are new, and how many are too far above
    the plan and were left out.

    Batches may arrive in any order and more than once. ConflictError if a step is already recorded
    with other numbers.
    """
    columns = _named(kind, batch.columns)
    run = _held(session, settings, run_id, attempt_number)
    _check_columns(session, run_id, kind, columns)
    steps, left_out = batch.steps, 0
    if run.planned_steps is not None:
        kept = steps <= last_recorded(run.planned_steps)
        left_out = int(np.count_nonzero(~kept))
        if left_out and run.code != ABOVE_PLAN:
            lifecycle.mark(
                session, run, ABOVE_PLAN, _above_plan(run.planned_steps, int(steps[~kept].min()))
            )
        steps, columns = steps[kept], {name: values[kept] for name, values in columns.items()}
    try:
        new = merge(session, run_id, kind, attempt_number, steps, columns) if len(steps) else 0
    except DifferentError as error:
        raise ConflictError(
            f"run {run_id}, attempt {attempt_number}: {error}; the recorded values stay, and "
            "nothing of this batch was saved"
        ) from error
    now = sessions.now(session)
    # One update of the run's row: PostgreSQL locks the job's row too for a second one in a
    # transaction, and would wait for its holders.
    if kind == "train" and len(steps):
        _note_progress(session, run, steps, columns[JUDGED], now)
        if new:
            run.recorded_at = now
    run.lease_expires_at = now + settings.external_stale_seconds
    if run.code == STALE:
        run.code = run.message = None
    if new:
        _seal_at_times(session, run_id, kind, attempt_number, new)
    return new, left_out


def _above_plan(planned_steps: int, step: int) -> str:
    return (
        f"the plan is {planned_steps:,} steps, and the trainer logged step {step:,}; steps up to "
        f"{last_recorded(planned_steps):,} are "
        "recorded, no later ones: log optimizer steps, or train in a job with a longer schedule"
    )


def finish(
    session: Session,
    settings: Settings,
    run_id: str,
    attempt_number: int,
    outcome: Outcome,
    message: str | None = None,
) -> Run:
    """End an attempt. After `broke_off` the run awaits the next attach, else the run has ended. A
    repeated call changes nothing.
    """
    run = _external(session, run_id)
    end: RunState = "awaiting_data" if outcome == "broke_off" else outcome
    if run.attempt_number == attempt_number and run.state == end and attempt_number:
        return run
    _held(session, settings, run_id, attempt_number)
    if outcome == "finished" and not covered(session, run).recorded:
        raise InvalidError(
            f"run {run_id} has no recorded step, so it cannot be finished; finish it as failed, "
            "with a message"
        )
    for kind in ("train", "validation"):
        store.seal(session, run_id, kind, attempt_number)
    text = message or "the trainer gave no reason"
    match outcome:
        case "finished":
            above = {"code": run.code, "message": run.message} if run.code == ABOVE_PLAN else {}
            lifecycle.finish(session, run, steps_per_second=None, **above)
        case "failed":
            lifecycle.fail(session, run, code="TRAINER_FAILED", message=text, steps_per_second=None)
        case "broke_off":
            stale_at = sessions.now(session) + settings.external_stale_seconds
            broken = {"crashes": run.crashes + 1, "lease_expires_at": stale_at}
            lifecycle.requeue(
                session, run, attempt="crashed", code="TRAINER_BROKE_OFF", message=text, **broken
            )
    return run


def _held(session: Session, settings: Settings, run_id: str, attempt_number: int) -> Run:
    """The run, locked, if this attempt_number is its running attempt, or its last one before it
    failed for its silence, which then goes on.

    Else ConflictError or StaleAttemptError.
    """
    run = _external(session, run_id)
    if attempt_number > run.attempt_number:
        raise InvalidError(
            f"attempt is {attempt_number}, but run {run_id} has had {run.attempt_number}; attach "
            "first, and use `attempt` of the response"
        )
    if run.state in RUN_ENDED and not (
        attempt_number == run.attempt_number
        and lifecycle.go_on(session, run, settings.external_stale_seconds)
    ):
        raise StaleAttemptError(
            f"run {run_id} has ended ({run.state}){_why(run)}; no further steps are recorded"
        )
    if attempt_number < run.attempt_number:
        raise StaleAttemptError(
            f"attempt {attempt_number} of run {run_id} has ended: attempt {run.attempt_number} has "
            "taken over; let only one process of a run log"
        )
    if run.state != "running":
        raise StaleAttemptError(
            f"attempt {attempt_number} of run {run_id} has ended; attach again to continue"
        )
    return run


def _why(run: Run) -> str:
    """Why a run has ended, for an error; of a silent one also that its job is over."""
    if run.code == SILENT and run.job.status in JOB_ENDED:
        over = f"; job {run.job_id} is {run.job.status} already"
    else:
        over = ""
    if not run.message:
        return ""
    return f": {run.message}{over}"


def _external(session: Session, run_id: str) -> Run:
    """A run, locked; InvalidError if a worker trains it: nobody else writes it."""
    run = find_run(session, run_id, lock=True)
    if run.capability != "external":
        raise InvalidError(
            f"run {run.id} has engine {run.job.engine}, which a worker trains; expected a run with "
            "engine external"
        )
    return run


def _named(
    kind: Kind, columns: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """The columns under the database's names: a single training `loss` is the judged one."""
    renamed = dict(columns)
    if kind == "validation":
        if "loss" not in renamed:
            raise _wrong("columns", "has no loss, expected the validation loss in nats")
    elif JUDGED not in renamed:
        if "loss" not in renamed:
            raise _wrong(
                "columns", f"has no loss, expected a column loss (or {JUDGED}) in nats per token"
            )
        renamed[JUDGED] = renamed.pop("loss")
    return renamed


def _check_columns(
    session: Session, run_id: str, kind: Kind, columns: Mapping[str, object]
) -> None:
    """InvalidError if a run would have more columns than its readers can show."""
    recorded = store.names(session, run_id, kind)
    new = [name for name in columns if name not in recorded]
    count = len(recorded) + len(new)
    if new and count > _MOST_COLUMNS:
        raise _wrong(
            f"columns/{new[0]}",
            f"would be one of {count:,} columns of run {run_id}, expected at most "
            f"{_MOST_COLUMNS:,} over all of its batches; "
            "log fewer names, and put no number such as the step into a name",
        )


def _note_progress(
    session: Session, run: Run, steps: NDArray[np.int64], judged: NDArray[np.float64], now: float
) -> None:
    """Update the run's progress, its last loss, and its speed since this attempt began."""
    attempt = (
        select(Attempt.started_at)
        .where(Attempt.run_id == run.id, Attempt.attempt_number == run.attempt_number)
        .scalar_subquery()
    )
    began, last, began_at = session.execute(
        select(func.min(Chunk.first_step), func.max(Chunk.last_step), attempt).where(
            Chunk.run_id == run.id,
            Chunk.kind == "train",
            Chunk.attempt_number == run.attempt_number,
        )
    ).one()
    run.steps_done = last + 1 if run.planned_steps is None else min(run.planned_steps, last + 1)
    newest = int(np.argmax(steps))
    if steps[newest] == last:
        run.last_loss = repr(float(judged[newest]))
    if last > began and now > began_at:
        run.steps_per_second = (last - began) / (now - began_at)


def _seal_at_times(
    session: Session, run_id: str, kind: Kind, attempt_number: int, new: int
) -> None:
    """Merge chunks after every 4,096 further steps, and small ones after every 64 chunks."""
    own = (Chunk.run_id == run_id, Chunk.kind == kind, Chunk.attempt_number == attempt_number)
    steps, chunks = session.execute(select(func.sum(Chunk.count), func.count()).where(*own)).one()
    if steps // store.SEALED_STEPS > (steps - new) // store.SEALED_STEPS:
        store.seal(session, run_id, kind, attempt_number)
    elif chunks % store.SMALL_CHUNKS == 0:
        store.seal(
            session, run_id, kind, attempt_number, min(store.SMALL_CHUNKS * new, store.SEALED_STEPS)
        )


def _merged(
    old: Mapping[str, str] | None, new: Mapping[str, str], *, begun: bool
) -> dict[str, str]:
    """The manifest of a run with several attempts; where they differ and steps were recorded, it
    has both values.

    Of many values the first and the last ones stay: which arms agree does not depend on the others.
    ConflictError if it grows too large.
    """
    if not old or not begun:
        return dict(new)
    merged = dict(old)
    for key, value in new.items():
        seen = old[key].split(", later ") if key in old else []
        merged[key] = ", later ".join(seen if value in seen else _some([*seen, value]))
    size = sum(len(key) + len(value) for key, value in merged.items())
    if size > _MOST_FACTS:
        raise ConflictError(
            f"the manifests of this run's attempts have {size:,} characters together, expected at "
            f"most {_MOST_FACTS:,}; state facts that hold for all attempts, under the same names"
        )
    return merged


def _some(values: list[str]) -> list[str]:
    """The first and the last of the values of a fact, with a mark where others were."""
    if len(values) <= _FIRST_VALUES + _LAST_VALUES:
        return values
    return [
        *values[:_FIRST_VALUES],
        _BETWEEN,
        *[value for value in values[_FIRST_VALUES:] if value != _BETWEEN][-_LAST_VALUES:],
    ]


def _wrong(field: str, problem: str) -> InvalidError:
    return InvalidError.at(f"/{field}", problem, f"{field} {problem}")


# Until when the service has listened to the trainers of users: the silence of a run counts only
# while somebody could have heard it.
#
# Every API process renews the row `listening` of the duties. Whoever renews it after a gap (all
# processes were stopped, the machine was suspended, the database was away) moves the leases of
# external runs by the gap first. Nobody fails a silent run while the row is old.

PERIOD_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 3 * PERIOD_SECONDS  # between two renewals, if somebody listened in between
# A trainer that found nobody tries again after at most 60 s, give or take a half
# (`parity.client.run`).
_NEXT_TRY_SECONDS = 90.0
_UNENDED = (Run.capability == "external", Run.state.in_(("running", "awaiting_data")))


def listens(session: Session) -> bool:
    """Whether an API process listens now."""
    until = session.scalar(select(Duty.expires_at).where(Duty.name == LISTENING)) or 0.0
    return sessions.now(session) - until <= _LONGEST_PAUSE_SECONDS


def renew(session: Session, stale_seconds: float) -> float:
    """Note that the service listens. After a gap, move the leases of the runs that were attached
    before it; returns the gap in seconds.
    """
    row = session.get_one(Duty, LISTENING, with_for_update=True)
    now, until = sessions.now(session), row.expires_at
    gap = now - until if until and now - until > _LONGEST_PAUSE_SECONDS else 0.0
    if gap:
        # Whose data came after the gap has a lease from then, and needs no other one.
        came_before = Run.lease_expires_at <= until + _LONGEST_PAUSE_SECONDS + stale_seconds
        moved = (
            update(Run)
            .where(*_UNENDED, came_before)
            .values(lease_expires_at=Run.lease_expires_at + gap + _NEXT_TRY_SECONDS)
        )
        session.execute(moved.execution_options(synchronize_session=False))
    row.expires_at = now
    return gap


class Listener(Repeating):
    """The thread of an API process that renews the row, at once and then every few seconds."""

    def __init__(self, database: Database, stale_seconds: float) -> None:
        super().__init__(
            "listening",
            self._renew,
            PERIOD_SECONDS,
            "it could not be noted that this process listens",
            at_once=True,
        )
        self._database = database
        self._stale_seconds = stale_seconds

    def _renew(self) -> None:
        with self._database.write() as session:
            gap = renew(session, self._stale_seconds)
        if gap:
            _log.warning(
                "nobody listened to trainers for %.0f s; the silence of their runs in that time "
                "does not count",
                gap,
            )


# Runs of a user's own trainer that stopped sending: marked as stale, and failed after
# `external_silence_seconds`.
#
# A stale run has not crashed: a trainer that cannot reach the server continues and sends everything
# later, so the limit is long. Silence counts only while the service listened
# (`server.jobs.external`).

_log = logging.getLogger(__name__)


def mark_or_fail_stale(settings: Settings, database: Database) -> list[str]:
    """Mark attached runs without new data as stale and fail those that were silent for too long;
    returns the ids of the failed runs.

    Does nothing while no API process listens.
    """
    with database.read() as session:
        if not listens(session):
            return []
        stale = [run.id for run in session.scalars(_stale_runs(session))]
    failed: list[str] = []
    for run_id in stale:
        with database.write() as session:
            if not listens(session):  # this machine was suspended in between
                return failed
            run = session.scalars(
                _stale_runs(session).where(Run.id == run_id).with_for_update(skip_locked=True)
            ).first()
            if run and _mark_or_fail(session, settings, run):
                _log.warning(
                    "run %s has failed: it was silent for %g s",
                    run_id,
                    settings.external_silence_seconds,
                )
                failed.append(run_id)
    return failed


def _stale_runs(session: Session) -> Select[Run]:
    return select(Run).where(*_UNENDED, Run.lease_expires_at < sessions.now(session))


def _mark_or_fail(session: Session, settings: Settings, run: Run) -> bool:
    """Mark or fail one run; True if it was failed."""
    assert run.lease_expires_at is not None  # noqa: S101
    last_data_at = run.lease_expires_at - settings.external_stale_seconds
    seconds = sessions.now(session) - last_data_at
    if seconds < settings.external_silence_seconds:
        if run.code is None:
            lifecycle.mark(
                session,
                run,
                STALE,
                f"no data for {_duration(seconds)}; the run continues when data arrives",
            )
        return False
    before = f"; before: {run.code}: {run.message}" if run.code not in (None, STALE) else ""
    message = (
        f"no data arrived for {_duration(settings.external_silence_seconds)} after the trainer "
        f"attached{before}"
    )
    return lifecycle.fail(session, run, code=SILENT, message=message, attempt="lost")


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{math.floor(seconds / size)} {unit}"
    return f"{seconds:.0f} seconds"
