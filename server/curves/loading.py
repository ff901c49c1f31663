"""Loads the recorded curves of a job's runs, for the judge and for charts, with time, place and
layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.context import HOST
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import ADDED, REUSED, STOPPED
from parity.judging.multiplicity import MAX_LOOKS, Multiplicity
from parity.judging.policy import policy_from_mapping
from parity.judging.secondary.conditions import UNIX_SECONDS
from server.database.metrics import replaced_steps, store
from server.database.metrics.chunk_tables import Recorded
from server.database.metrics.many_runs import read_each
from server.database.metrics.replaced_steps import superseded_in_each
from server.database.states import EARLY_STOP
from server.database.tables import Arm, Attempt, Job, Run, Worker, table_of

# Seconds of training up to each logged step of a run, for charts against time.


@frozen(eq=False)
class TrainingTime:
    """Seconds of training up to some steps (n,) of a run, ascending, so that a range need not be
    summed from the first step.
    """

    steps: NDArray[np.int64]
    passed: NDArray[np.float64]

    def before(self, step: int) -> tuple[int, float] | None:
        """The last step before this one, with its seconds, or None."""
        at = int(np.searchsorted(self.steps, step)) - 1
        if at < 0:
            return None
        return int(self.steps[at]), float(self.passed[at])

    def with_some_of(
        self, steps: NDArray[np.int64], passed: NDArray[np.float64], every: int
    ) -> TrainingTime:
        """The same with every n-th of these steps (`every` = n), which replace the earlier entries
        of their range.
        """
        old = (self.steps < steps[0]) | (self.steps > steps[-1])
        some = np.append(self.steps[old], steps[every - 1 :: every])
        order = np.argsort(some)
        return TrainingTime(
            steps=some[order], passed=np.append(self.passed[old], passed[every - 1 :: every])[order]
        )


def seconds_of(
    steps: NDArray[np.int64],
    step_seconds: NDArray[np.float64],
    after: tuple[int, float] | None = None,
) -> NDArray[np.float64]:
    """Seconds of training up to each of (n,) logged steps.

    Steps between two logged ones are taken to last as long as the later one; unknown times count as
    0. The sum begins at the first step, or continues from a step with known seconds (`after`).
    """
    durations = np.where(np.isfinite(step_seconds), step_seconds, 0.0)
    last, passed = (steps[:1] - 1, 0.0) if after is None else (after[0], after[1])
    return passed + np.cumsum(durations * np.diff(steps, prepend=last))


# When and where a run trained, from its attempts: what the judge needs before it compares step
# times.

_attempts, _workers = table_of(Attempt).c, table_of(Worker)
_ATTEMPTS = (
    select(_attempts.run_id, _attempts.attempt_number, _attempts.started_at, _workers.c.name)
    .outerjoin(_workers, _workers.c.id == _attempts.worker_id)
    .where(_attempts.run_id.in_(bindparam("runs", expanding=True)))
)


@frozen(eq=False)
class Trained:
    """When each of (n,) steps of a run's curve ended, Unix seconds, NaN where unknown; and on which
    machines, by name, None if unknown.
    """

    unix_seconds: NDArray[np.float64]
    host: str | None


Times = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The steps (n,) of a run's curve, and how many seconds each took (n,)."""


def trained_each(session: Session, runs: Sequence[Run], curves: Sequence[Times]) -> list[Trained]:
    """When and where each run's curve was trained: a step ends at its attempt's start plus the
    training since.

    Of a run that has another's curve it is the time at which that one trained. A run whose step
    times are not recorded has no times.
    """
    stored_as = [replaced_steps.curve_of(session, run.id) for run in runs]
    attempts: dict[str, dict[int, float]] = {}
    machines: dict[str, set[str]] = {}
    for run_id, attempt_number, started_at, name in session.connection().execute(
        _ATTEMPTS, {"runs": list({*stored_as})}
    ):
        attempts.setdefault(run_id, {})[attempt_number] = started_at
        if name:  # a worker's name is its machine's and its process's number
            machines.setdefault(run_id, set()).add(name.rpartition(":")[0] or name)
    limits = superseded_in_each(session, stored_as, "train")
    each = []
    for own, (steps, step_seconds) in zip(stored_as, curves, strict=True):
        at = np.full(len(steps), np.nan)
        if own in attempts and not np.isnan(step_seconds).all():
            _fill(at, attempts[own], limits[own], steps, step_seconds)
        each.append(Trained(unix_seconds=at, host=", ".join(sorted(machines.get(own, ()))) or None))
    return each


