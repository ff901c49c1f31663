"""Early stop for futility: the judge's rule, fed with the steps of each pair of runs while they train.

The rule's state for each pair is stored with the job, so each look continues where the last one stopped and reads only new steps.
A futile pair emits an event (`hopeless`); with `early_stop: stop` in the policy, the arm's runs end.
No candidate passes early, and a stopped one does not fail either, because its window was never trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity import Criteria, criteria_from_mapping
from parity.judging.arms import rounding_of
from parity.judging.looks.futility import Look, early_stop, early_stop_from_mapping, look, observe
from server.database import events, store
from server.database.states import RUN_ENDED
from server.database.tables import Arm, Job, Run
from server.jobs import lifecycle

CODE = "EARLY_STOP"
_STEPS_A_LOOK = 20_000  # keeps a look short, because it locks the job's row


def watch(session: Session, job_id: str) -> list[str]:
    """Feed the rule the new steps of a running job; returns the names of the arms that became futile."""
    # Runs before their job, like every writer; their states cannot change while they are locked.
    locked = session.scalars(select(Run).where(Run.job_id == job_id).order_by(Run.id).with_for_update()).all()
    runs = [run for run in locked if run.kind == "full"]
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    if job.status != "running":
        return []
    criteria = criteria_from_mapping(job.criteria)
    baseline = {(run.seed, run.replicate): run for run in runs if run.arm.role == "baseline"}
    remembered = dict(job.early_stop or {})
    futile: list[tuple[Run, str]] = []
    for run in runs:
        pair = baseline.get((run.seed, run.replicate))
        if run.arm.role == "baseline" or pair is None or run.state not in ("running", "finished"):
            continue
        epochs, before = [_recorded(session, pair), _recorded(session, run)], remembered.get(run.id)
        if before and before["hopeless"]:
            continue
        if before is None or before.get("epochs") != epochs:
            # A newer attempt has replaced steps of earlier looks, possibly with other numbers.
            before = {"next_step": 0, "state": early_stop(run.planned_steps).document()}
        remembered[run.id] = {"epochs": epochs, **_observed(session, before, pair, run, criteria)}
        if remembered[run.id]["hopeless"]:
            futile.append((run, str(remembered[run.id]["hopeless"])))
    job.early_stop = remembered
    for run, sentence in futile:
        events.emit(session, job_id, "hopeless", {"run": run.id, "arm": run.arm.name, "message": sentence})
        if criteria.early_stop == "stop":
            _stop(session, job, run.arm, sentence)
    return list(dict.fromkeys(run.arm.name for run, _ in futile))


def _recorded(session: Session, run: Run) -> list[int]:
    """The attempts that have recorded steps of a run's curve."""
    return sorted(store.superseded_from(session, store.curve_of(session, run.id), "train"))


def _observed(session: Session, before: Mapping[str, Any], baseline: Run, candidate: Run, criteria: Criteria) -> dict[str, Any]:
    """The rule's state of a pair after the new common steps; `hopeless` is the sentence of a futile look."""
    begin = before["next_step"]
    base, other = (store.read_range(session, run.id, "train", begin, names=["lm_loss"]) for run in (baseline, candidate))
    at, here, there = np.intersect1d(base[0], other[0], assume_unique=True, return_indices=True)
    losses = zip(at.tolist(), base[1]["lm_loss"][here].tolist(), other[1]["lm_loss"][there].tolist(), strict=True)
    state, next_step = early_stop_from_mapping(before["state"]), begin
    seen: Look | None = None
    for step, loss, other_loss in islice(losses, _STEPS_A_LOOK):
        state, next_step = observe(state, loss, other_loss), step + 1
        seen = look(
            state,
            criteria,
            baseline_recipe=baseline.arm.stated_recipe,
            candidate_recipe=candidate.arm.stated_recipe,
            baseline_rounding=rounding_of(run.rounding for run in baseline.arm.runs),
            candidate_rounding=rounding_of(run.rounding for run in candidate.arm.runs),
        )
        if seen is not None and seen.hopeless:
            break
    hopeless = seen.sentence if seen is not None and seen.hopeless else None
    return {"next_step": next_step, "state": state.document(), "hopeless": hopeless}


def _stop(session: Session, job: Job, arm: Arm, sentence: str) -> None:
    """End the open runs of an arm, and those of the baseline when no other candidate needs them."""
    others = [other for other in job.arms if other.role == "candidate" and other.id != arm.id]
    needed = any(run.state not in RUN_ENDED for other in others for run in (*other.runs, *other.noise_runs))
    for stopped in [arm] if needed else [arm, *(other for other in job.arms if other.role == "baseline")]:
        for run in (*stopped.runs, *stopped.noise_runs):
            _stop_run(session, run, f"arm {arm.name} was stopped: {sentence}")


def _stop_run(session: Session, run: Run, message: str) -> None:
    """Finish a training run with its curve so far; cancel a run that has not begun."""
    if run.state == "running":
        lifecycle.finish(session, run, code=CODE, message=message)
    else:
        lifecycle.cancel(session, run, code=CODE, message=message)
