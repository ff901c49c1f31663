"""Loads the recorded curves of a job's runs, for the judge (with the context that must agree
between arms) and for charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
from sqlalchemy.orm import Session

from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.context import HOST, PARAMETERS
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import ADDED, REUSED, STOPPED
from parity.judging.secondary.conditions import UNIX_SECONDS
from server.curves.wall_clock import Trained, trained_each
from server.database.metrics import store
from server.database.metrics.chunk_tables import Recorded
from server.database.metrics.many_runs import read_each
from server.database.states import EARLY_STOP, ENDED_EARLY
from server.database.tables import Arm, Run
from server.errors import StoredFormError
from server.stored import stored_model

# What the judge reads in addition to the judged loss: the store's name -> the judge's.
_COLUMNS = {"loss": "total_loss"} | {
    name: name
    for name in ("grad_norm", "clipped_grad_norm", "learning_rate", "step_seconds", "tokens")
}
# Engines with the model of the job; of engine emulated nothing is assumed, whatever its size.
_OWN_MODELS = frozenset({"maxtext", "transformer_engine"})


def curve(session: Session, run: Run) -> Curve:
    """The judged curve of one run: `lm_loss` (nats a token, no auxiliary loss) against the step,
    newest attempt winning.
    """
    return curves(session, [run])[0]


def curves(session: Session, runs: Sequence[Run]) -> list[Curve]:
    """The judged curve of each run, as `curve`."""
    ids = [run.id for run in runs]
    trained = [*read_each(session, ids, "train", [JUDGED_LOSS, *_COLUMNS])]
    validated = read_each(session, ids, "validation", ["loss"])
    times = trained_each(
        session, runs, [(steps, columns["step_seconds"]) for steps, columns in trained]
    )
    return [_judged(*parts) for parts in zip(runs, trained, validated, times, strict=True)]


def _judged(run: Run, recorded: Recorded, validation: Recorded, trained: Trained) -> Curve:
    steps, columns = recorded
    # An additional column, NaN between the evaluations.
    validation_loss = np.full(len(steps), np.nan)
    at, here, there = np.intersect1d(steps, validation[0], assume_unique=True, return_indices=True)
    validation_loss[here] = validation[1]["loss"][there] if len(at) else np.nan
    # One that was never recorded is NaN throughout, and left out below.
    judge_columns = {ours: columns[stored] for stored, ours in _COLUMNS.items()}
    judge_columns |= {"validation_loss": validation_loss, UNIX_SECONDS: trained.unix_seconds}
    return curve_from_arrays(
        steps,
        columns[JUDGED_LOSS],
        columns={
            name: values for name, values in judge_columns.items() if not np.isnan(values).all()
        },
        label=label(run),
        seed=run.stated_seed,
        replicate=run.replicate,
        recipe=run.arm.stated_recipe,
        rounding=run.rounding,
        context=_known_size(run)
        | {key: str(value) for key, value in (run.manifest or {}).items()}
        | ({HOST: trained.host} if trained.host else {}),
        notes=_notes(run),
    )


def _known_size(run: Run) -> dict[str, str]:
    """The size of a model that the service has built itself, which no manifest repeats: by it the
    judge knows whether run-to-run noise may be assumed.
    """
    if run.job.engine not in _OWN_MODELS:
        return {}
    with suppress(StoredFormError):  # a job that only a newer version can read
        return {PARAMETERS: str(stored_model(run.job.spec).parameters)}
    return {}


def losses(session: Session, run: Run) -> Curve:
    """The steps and judged losses of one run, without its other columns."""
    steps, columns = store.read(session, run.id, "train", [JUDGED_LOSS])
    return curve_from_arrays(
        steps,
        columns[JUDGED_LOSS],
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
    if run.code in ENDED_EARLY and run.message:
        notes.append(_before_the_log(run.message))
    return notes + ([f"{STOPPED}{run.message}"] if run.code == EARLY_STOP else [])


def _before_the_log(message: str) -> str:
    """The sentence of a message that goes on with the last lines of a log."""
    sentence, _, _ = message.partition("\n")
    return sentence.rpartition("; the ")[0] or sentence


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
    steps, columns = store.read_range(
        session, run.id, "train", first_step, last_step, [JUDGED_LOSS]
    )
    return curve_from_arrays(
        steps,
        columns[JUDGED_LOSS],
        label=label(run),
        seed=run.stated_seed,
        replicate=run.replicate,
        recipe=run.arm.stated_recipe,
        rounding=run.rounding,
    )
