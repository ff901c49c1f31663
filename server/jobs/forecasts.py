"""Live forecasts of a job in training: each candidate's final gap is predicted, and one that will
fail or is futile is named or stopped.

The state of each pair of runs and the forecasts of each candidate are stored with the job, so a
call continues where the last one stopped, reads only new steps, and costs the same at any step. A
pair is a candidate's run and the baseline's run with its seed and replicate; if the baseline has
fewer runs, they are used in turn. States change with an event: `will_fail` and `futile` (also for
webhooks), else `forecast`. With `early_stop: stop` in the policy, the runs of a candidate that
will fail or is futile end, unless its recipe still changes by plan (`bf16_from_step`). None passes
early, and a stopped one does not fail either, because its window was never trained. Steps that an
external trainer sends late are left out.

Steps are read and forecasts made without any lock, since both take seconds for a long job. Only
what was found is written under the locks of the runs and of the job, if it still follows from what
is on record; otherwise the job is looked at again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judged_loss import JUDGED_LOSS
from parity.judging.curves.curve import rounding_of
from parity.judging.curves.window import COMPLETE_SHARE
from parity.judging.live.forecast_words import sentence
from parity.judging.live.pair_sums import PairProgress, begin, observe, progress_from_mapping
from parity.judging.live.prediction import predict
from parity.judging.live.rules import (
    ENDED_BY,
    Forecast,
    State,
    due_forecasts,
    forecast_at,
)
from parity.judging.live.run_noise import LiveArm, planned_noise_sources
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.borrowed_priors import NO_SOURCES, NoiseSources
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.noise.noise_table import read_noise_table
from parity.judging.policy import Policy
from parity.report.forecast import course_of
from server.database.events import announce, emit
from server.database.metrics import replaced_steps, store
from server.database.sessions import Database
from server.database.states import EARLY_STOP, JOB_ENDED, RUN_ENDED
from server.database.tables import Arm, Job, JobStatus, Run
from server.jobs import lifecycle
from server.jobs.applied_statements import family
from server.jobs.multiplicity import multiplicity_of
from server.jobs.noise_tables import family_in
from server.settings import WebhookEvent
from server.stored import read_stored, reading

_STEPS_A_CALL = 200_000  # keeps a look short: the elected worker has other duties, too
_LOOKS = 3  # at a job that changes meanwhile
_KINDS: Mapping[State, tuple[str, WebhookEvent]] = {
    "will_fail": ("will_fail", "job.will_fail"),
    "futile": ("futile", "job.futile"),
}

_Change = tuple[str, list[State], Forecast]


@frozen
class _Pair:
    """A candidate's run with its partner in the baseline, as far as it was fed; `looked` blocks
    have had their forecasts.

    `is_new` says that it is fed from its first step: nothing was stored, or a newer attempt has
    begun.
    """

    baseline: Run
    candidate: Run
    state: PairProgress
    looked: int
    all_fed: bool
    is_new: bool

    @property
    def ended(self) -> bool:
        """Whether no further step will come."""
        return self.all_fed and all(
            run.state in RUN_ENDED for run in (self.baseline, self.candidate)
        )


@frozen
class _Look:
    """What a look found, and what it rests on: the stored forecasts `before`, the job's status, and
    the newest attempt of each run.

    `changes` are changes of a candidate's state: its name, its earlier states, and the forecast.
    """

    job_id: str
    status: JobStatus
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    attempts: Mapping[str, int]
    changes: Sequence[_Change]


def watch(database: Database, job_id: str, *, at_the_end: bool = False) -> list[str]:
    """Look at the new steps of a running job; returns the names of the candidates that became
    futile or will fail.

    `at_the_end`: at all steps that nobody has looked at, without events, of a job whose last runs
    ended together.
    """
    for _ in range(_LOOKS):
        with database.read() as session:
            look = _look(session, job_id, to_the_end=at_the_end)
        if look is None:
            return []
        with database.write() as session:
            # Runs before their job, like every writer; their states cannot change while they are
            # locked.
            session.scalars(
                select(Run).where(Run.job_id == job_id).order_by(Run.id).with_for_update()
            ).all()
            if (job := _unchanged(session, look)) is not None:
                job.early_stop = look.after
                if at_the_end:
                    return []
                return _tell(session, job, look)
    # what changed it has begun a newer attempt, or has looked itself: the next look sees that
    return []


def _look(session: Session, job_id: str, *, to_the_end: bool) -> _Look | None:
    """What there is to find now; None for a job that is not judged, or has ended. Reads only."""
    job = session.get_one(Job, job_id)
    if job.status in JOB_ENDED or (job.status != "running" and not to_the_end) or not job.is_judged:
        return None
    policy, before = job.read_policy(), job.early_stop
    attempts = {run.id: run.attempt_number for arm in job.arms for run in arm.runs}
    changes, left = _advance(session, job, policy)
    while to_the_end and left:
        left = _advance(session, job, policy)[1]
    return _Look(
        job_id=job_id,
        status=job.status,
        before=before,
        after=job.early_stop,
        attempts=attempts,
        changes=changes,
    )


def _unchanged(session: Session, look: _Look) -> Job | None:
    """The job, locked, if what was found still follows from what is on record: nobody else has
    looked, and no attempt was replaced.
    """
    job = session.get_one(Job, look.job_id, with_for_update=True, populate_existing=True)
    fed = (look.after or {}).get("pairs", {})
    read = {run_id for candidate, pair in fed.items() for run_id in (candidate, pair["with"])}
    attempts = {
        row.id: row.attempt_number
        for row in session.execute(
            select(Run.id, Run.attempt_number).where(Run.job_id == look.job_id)
        )
    }
    replaced = any(attempts[run_id] != look.attempts[run_id] for run_id in read)
    if job.status == look.status and job.early_stop == look.before and not replaced:
        return job
    return None


def _tell(session: Session, job: Job, look: _Look) -> list[str]:
    """Emit what has changed, and stop what the policy stops; returns the names of the candidates
    that became futile or will fail.
    """
    arms, policy = {arm.name: arm for arm in job.arms}, job.read_policy()
    ended = []
    for name, before, forecast in look.changes:
        message = sentence(forecast)
        kind, webhook = _KINDS.get(forecast.state, ("forecast", None))
        emit(session, job.id, kind, {"arm": name, "state": forecast.state, "message": message})
        if webhook and forecast.state not in before:
            announce(session, job.id, webhook)
        if forecast.state in ENDED_BY and not set(before) & set(ENDED_BY):
            ended.append(name)
            if _may_stop(arms[name], forecast, policy):
                _stop(session, job, arms[name], message)
    return ended


def latest(job: Job, arm: str) -> Forecast | None:
    """The last forecast of a candidate; None before the first."""
    columns = _arms(job).get(arm)
    if columns and columns["step"]:
        return _forecast(job, columns, -1)
    return None


def last_change(job: Job, arm: str) -> tuple[Forecast, Forecast] | None:
    """The last forecast that said something else of a candidate than the newest does, and the one
    after it; None where all have said the same.
    """
    columns = _arms(job).get(arm, {"step": []})
    said = [
        course_of(*told)
        for told in zip(
            *(columns.get(name, ()) for name in ("state", "passes", "fails")), strict=True
        )
    ]
    for back in range(-2, -len(said) - 1, -1):
        if said[back] != said[-1]:
            return _forecast(job, columns, back), _forecast(job, columns, back + 1)
    return None


def how_many(job: Job) -> int:
    """How many forecasts a job has had, without reading them."""
    return sum(len(columns["step"]) for columns in _arms(job).values())


def forecasts(job: Job, arm: str) -> list[Forecast]:
    """All forecasts of a candidate, oldest first."""
    columns = _arms(job).get(arm, {"step": []})
    return [_forecast(job, columns, back) for back in range(-len(columns["step"]), 0)]


def _forecast(job: Job, columns: Mapping[str, list[Any]], back: int) -> Forecast:
    """One forecast of columns; `back` counts from the newest, which is -1. A column that a later
    version began has no value of the forecasts before.
    """
    values = {name: column[back] for name, column in columns.items() if -back <= len(column)}
    return read_stored(Forecast, values, f"job {job.id}: forecasts")


def pairs_of(job: Job, arm: Arm) -> list[PairProgress]:
    """What is stored of the pairs of a candidate."""
    stored = (job.early_stop or {}).get("pairs", {})
    with reading(f"job {job.id}: sums of its forecasts"):
        return [
            progress_from_mapping(stored[run.id]["state"]) for run in arm.runs if run.id in stored
        ]


def _arms(job: Job) -> Mapping[str, dict[str, list[Any]]]:
    arms: Mapping[str, dict[str, list[Any]]] = (job.early_stop or {}).get("arms", {})
    return arms


def _advance(session: Session, job: Job, policy: Policy) -> tuple[list[_Change], bool]:
    """Feed new steps and put the forecasts into the job; returns each change of state, and whether
    steps are left.

    `announced` has the share of the plan up to which changes have events, and the states, so that
    no change has two.
    """
    earlier = job.early_stop or {}
    stored, announced = dict(earlier.get("pairs", {})), dict(earlier.get("announced", {}))
    arms = {
        name: {key: list(values) for key, values in columns.items()}
        for name, columns in _arms(job).items()
    }
    changes: list[_Change] = []
    left = False
    for arm in job.arms[1:]:
        if any(run.code == EARLY_STOP for run in arm.runs):
            continue
        pairs = [
            _fed(session, stored, baseline, run)
            for baseline, run in _partners(arm.judged_against, arm)
        ]
        # the forecasts so far may rest on steps that count no more, or on fewer pairs
        if any(pair.is_new for pair in pairs):
            arms[arm.name] = {"step": []}
            pairs = [dataclasses.replace(pair, looked=0) for pair in pairs]
        left = left or any(not pair.all_fed for pair in pairs)
        columns = arms.setdefault(arm.name, {"step": []})
        until, states = announced.get(arm.name, (0.0, []))
        for forecast in _new_forecasts(job, arm, pairs, policy):
            before = len(columns["step"])
            for key, value in forecast.document().items():
                column = columns.get(key, [])
                stored_value = float(f"{value:.7g}") if isinstance(value, float) else value
                # what an earlier version did not store has no value there
                columns[key] = [*[None] * (before - len(column)), *column, stored_value]
            if forecast.share > until and states[-1:] != [forecast.state]:
                changes.append((arm.name, states, forecast))
                until, states = forecast.share, [*states, forecast.state]
            until = max(until, forecast.share)
            if (
                _may_stop(arm, forecast, policy)
                and states[-1:] == [forecast.state]
                and forecast.state in ENDED_BY
            ):
                break
        announced[arm.name] = (until, states)
        for pair in pairs:
            stored[pair.candidate.id] = {
                **stored[pair.candidate.id],
                "looked": pair.state.blocks_done(ended=pair.ended),
            }
    job.early_stop = {"pairs": stored, "arms": arms, "announced": announced}
    return changes, left


def _may_stop(arm: Arm, forecast: Forecast, policy: Policy) -> bool:
    """Whether the policy stops candidates, this one's arithmetic will not change any more (a switch
    to bf16 may end its gap), and no other one is judged against it.
    """
    is_needed = any(other.judged_against is arm for other in arm.job.arms[1:])
    return policy.early_stop == "stop" and forecast.step >= arm.last_change and not is_needed


def _partners(baseline: Arm, candidate: Arm) -> list[tuple[Run, Run]]:
    """The pairs of runs that may have steps in common; none where nobody has stated when they
    end.
    """
    if candidate.job.planned_steps is None:
        return []
    begun = {"running", "finished"}
    partners = []
    for run in candidate.runs:
        same = [other for other in baseline.runs if other.seed == run.seed]
        if not same or run.state not in begun:
            continue
        other = next(
            (other for other in same if other.replicate == run.replicate),
            same[run.replicate % len(same)],
        )
        if other.state in begun:
            partners.append((other, run))
    return partners


def _fed(session: Session, stored: dict[str, Any], baseline: Run, candidate: Run) -> _Pair:
    """The pair after its new common steps, which are stored."""
    attempts, before = (
        [_recorded(session, baseline), _recorded(session, candidate)],
        stored.get(candidate.id),
    )
    is_new = before is None or before.get("attempts") != attempts or before["with"] != baseline.id
    if before is None or is_new:
        # A newer attempt has replaced steps of earlier forecasts, possibly with other numbers.
        before = {"next_step": 0, "looked": 0, "state": begin(candidate.length).document()}
    base, other = (
        store.read_range(session, run.id, "train", before["next_step"], names=[JUDGED_LOSS])
        for run in (baseline, candidate)
    )
    steps, here, there = np.intersect1d(base[0], other[0], assume_unique=True, return_indices=True)
    part = slice(0, _STEPS_A_CALL)
    with reading(f"job {candidate.job_id}: sums of its forecasts"):
        progress = progress_from_mapping(before["state"])
    state = observe(
        progress,
        steps[part],
        base[1][JUDGED_LOSS][here][part],
        other[1][JUDGED_LOSS][there][part],
    )
    next_step = int(steps[part][-1]) + 1 if len(steps) else before["next_step"]
    stored[candidate.id] = {
        "attempts": attempts,
        "with": baseline.id,
        "next_step": next_step,
        "looked": before["looked"],
        "state": state.document(),
    }
    return _Pair(
        baseline=baseline,
        candidate=candidate,
        state=state,
        looked=before["looked"],
        all_fed=len(steps) <= _STEPS_A_CALL,
        is_new=is_new,
    )


def _recorded(session: Session, run: Run) -> list[int]:
    """The attempts that have recorded steps of a run's curve."""
    return sorted(
        replaced_steps.superseded_from(session, replaced_steps.curve_of(session, run.id), "train")
    )


