"""Everything that is measured on one baseline and one candidate before anything is decided."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parity.judging.agreement import (
    EqualStart,
    Mismatch,
    Resolution,
    differing_context,
    equal_start,
    find_mismatch,
    noise_ratio,
    resolution,
    same_data_recorded,
    without_assumed_floor,
)
from parity.judging.arms import Arm, Arms, Controls, EarlyStops, make_arms, usable_controls, usable_early_stops
from parity.judging.criteria import ONE_LOOK, Amount, Criteria, Multiplicity
from parity.judging.curve import FORKED_FROM, LOADED, START, Curve, Rounding, usable
from parity.judging.independence import pairs_to_test, resemblance, shared_start
from parity.judging.lending import Lender, Lenders, refused
from parity.judging.pairing import SAME_ORDER, Aligned, align, common_losses, is_proven_somewhere, worst_correlation
from parity.judging.run_floor import Lending
from parity.judging.schedule import ScheduleState, log_slope, schedule_state
from parity.judging.window import Window, decay_phase, planned_share
from parity.judging.window_statistics import PairInWindow, RunGap, WindowStatistics, measure_window, worst_run
from parity.structure import frozen

SLOPE_SAMPLE = 8_192  # points, evenly spread, show how steeply a loss falls
RunPairs = Sequence[tuple[Curve, Curve]]  # of baseline and candidate


@frozen(eq=False)
class Measurements:
    """One comparison, measured; `statistics` is None where the window has no common finite point or no seed is common.

    `lending` holds the family of baseline and candidate, None for an arm that names none; `early` the early-stopped reruns of both.
    """

    criteria: Criteria
    multiplicity: Multiplicity
    arms: Arms
    lending: Lending
    controls: Controls
    early: tuple[EarlyStops, EarlyStops]
    window: Window
    planned_share: float
    schedule: ScheduleState
    common_logged_steps: int
    aligned: Aligned
    r_pair: float | None
    batches_proven: bool
    same_data_recorded: bool
    differing_context: tuple[str, ...]
    resolution: Resolution
    noise_ratio: float | None
    mismatch: Mismatch
    equal_start: EqualStart | None
    resemblance: str | None
    worst_run: RunGap | None
    shared_start: int | None
    without_assumed_floor: str | None
    statistics: WindowStatistics | None

    @property
    def confidence(self) -> float:
        """The confidence of the interval that is shown and that decides: the policy's, shared by its looks and candidates."""
        return self.multiplicity.confidence(self.criteria.confidence)

    @property
    def levels(self) -> tuple[float, float]:
        """That confidence, and the one of its error within pairs, which looks do not share."""
        return self.multiplicity.levels(self.criteria.confidence)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The ends of that interval, nats; None without a window."""
        return self.statistics.interval.bounds(*self.levels) if self.statistics else None


class FurtherRuns(NamedTuple):
    """Runs next to those of the arms: reruns of the baseline, early-stopped reruns of baseline and candidate, and finished runs of the
    baseline's recipe on fewer tokens."""

    controls: Sequence[Curve] = ()
    noise_runs: tuple[Sequence[Curve], Sequence[Curve]] = ((), ())
    shorter: Sequence[Curve] = ()


NO_FURTHER_RUNS = FurtherRuns()


