"""Which reruns that were stopped early count: those that train as their arm's runs do, are runs of
their own, and stop in 40 to 95 %.

Whatever disqualifies a replicate disqualifies them too (`independence`). They never enter
the arm's mean.

A rerun diverged, and blocks a pass, whether or not it counts: NaN at its end, or at 3 points and
1 % of them or more, or a mean loss over the last tenth of its common points with its arm (at least
10) more than 3 % above that of the arm's full runs there.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.arms import Arm, Arms, Controls, no_rerun, other_order
from parity.judging.curves.context import confounding_keys
from parity.judging.curves.curve import (
    Curve,
)
from parity.judging.curves.early_stop_noise import (
    MIN_STOP,
    EarlySpread,
    helmert_squares,
    prefix_window,
)
from parity.judging.curves.independence import is_mixture
from parity.judging.curves.learning_rates import differing_rates
from parity.judging.curves.nonfinite import nonfinite
from parity.judging.curves.window import COMPLETE_SHARE, LEARNING_RATE, Window
from parity.judging.policy import Policy
from parity.wording import percent

MIN_POINTS = 50  # in the prefix window; fewer only widen the noise, but too few say nothing
# per arm: the run-to-run noise of more is not known better, and the time to see copies grows with
# their square
MAX_SHORT_RERUNS = 16
# a rerun that ends further above its arm diverged
END_SHARE, END_POINTS, MAX_EXCESS = 0.1, 10, 0.03


@frozen(eq=False)
class EarlyStops:
    """The reruns of one arm: those used, why others were not, those that diverged, and what is
    measured on them.
    """

    used: tuple[Curve, ...] = ()
    left_out: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    spread: EarlySpread | None = None


def usable_early_stops(
    arms: Arms,
    controls: Controls,
    given: tuple[Sequence[Curve], Sequence[Curve]],
    policy: Policy,
    window: Window,
) -> tuple[EarlyStops, EarlyStops]:
    """The early-stopped reruns of baseline and candidate, `given` in that order."""
    known = (*arms.runs, *controls.used)
    baseline = _usable(arms.baseline, given[0], known, policy, window)
    return baseline, _usable(arms.candidate, given[1], (*known, *baseline.used), policy, window)


def _usable(
    arm: Arm, given: Sequence[Curve], known: Sequence[Curve], policy: Policy, window: Window
) -> EarlyStops:
    used: list[Curve] = []
    left_out, diverged = [], []
    for number, run in enumerate(given, 1):
        rerun = dataclasses.replace(run, seed=0) if policy.pairing == "unpaired" else run
        label = f"{run.label or f'rerun {number}'} of {arm.name}"
        bad = nonfinite([rerun], window.origin, window.last)
        reason = (
            _not_a_rerun(arm, rerun, window, policy)
            or (
                f"NaN or infinite loss at step {bad.first_step:,}"
                if bad.first_step is not None
                else ""
            )
            or _dependent(rerun, (*known, *used))
        )
        if bad.fails:
            diverged.append(f"{label} from step {bad.first_step:,} on")
        elif (excess := _excess(arm, rerun, window)) > MAX_EXCESS:
            diverged.append(
                f"{label}, which ends {percent(excess)} above the full runs of {arm.name}"
            )
        if reason:
            left_out.append(f"{label}: {reason}")
        else:
            used.append(rerun)
    spread, why = _spread(arm, used, window) if used else (None, "")
    if why:
        left_out += [f"{run.label or 'rerun'} of {arm.name}: {why}" for run in used]
        used = []
    return EarlyStops(
        used=tuple(used), left_out=tuple(left_out), diverged=tuple(diverged), spread=spread
    )


def _excess(arm: Arm, run: Curve, window: Window) -> float:
    """How far a rerun ends above its arm, as a share of the arm's loss there; 0 where they have no
    point in common.
    """
    together = align(arm.runs, [run], window.last)
    points = len(together.steps)
    if points == 0:
        return 0.0
    end = slice(max(points - max(END_POINTS, math.ceil(END_SHARE * points)), 0), None)
    level, mean_loss = (
        float(together.baseline[:, end].mean()),
        float(together.candidate[:, end].mean()),
    )
    if level == 0.0:
        return 0.0
    return (mean_loss - level) / abs(level)


def _not_a_rerun(arm: Arm, run: Curve, window: Window, policy: Policy) -> str:
    """Why a run is no rerun of the arm that was stopped in time, "" where it is."""
    if len(run.steps) == 0:
        return "it has no steps"
    stop = _stop(run, window)
    if stop >= COMPLETE_SHARE:
        return (
            f"it went on to {percent(stop)} of the planned steps: give it as a further run of "
            f"{arm.name}"
        )
    if round(stop * window.planned_steps) < round(MIN_STOP * window.planned_steps):
        return f"it stopped at {percent(stop)} of the planned steps, {percent(MIN_STOP)} needed"
    if run.seed not in {other.seed for other in arm.runs}:
        return f"no run of {arm.name} has its seed {run.seed}"
    if run.recipe != arm.recipe:
        return f"its recipe is {run.recipe}, that of {arm.name} is {arm.recipe}"
    if run.rounding is not None and {other.rounding for other in arm.runs} - {None, run.rounding}:
        return f"its gradients were rounded otherwise ({run.rounding})"
    if keys := confounding_keys([other.context for other in (*arm.runs, run)], policy.may_differ):
        return f"its record differs from that of {arm.name} in {', '.join(keys[:3])}"
    if (
        LEARNING_RATE not in policy.may_differ
        and (rates := differing_rates((*arm.runs, run))) is not None
    ):
        return (
            f"another learning rate at step {rates.step:,}, {rates.rate:.3g} against "
            f"{rates.reference:.3g}"
        )
    return other_order(
        align([next(other for other in arm.runs if other.seed == run.seed)], [run], window.last),
        arm.name,
        policy,
    )


def _stop(run: Curve, window: Window) -> float:
    """Share of the plan that a run has reached; a log of every n-th step may have stopped n - 1
    steps later.
    """
    return (
        int(run.steps[-1]) - window.origin + (run.completeness.stride or 1)
    ) / window.planned_steps


def _dependent(run: Curve, others: Sequence[Curve]) -> str:
    if why := no_rerun(run, others):
        return why
    relatives = [other for other in others if other.seed == run.seed]
    mixed = is_mixture(run, relatives)
    if mixed is None:
        return (
            f"too few points in common with {len(relatives)} other runs to see whether it is a "
            "mixture of them: log it more often"
        )
    if mixed:
        return "a mixture of other runs"
    return ""


def _spread(arm: Arm, early: Sequence[Curve], window: Window) -> tuple[EarlySpread | None, str]:
    """What the reruns of an arm show, or why they show nothing: one window for all, before the
    earliest stop.
    """
    first, last = prefix_window(window, min(int(run.steps[-1]) for run in early))
    together = align(arm.runs, early, last)
    part = slice(int(np.searchsorted(together.steps, first)), len(together.steps))
    points = part.stop - part.start
    if points < MIN_POINTS:
        return None, f"{points} common points from step {first:,} to its stop, {MIN_POINTS} needed"
    full, reruns = together.baseline[:, part].mean(axis=1), together.candidate[:, part].mean(axis=1)
    level = float(full.mean())
    if level == 0.0:
        return None, "the mean loss before its stop is 0"
    squares = helmert_squares(
        full / level, together.baseline_seeds, reruns / level, together.candidate_seeds
    )
    stop = min(_stop(run, window) for run in early)
    return EarlySpread(squares=squares, runs=len(early), stop=stop, first=first, last=last), ""