def _new_forecasts(job: Job, arm: Arm, pairs: Sequence[_Pair], policy: Policy) -> list[Forecast]:
    """The forecasts that have become due, in order."""
    baseline = arm.judged_against
    shared = multiplicity_of(job) or Multiplicity(looks=policy.looks, candidates=len(job.arms) - 1)
    planned = sum(run.state not in ("failed", "cancelled") for run in arm.runs)
    seeds = len({run.seed for run in baseline.runs} & {run.seed for run in arm.runs})
    sides = _live_arm(baseline, pairs, is_baseline=True), _live_arm(arm, pairs, is_baseline=False)
    noise_sources = _noise_sources(job, arm, sides, policy)
    made = []
    done = [pair.state.blocks_done(ended=pair.ended) for pair in pairs]
    nothing_follows = len(pairs) == planned and all(pair.ended for pair in pairs)
    looked = [min(pair.looked, most) for pair, most in zip(pairs, done, strict=True)]
    for blocks in due_forecasts(looked, done, planned, ended=nothing_follows):
        seen = [
            (pair.state.until(block), pair.ended and block == most)
            for pair, block, most in zip(pairs, blocks, done, strict=True)
            if block
        ]
        prediction = predict(
            seen,
            planned,
            sides,
            policy,
            noise_sources,
            max(1, seeds),
            shared.confidence(policy.confidence),
        )
        if prediction is not None:
            made.append(forecast_at(prediction, shared.left))
    return made