def measure(
    names: tuple[str, str],
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    criteria: Criteria,
    window: Window,
    lenders: Lenders,
    further: FurtherRuns = NO_FURTHER_RUNS,
    multiplicity: Multiplicity = ONE_LOOK,
) -> Measurements:
    """Measure two arms of at least one run each in a registered window; `names` are those of baseline and candidate."""
    window = decay_phase(window, baseline[0], criteria.min_points)
    arms = make_arms(names, baseline, candidate, criteria, window)
    aligned = align(*arms.both_runs, window.last)
    usable = usable_controls(arms, further.controls, criteria, window)
    early = usable_early_stops(arms, usable, further.noise_runs, criteria, window)
    resolved = resolution(*arms.both_runs, window)
    r_pair = worst_correlation(aligned, *arms.both_runs)
    proven = r_pair is None or r_pair >= SAME_ORDER or is_proven_somewhere(aligned)
    schedule = _schedule(arms, window, criteria)
    base_lender, cand_lender = (
        _lender(arm, declared, lenders, schedule) for arm, declared in zip(arms.both, criteria.run_floors, strict=True)
    )
    lending = base_lender, cand_lender
    pairs = pairs_to_test(*arms.both_runs)
    statistics = None
    part = window.part(aligned.steps)
    if arms.share_seeds and part.start < part.stop:
        pair = PairInWindow(
            aligned=aligned,
            means=aligned.arm_means(),
            part=part,
            arms=arms,
            controls=usable,
            criteria=criteria,
            quantum=resolved.quantum,
            shorter=further.shorter,
            lending=lending,
            early=(early[0].spread, early[1].spread),
            multiplicity=multiplicity,
            slope=schedule.assumed_slope,
        )
        statistics = measure_window(pair, window)
    return Measurements(
        criteria=criteria,
        multiplicity=multiplicity,
        arms=arms,
        lending=lending,
        controls=usable,
        early=early,
        window=window,
        planned_share=planned_share(arms.runs, window),
        schedule=schedule,
        common_logged_steps=len(aligned.steps) or len(common_losses(arms.runs)[0]),
        aligned=aligned,
        r_pair=r_pair,
        batches_proven=proven,
        same_data_recorded=same_data_recorded(arms.runs),
        differing_context=differing_context((*baseline, *candidate, *further.controls), criteria.may_differ),
        resolution=resolved,
        noise_ratio=noise_ratio(aligned, resolved.quantum, same_batches=proven and criteria.pairing == "paired"),
        mismatch=find_mismatch(*arms.both_runs, aligned, r_pair, resolved.quantum),
        equal_start=equal_start(*arms.both_runs, resolved.quantum),
        resemblance=next((why for run, other in pairs if (why := resemblance(run, other)) is not None), None),
        worst_run=_worst_run(arms, window, criteria, schedule, statistics),
        shared_start=_shared_start(arms, pairs),
        without_assumed_floor=without_assumed_floor(arms.runs),
        statistics=statistics,
    )


def _worst_run(
    arms: Arms, window: Window, criteria: Criteria, schedule: ScheduleState, statistics: WindowStatistics | None
) -> RunGap | None:
    if statistics is None or statistics.margin is None or arms.pairing.by == "unknown":
        return None
    return worst_run(arms, window, criteria, schedule.assumed_slope, statistics.baseline.level, statistics.margin.nats)


def lender_for(arm: str, rounding: Rounding, declared: Amount | None, lenders: Lenders) -> Lender | None:
    """What an arm may borrow by its name and rounding; a run floor that the policy declares counts more."""
    lender = lenders.of(arm, rounding)
    if lender is None or lender.floor is None or declared is None:
        return lender
    return refused(lender.family, f"the policy declares the run floor of {arm} ({declared})")


def began_loaded(arms: Arms, criteria: Criteria) -> bool:
    """Whether the policy states that all runs began with trained weights, or the record of every run does."""
    return criteria.start == LOADED or all(run.context.get(START) == LOADED for run in arms.runs)


def _schedule(arms: Arms, window: Window, criteria: Criteria) -> ScheduleState:
    """The state of the schedule, with the steepest slope of a run of the baseline: a worse candidate must not change its own noise."""
    loaded = began_loaded(arms, criteria)
    slopes = []
    for run in arms.baseline.runs:
        end = int(np.searchsorted(run.steps, window.last, side="right"))
        some = slice(0, end, 1 + end // SLOPE_SAMPLE)
        steps, loss = run.steps[some], run.loss[some]
        slopes.append(log_slope(steps[usable(loss)], loss[usable(loss)], loaded=loaded))
    return schedule_state(arms.both_runs, window, criteria, max(slopes))


def _lender(arm: Arm, declared: Amount | None, lenders: Lenders, schedule: ScheduleState) -> Lender | None:
    """What the arm may borrow; what holds for finished schedules needs one in both arms."""
    lender = lender_for(arm.name, arm.rounding, declared, lenders)
    if lender is None or not lender.needs_finished or schedule.finished:
        return lender
    return refused(lender.family, f"it holds for runs that finished their schedule; {schedule.why}")


def _shared_start(arms: Arms, pairs: RunPairs) -> int | None:
    """The last step up to which a candidate's run is a baseline's run of its seed; None where they part at once."""
    if {run.context.get(FORKED_FROM) for run in arms.candidate.runs} != {run.context.get(FORKED_FROM) for run in arms.baseline.runs}:
        return max(int(run.steps[-1]) for run in arms.runs if len(run.steps))
    same_seed = ((run, other) for run, other in pairs if run.seed == other.seed)
    return max((until for run, other in same_seed if (until := shared_start(run, other)) is not None), default=None)