def _fill(
    at: NDArray[np.float64],
    started: Mapping[int, float],
    limits: Mapping[int, float],
    steps: NDArray[np.int64],
    step_seconds: NDArray[np.float64],
) -> None:
    """Write the times of each attempt's steps, up to the first step that a newer one replaces."""
    begin = 0
    for attempt_number, limit in sorted(limits.items()):
        end = len(steps) if math.isinf(limit) else int(np.searchsorted(steps, limit))
        if attempt_number in started and end > begin:
            at[begin:end] = started[attempt_number] + seconds_of(
                steps[begin:end], step_seconds[begin:end]
            )
        begin = max(begin, end)


# Loads the recorded curves of a job's runs, for the judge (with the context that must agree between
# arms) and for charts.

# What the judge reads in addition to the judged loss: the store's name -> the judge's.
_COLUMNS = {"loss": "total_loss"} | {
    name: name
    for name in ("grad_norm", "clipped_grad_norm", "learning_rate", "step_seconds", "tokens")
}


def curve(session: Session, run: Run) -> Curve:
    """The judged curve of one run: `lm_loss` (nats a token, no auxiliary loss) against the step,
    newest attempt winning.
    """
    return curves(session, [run])[0]


def curves(session: Session, runs: Sequence[Run]) -> list[Curve]:
    """The judged curve of each run, as `curve`."""
    ids = [run.id for run in runs]
    trained = [*read_each(session, ids, "train", ["lm_loss", *_COLUMNS])]
    validated = read_each(session, ids, "validation", ["loss"])
    times = trained_each(
        session, runs, [(steps, columns["step_seconds"]) for steps, columns in trained]
    )
    return [_judged(*each) for each in zip(runs, trained, validated, times, strict=True)]


def _judged(run: Run, recorded: Recorded, validation: Recorded, trained: Trained) -> Curve:
    steps, columns = recorded
    # An additional column, NaN between the evaluations.
    validation_loss = np.full(len(steps), np.nan)
    at, here, there = np.intersect1d(steps, validation[0], assume_unique=True, return_indices=True)
    validation_loss[here] = validation[1]["loss"][there] if len(at) else np.nan
    # One that was never recorded is NaN throughout, and left out below.
    known = {ours: columns[stored] for stored, ours in _COLUMNS.items()}
    known |= {"validation_loss": validation_loss, UNIX_SECONDS: trained.unix_seconds}
    return curve_from_arrays(
        steps,
        columns["lm_loss"],
        columns={name: values for name, values in known.items() if not np.isnan(values).all()},
        label=label(run),
        seed=run.stated_seed,
        replicate=run.replicate,
        recipe=run.arm.stated_recipe,
        rounding=run.rounding,
        context={key: str(value) for key, value in (run.manifest or {}).items()}
        | ({HOST: trained.host} if trained.host else {}),
        notes=_notes(run),
    )


def losses(session: Session, run: Run) -> Curve:
    """The steps and judged losses of one run, without its other columns."""
    steps, columns = store.read(session, run.id, "train", ["lm_loss"])
    return curve_from_arrays(
        steps,
        columns["lm_loss"],
        seed=run.stated_seed,
        replicate=run.replicate,
        rounding=run.rounding,
    )