def _live_arm(arm: Arm, pairs: Sequence[_Pair], *, is_baseline: bool) -> LiveArm:
    """What is known of an arm's run-to-run noise: rounding and recipe, and the late means of runs
    that reached the end.
    """
    means: dict[str, tuple[float, int]] = {}
    for pair in pairs:
        if pair.ended and pair.state.share >= COMPLETE_SHARE:
            gaps, baselines = pair.state.means(slice(-len(pair.state.counts) // 5, None))
            run = pair.baseline if is_baseline else pair.candidate
            means.setdefault(
                run.id, (float((baselines if is_baseline else baselines + gaps).mean()), run.seed)
            )
    return LiveArm(
        recipe=arm.stated_recipe,
        rounding=rounding_of(run.rounding for run in arm.runs),
        runs=max(1, sum(run.state not in ("failed", "cancelled") for run in arm.runs)),
        means=tuple(mean for mean, _ in means.values()),
        seeds=tuple(seed for _, seed in means.values()),
    )


def _noise_sources(
    job: Job, candidate: Arm, sides: tuple[LiveArm, LiveArm], policy: Policy
) -> NoiseSources:
    """The family that the job named when it was submitted; one on record is only known once runs
    have ended, and the judge's alone.
    """
    if job.noise_table is None:
        return NO_SOURCES
    noise_table = read_noise_table(job.noise_table)
    names = (candidate.judged_against.name, candidate.name)
    noise_families = NoiseFamilies(
        noise_table, dict.fromkeys(names, family(job) or family_in(noise_table))
    )
    return planned_noise_sources(names, sides, policy, noise_families)


def _stop(session: Session, job: Job, arm: Arm, message: str) -> None:
    """End the open runs of an arm, and those of the baseline when no other candidate needs them:
    one that has finished does, too.
    """
    baseline, *candidates = job.arms
    runs = [
        run
        for other in candidates
        if other is not arm
        for run in (*other.runs, *other.short_reruns)
    ]
    needed = any(
        run.state not in ("failed", "cancelled") and run.code != EARLY_STOP for run in runs
    )
    for stopped in [arm] if needed else [arm, baseline]:
        for run in (*stopped.runs, *stopped.short_reruns):
            # One that trains has a curve so far.
            end = lifecycle.finish if run.state == "running" else lifecycle.cancel
            end(session, run, code=EARLY_STOP, message=f"arm {arm.name} was stopped: {message}")
