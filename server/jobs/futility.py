"""Is a pair that still trains beyond hope? The judge's early-stop rule, fed from the record as its steps come in.

What the rule remembers of each pair stays with the job, so whoever looks next goes on where the last one stopped, and a
look costs what is new. A hopeless pair is told as an event; where the policy says `early_stop: stop`, the arm's runs end.
No candidate passes early, and one that was stopped gets no fail either: its window was never trained.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity import Criteria, criteria_from_mapping
from parity.judging.looks.futility import Look, early_stop, early_stop_from_mapping, look, observe
from server.database import events, store
from server.database.states import RUN_ENDED, end_attempt, move_run
from server.database.tables import Arm, Job, Run

CODE = "EARLY_STOP"
_STEPS_A_LOOK = 20_000  # so that a look, which holds the job's row, stays short


def watch(session: Session, job_id: str) -> list[str]:
    """Feed the rule what is new of a running job; the names of the arms that it has just found hopeless."""
    # Runs before their job, like every writer; their states can't change while we hold them.
    runs = session.scalars(select(Run).where(Run.job_id == job_id).order_by(Run.id).with_for_update()).all()
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    if job.status != "running":
        return []
    criteria = criteria_from_mapping(job.criteria)
    baseline = {(run.seed, run.replicate): run for run in runs if run.arm.role == "baseline"}
    remembered = dict(job.early_stop or {})
    found = []
    for run in runs:
        pair = baseline.get((run.seed, run.replicate))
        if run.arm.role == "baseline" or pair is None or run.state not in ("running", "finished"):
            continue
        epochs, known = [_recorded(session, pair), _recorded(session, run)], remembered.get(run.id)
        if known and known["hopeless"]:
            continue
        if known is None or known.get("epochs") != epochs:
            # A newer attempt has replaced steps that were looked at, with other numbers where it trains something else.
            known = {"next_step": 0, "state": early_stop(run.planned_steps).document()}
        remembered[run.id] = {"epochs": epochs, **_observed(session, known, pair, run, criteria)}
        if remembered[run.id]["hopeless"]:
            found.append((run, str(remembered[run.id]["hopeless"])))
    job.early_stop = remembered
    for run, sentence in found:
        events.emit(session, job_id, "hopeless", {"run": run.id, "arm": run.arm.name, "message": sentence})
        if criteria.early_stop == "stop":
            _stop(session, job, run.arm, sentence)
    return list(dict.fromkeys(run.arm.name for run, _ in found))


def _recorded(session: Session, run: Run) -> list[int]:
    """The attempts that have recorded steps of a run's curve."""
    return sorted(store.superseded_from(session, store.curve_of(session, run.id), "train"))


def _observed(session: Session, known: Mapping[str, Any], baseline: Run, candidate: Run, criteria: Criteria) -> dict[str, Any]:
    """What is remembered of a pair after the steps that both runs have recorded since; `hopeless` is the look's sentence."""
    begin = known["next_step"]
    base, other = (store.join([*store.tables(session, run.id, "train", begin)], ["lm_loss"]) for run in (baseline, candidate))
    at, here, there = np.intersect1d(base["step"], other["step"], assume_unique=True, return_indices=True)
    losses = zip(at.tolist(), base["lm_loss"][here].tolist(), other["lm_loss"][there].tolist(), strict=True)
    state, next_step = early_stop_from_mapping(known["state"]), begin
    seen: Look | None = None
    for step, loss, other_loss in islice(losses, _STEPS_A_LOOK):
        state, next_step = observe(state, loss, other_loss), int(step) + 1
        seen = look(state, criteria, baseline_recipe=baseline.arm.stated_recipe, candidate_recipe=candidate.arm.stated_recipe)
        if seen is not None and seen.hopeless:
            break
    hopeless = seen.sentence if seen is not None and seen.hopeless else None
    return {"next_step": next_step, "state": state.document(), "hopeless": hopeless}


def _stop(session: Session, job: Job, arm: Arm, sentence: str) -> None:
    """End the open runs of an arm, and those of the baseline when no other candidate needs them."""
    others = [other for other in job.arms if other.role == "candidate" and other.id != arm.id]
    needed = any(run.state not in RUN_ENDED for other in others for run in other.runs)
    for stopped in [arm] if needed else [arm, *(other for other in job.arms if other.role == "baseline")]:
        for run in stopped.runs:
            _end(session, job.id, run, f"arm {arm.name} was stopped: {sentence}")


def _end(session: Session, job_id: str, run: Run, message: str) -> None:
    values: dict[str, Any] = {"code": CODE, "message": message, "finished_at": time.time(), "lease_expires_at": None}
    if move_run(session, run.id, ("running",), "finished", holder=run.epoch, **values):
        end_attempt(session, run.id, run.epoch, "finished", CODE, message)
    elif not move_run(session, run.id, ("queued", "awaiting_data"), "cancelled", **values):
        return
    session.refresh(run)
    events.emit(session, job_id, "run", {"run": run.id, "arm": run.arm.name, "state": run.state, "code": CODE, "message": message})
