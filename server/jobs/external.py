"""Runs that the user trains: attach, append, finish.

Plain functions of a session.

A trainer attaches to its run and gets the number of its attempt, which it sends with every
request. Attaching again fences the earlier trainer. A run does not fail because its trainer
stopped early: it awaits the next attach, until it has been silent for too long. Even then a
trainer that comes back goes on, if the job has not ended meanwhile.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import Rounding
from parity.judging.curves.outside_plan import last_recorded
from parity.recipes import UNSTATED, RecipeError, check_rounding
from server.curves.layer_table import LAYERS
from server.database import clock
from server.database.lookups import find_run
from server.database.metrics import chunk_tables, store
from server.database.metrics.coverage import Coverage, coverage
from server.database.states import JOB_ENDED, RUN_ENDED, SILENT
from server.database.tables import Attempt, Chunk, Run, RunState
from server.errors import ConflictError, InvalidError, StaleAttemptError
from server.jobs import applied_statements, lifecycle
from server.jobs.fingerprint import external_fingerprint, named_baseline_mismatch
from server.jobs.step_batches import DifferentError, merge, ranges
from server.records import Body
from server.settings import Settings

Kind = Literal["train", "validation"]
Outcome = Literal["finished", "failed", "broke_off"]
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME)]
# A layer may have its own parts with `/`; an operand has words, such as `gradient nvfp4`.
LayerColumn = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_./:\[\]-]{1,150}/[A-Za-z0-9_.-]+( [A-Za-z0-9_.-]+)*/[a-z0-9_]{1,40}$",
        max_length=250,
    ),
]
_Text = Annotated[str, Field(max_length=1000)]

STALE = "STALE"
ABOVE_PLAN = "STEPS_ABOVE_PLAN"
_LARGEST_STEP = 2**53
_MOST_COLUMNS = 1000  # of a run, over all of its batches
MOST_LAYER_COLUMNS = 10_000
"""Of a run: 126 blocks of 4 linear layers with 3 tensors each have 1,512 of each statistic."""
_MOST_FACTS = 262_144  # characters of a run's manifest, over all of its attempts
_FIRST_VALUES, _LAST_VALUES, _ELLIPSIS = 4, 4, "…"  # of a fact that differs between attempts


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
    stated = applied_statements.arm_facts(run.arm)
    recipe = stated.recipe if run.arm.recipe == UNSTATED else run.arm.recipe
    if request.rounding is not None and stated.rounding not in (None, request.rounding):
        raise InvalidError(
            f"rounding is {request.rounding}, expected {stated.rounding}, which is stated of arm "
            f"{run.arm.name}"
        )
    if request.recipe is not None and recipe not in (None, request.recipe):
        raise InvalidError(
            f"recipe is {request.recipe}, expected {recipe}, the recipe of arm {run.arm.name} of "
            f"run {run_id}"
        )
    try:
        check_rounding(recipe, request.rounding, f"rounding of arm {run.arm.name}")
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
    named = _named(kind, batch.columns)
    run = _held(session, settings, run_id, attempt_number)
    _check_columns(session, run_id, kind, named, _MOST_COLUMNS)
    steps, columns, left_out = _within_plan(run, batch.steps, named)
    if len(left_out) and run.planned_steps is not None and run.code != ABOVE_PLAN:
        lifecycle.mark(
            session, run, ABOVE_PLAN, _above_plan(run.planned_steps, int(left_out.min()))
        )
    new = _merged_steps(session, run, kind, steps, columns)
    now = clock.now(session)
    # One update of the run's row: PostgreSQL locks the job's row too for a second one in a
    # transaction, and would wait for its holders.
    if kind == "train" and len(steps):
        _note_progress(session, run, steps, columns[JUDGED_LOSS], now)
        if new:
            run.recorded_at = now
    run.lease_expires_at = now + settings.external_stale_seconds
    if run.code == STALE:
        run.code = run.message = None
    if new:
        _seal_at_times(session, run_id, kind, attempt_number, new)
    return new, len(left_out)


def append_layers(
    session: Session, settings: Settings, run_id: str, attempt_number: int, batch: Batch
) -> int:
    """Record statistics by layer of an attempt; returns how many steps are new. Steps too far above
    the plan are left out. ConflictError as for `append`.
    """
    run = _held(session, settings, run_id, attempt_number)
    _check_columns(session, run_id, LAYERS, batch.columns, MOST_LAYER_COLUMNS)
    steps, columns, _ = _within_plan(run, batch.steps, batch.columns)
    new = _merged_steps(session, run, LAYERS, steps, columns)
    run.lease_expires_at = clock.now(session) + settings.external_stale_seconds
    return new


def _within_plan(
    run: Run, steps: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]
) -> tuple[NDArray[np.int64], Mapping[str, NDArray[np.float64]], NDArray[np.int64]]:
    """The steps that are recorded, with their columns, and those that are too far above the
    plan.
    """
    if run.planned_steps is None:
        return steps, columns, steps[:0]
    is_kept = steps <= last_recorded(run.planned_steps)
    kept = {name: values[is_kept] for name, values in columns.items()}
    return steps[is_kept], kept, steps[~is_kept]


def _merged_steps(
    session: Session,
    run: Run,
    kind: str,
    steps: NDArray[np.int64],
    columns: Mapping[str, NDArray[np.float64]],
) -> int:
    """Record these steps of the newest attempt; returns how many are new."""
    try:
        return merge(session, run.id, kind, run.attempt_number, steps, columns) if len(steps) else 0
    except DifferentError as error:
        raise ConflictError(
            f"run {run.id}, attempt {run.attempt_number}: {error}; the recorded values stay, and "
            "nothing of this batch was saved"
        ) from error


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
    for kind in ("train", "validation", LAYERS):
        store.seal(session, run_id, kind, attempt_number)
    text = message or "the trainer gave no reason"
    match outcome:
        case "finished":
            above = {"code": run.code, "message": run.message} if run.code == ABOVE_PLAN else {}
            lifecycle.finish(session, run, steps_per_second=None, **above)
        case "failed":
            lifecycle.fail(session, run, code="TRAINER_FAILED", message=text, steps_per_second=None)
        case "broke_off":
            stale_at = clock.now(session) + settings.external_stale_seconds
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
    elif JUDGED_LOSS not in renamed:
        if "loss" not in renamed:
            raise _wrong(
                "columns",
                f"has no loss, expected a column loss (or {JUDGED_LOSS}) in nats per token",
            )
        renamed[JUDGED_LOSS] = renamed.pop("loss")
    return renamed


def _check_columns(
    session: Session, run_id: str, kind: str, columns: Mapping[str, object], most: int
) -> None:
    """InvalidError if a run would have more columns than its readers can show."""
    recorded = store.names(session, run_id, kind)
    new = [name for name in columns if name not in recorded]
    count = len(recorded) + len(new)
    if new and count > most:
        raise _wrong(
            f"columns/{new[0]}",
            f"would be one of {count:,} columns of run {run_id}, expected at most "
            f"{most:,} over all of its batches; "
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
    conditions = (
        Chunk.run_id == run_id,
        Chunk.kind == kind,
        Chunk.attempt_number == attempt_number,
    )
    steps, chunks = session.execute(
        select(func.sum(Chunk.count), func.count()).where(*conditions)
    ).one()
    if steps // chunk_tables.SEALED_STEPS > (steps - new) // chunk_tables.SEALED_STEPS:
        store.seal(session, run_id, kind, attempt_number)
    elif chunks % store.SMALL_CHUNKS == 0:
        store.seal(
            session,
            run_id,
            kind,
            attempt_number,
            min(store.SMALL_CHUNKS * new, chunk_tables.SEALED_STEPS),
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
        _ELLIPSIS,
        *[value for value in values[_FIRST_VALUES:] if value != _ELLIPSIS][-_LAST_VALUES:],
    ]


def _wrong(field: str, problem: str) -> InvalidError:
    return InvalidError.at(f"/{field}", problem, f"{field} {problem}")
