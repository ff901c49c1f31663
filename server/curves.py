"""From the record to what the judge reads: the curves of a job's runs, with the context that must agree between arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from parity import Curve, curve_from_arrays
from server.database import store
from server.database.models import Job, Run

# What the judge reads beside the judged loss: the store's name -> the judge's.
_COLUMNS = {"loss": "total_loss", "grad_norm": "grad_norm", "step_seconds": "step_seconds", "tokens": "tokens"}


def curve(session: Session, run: Run) -> Curve:
    """The judged curve of one run: `lm_loss` (nats a token, no auxiliary loss) against the step, newest attempt winning."""
    steps, columns = store.read(session, run.id, "train", ["lm_loss", *_COLUMNS])
    return curve_from_arrays(
        steps,
        columns["lm_loss"],
        columns={ours: columns[stored] for stored, ours in _COLUMNS.items()},
        label=f"{run.arm.name} replicate {run.replicate}",
        seed=run.seed,
        replicate=run.replicate,
        recipe=run.arm.recipe,
        context={key: str(value) for key, value in (run.manifest or {}).items()},
    )


def arm_curves(session: Session, job: Job, states: Sequence[str]) -> Mapping[str, list[Curve]]:
    """Arm name -> curves of those of its runs that are in one of `states`, in the order of the arms."""
    return {arm.name: [curve(session, run) for run in arm.runs if run.state in states] for arm in job.arms}