def _notes(run: Run) -> list[str]:
    """What the verdict says of a run: whose curve it is, whether it was planned from the start, and
    why it ended early.
    """
    notes = [reused_note(run)] if run.source else []
    if run.is_added:
        when = datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        notes.append(
            f"{ADDED}{when} UTC, after the job was submitted; a note of the job says by whom"
        )
    return notes + ([f"{STOPPED}{run.message}"] if run.code == EARLY_STOP else [])


def reused_note(run: Run) -> str:
    """A note for the verdict document on a run with a reused curve: its source, and the source's
    age when this run ended.
    """
    source = run.source or run
    trained = datetime.fromtimestamp(source.finished_at or source.created_at, UTC).strftime(
        "%Y-%m-%d %H:%M"
    )
    days = (
        (run.finished_at or run.created_at) - (source.finished_at or source.created_at)
    ) / 86_400
    return (
        f"{REUSED}trained as run {source.id} of job {source.job_id}, ended {trained} UTC, "
        f"{max(0.0, days):.1f} days before"
    )


def label(run: Run) -> str:
    """What the judge calls a run."""
    return f"{run.arm.name} {'short rerun' if run.kind == 'short' else 'replicate'} {run.replicate}"


def begun_runs(arm: Arm) -> list[Run]:
    """The runs of an arm that may have recorded a step, in their order."""
    return [
        run
        for run in arm.runs
        if run.attempt_number or run.state not in ("queued", "awaiting_data")
    ]


def loss_curves(
    session: Session, runs: Sequence[Run], first_step: int = 0, last_step: float = math.inf
) -> list[Curve]:
    """The judged loss (nats a token) of each run from the first to the last step.

    One curve per run, also if the run failed; a run without a step in the range has an empty one.
    """
    return [_loss_curve(session, run, first_step, last_step) for run in runs]


def _loss_curve(session: Session, run: Run, first_step: int, last_step: float) -> Curve:
    steps, columns = store.read_range(session, run.id, "train", first_step, last_step, ["lm_loss"])
    return curve_from_arrays(
        steps,
        columns["lm_loss"],
        label=label(run),
        seed=run.stated_seed,
        replicate=run.replicate,
        recipe=run.arm.stated_recipe,
        rounding=run.rounding,
    )


# Quantization SNR by layer from the recorded statistics; the advice after a fail ranks layers by
# it.

_SNR = "/snr_db"
_LATE_SHARE = 0.2


def snr_db(session: Session, arm: Arm) -> Mapping[tuple[str, str], float]:
    """Signal-to-noise ratio of quantization by (layer, operand), dB: the median over the last fifth
    of the watched steps.

    Taken from the arm's first finished run; empty if no step was watched. Operands that are not
    quantized are left out.
    """
    run = next((run for run in arm.runs if run.state == "finished"), None)
    if run is None:
        return {}
    steps, columns = store.read(session, run.id, "layers")
    late = slice(len(steps) - max(1, round(_LATE_SHARE * len(steps))), None)
    snr = {}
    for name, values in columns.items():
        # Infinite if quantization lost nothing; NaN if the operand stays in bf16.
        finite = values[late][np.isfinite(values[late])]
        if name.endswith(_SNR) and len(finite):
            layer, operand = name.removesuffix(_SNR).rsplit("/", 1)
            snr[layer, operand] = float(np.median(finite))
    return snr


def multiplicity_of(job: Job) -> Multiplicity | None:
    """Which look of how many a job is, and how many candidates share the error; None if its looks
    are not counted.
    """
    if job.look is None or job.look_candidates is None:
        return None
    looks = policy_from_mapping(job.policy).looks
    if job.looked_at is not None:  # a project, whose looks nobody registers before they are taken
        looks = min(MAX_LOOKS, max(job.look, looks))
        return Multiplicity(
            look=min(job.look, looks), looks=looks, candidates=job.look_candidates, registered=True
        )
    return Multiplicity(look=job.look, looks=looks, candidates=job.look_candidates, registered=True)
