"""The verdict on a switch: its forks, behind the steps that their parents recorded, are judged as
the runs of an arm that was trained from step 0 would be (`parity_lab.healing`).

The case is that of the job whose candidate is healed: its baseline's runs, its policy and plan, its
noise and its reruns. Only the candidate's runs are replaced, and the error is shared by all kept
steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from sqlalchemy.orm import Session

from parity.judging.case import Case
from parity.judging.codes import BY_CODE
from parity.judging.curves.curve import Curve, FloatArray, curve_from_arrays
from parity.judging.decision import INCONCLUSIVE
from parity.judging.document_types import VerdictDocument
from parity.judging.multiplicity import Multiplicity
from parity.judging.secondary.conditions import UNIX_SECONDS
from parity.judging.verdict.deciding_interval import recorded_interval
from parity_lab.healing import HealingSetup, Look
from server.curves import judged_curves
from server.database.tables import Arm, Job, Run
from server.jobs.judge_input import case_of, noise_table_of


def judged_look(
    session: Session, origin: Job, candidate: str, setup: HealingSetup, arm: Arm
) -> Look:
    """The verdict on the forks of an arm, of which each run has ended with its curve; `candidate`
    is the arm of `origin` whose runs they go on from. The policy is that of the plan, which the job
    of `arm` keeps: all looks have one margin, whatever becomes of that of `origin`.
    """
    step = switch_of(arm)
    forks = forks_of(arm)
    pairs = [(session.get_one(Run, str(fork.forked_from)), fork) for fork in forks]
    curves = judged_curves.curves(session, [run for pair in pairs for run in pair])
    healed = [
        joined(parent, fork, step) for parent, fork in zip(curves[::2], curves[1::2], strict=True)
    ]
    whole = case_of(session, origin, noise_table=noise_table_of(session, origin))
    planned = replace(arm.job.read_policy(), looks=whole.policy.looks)
    whole = replace(whole, policy=planned)
    (document,) = healed_case(whole, candidate, arm.name, healed, setup, step).documents()
    return look_of(step, document)


def healed_case(
    whole: Case,
    candidate: str,
    name: str,
    healed: Sequence[Curve],
    setup: HealingSetup,
    step: int,
) -> Case:
    """The case of a job with the healed runs, called `name`, in place of its candidates; each look
    has the error of one of its verdicts divided by the number of kept steps.

    Reruns of the candidate that were stopped before the switch are reruns of the healed arm, too.
    """
    baseline = whole.baseline_name or ""
    shared = whole.multiplicity or Multiplicity(
        looks=whole.policy.looks, candidates=len(whole.candidates)
    )
    names = {baseline: baseline, candidate: name}
    early = {
        names[arm]: runs
        for arm, runs in whole.short_reruns.items()
        if arm == baseline or (arm == candidate and all(run.steps[-1] < step for run in runs))
    }
    return replace(
        whole,
        candidates={name: healed},
        layer_snr_db={},
        evaluations={},
        short_reruns=early,
        families={names[arm]: family for arm, family in whole.families.items() if arm in names},
        multiplicity=replace(shared, candidates=shared.candidates * len(setup.steps)),
        compares={},
        against={},
    )


def joined(parent: Curve, fork: Curve, step: int) -> Curve:
    """The curve of the arm that changes its recipe at `step`: the parent's steps before it, then
    the fork's, with what is on record of the fork.

    The times at which its parts were trained are left out: no run lasted from one to the other.
    """
    before, after = parent.steps < step, fork.steps >= step

    def whole(ours: FloatArray | None, theirs: FloatArray | None) -> FloatArray:
        first = np.full(len(parent.steps), math.nan) if ours is None else ours
        second = np.full(len(fork.steps), math.nan) if theirs is None else theirs
        return np.concatenate([first[before], second[after]])

    names = (parent.columns.keys() | fork.columns.keys()) - {UNIX_SECONDS}
    return curve_from_arrays(
        np.concatenate([parent.steps[before], fork.steps[after]]),
        whole(parent.loss, fork.loss),
        columns={
            name: whole(parent.columns.get(name), fork.columns.get(name)) for name in sorted(names)
        },
        label=fork.label,
        seed=fork.seed if fork.seed_stated else None,
        replicate=fork.replicate,
        recipe=fork.recipe,
        rounding=fork.rounding,
        context=fork.context,
        notes=parent.notes,
    )


def look_of(step: int, document: VerdictDocument) -> Look:
    """What a verdict says of the switch at a step; no gap where none means anything."""
    gap, reason = document["gap"], document["reasons"][0]
    measured: Mapping[str, float | None] = {"gap": None, "low": None, "high": None, "level": None}
    if gap is not None and not compares_nothing(document["verdict"], reason["code"]):
        interval = recorded_interval(document, gap)
        values = {
            "gap": gap["mean"],
            "low": interval["lo"],
            "high": interval["hi"],
            "level": interval["level"],
        }
        if all(_is_finite(value) for value in values.values()):
            measured = values
    return Look(
        step=step,
        verdict=document["verdict"],
        gap=measured["gap"],
        low=measured["low"],
        high=measured["high"],
        level=measured["level"],
        code=reason["code"],
        sentence=reason["sentence"],
    )


def compares_nothing(verdict: str, code: str | None) -> bool:
    """Whether a verdict with this deciding code says that a gap has another cause than the recipe,
    or that the runs cannot be compared.
    """
    entry = BY_CODE.get(code or "")
    if verdict != INCONCLUSIVE or entry is None:
        return False
    return entry.gap_means_nothing or entry.may_explain_a_fail


def switch_of(arm: Arm) -> int:
    """The step at which an arm of a healing changes its recipe."""
    if arm.then is None:
        raise LookupError(f"arm {arm.name} of job {arm.job_id} has no later recipe")
    return arm.then.from_step


def forks_of(arm: Arm) -> list[Run]:
    """The forks of an arm of a healing, in their order."""
    return [run for run in arm.job.runs if run.arm_id == arm.id and run.kind == "heal"]


def _is_finite(value: object) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)
