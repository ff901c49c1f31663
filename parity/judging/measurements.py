"""Everything that is measured on one baseline and one candidate before anything is decided."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parity.judging.curves.alignment import Aligned, align, common_losses
from parity.judging.curves.arms import Arm, Arms, Controls, make_arms, usable_controls
from parity.judging.curves.averaging_bias import smoothing_bias
from parity.judging.curves.context import (
    RECIPE,
    Comparison,
    confounding_context,
    same_data_recorded,
    without_assumed_noise,
)
from parity.judging.curves.curve import (
    FORKED_FROM,
    LOADED,
    START,
    Curve,
    FloatArray,
    IntArray,
    Rounding,
    computed_once,
    usable,
)
from parity.judging.curves.data_order import (
    SAME_ORDER,
    hidden_correlation,
    is_proven_somewhere,
    worst_correlation,
)
from parity.judging.curves.early_stops import EarlyStops, usable_early_stops
from parity.judging.curves.independence import (
    resemblance,
    shared_start,
)
from parity.judging.curves.mismatch import Mismatch, find_mismatch
from parity.judging.curves.points_in_one_arm import (
    EarlyHole,
    Lacking,
    early_hole,
    lacking_points,
)
from parity.judging.curves.related_pairs import pairs_to_test
from parity.judging.curves.resolution import MAX_NOISE_RATIO, Resolution, noise_ratio, resolution
from parity.judging.curves.schedule import ScheduleState, log_slope, schedule_state
from parity.judging.curves.treatment import EqualStart, equal_start, same_first_batch
from parity.judging.curves.window import Window, decay_phase, planned_share
from parity.judging.gap.window_statistics import (
    PairInWindow,
    WindowStatistics,
    measure_window,
)
from parity.judging.gap.window_statistics import at_margin as statistics_at_margin
from parity.judging.gap.worst_run import RunGap, worst_run
from parity.judging.identical import Identical, find_identical
from parity.judging.multiplicity import ONE_LOOK, Multiplicity
from parity.judging.noise.borrowed_priors import NoiseSources
from parity.judging.noise.noise_source import NoiseFamilies, NoiseSource, refused
from parity.judging.parting import parts_late
from parity.judging.policy import Amount, Policy

SLOPE_SAMPLE = 8_192  # points, evenly spread, show how steeply a loss falls
RunPairs = Sequence[tuple[Curve, Curve]]  # of baseline and candidate


class Compared(NamedTuple):
    """The names of the two arms, and in what they are meant to differ."""

    baseline: str
    candidate: str
    compares: Comparison = RECIPE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Measurements:
    """One comparison, measured; `statistics` is None where the window has no common finite point or
    no seed is common.

    `noise_sources` holds the family of baseline and candidate, None for an arm that names none;
    `early` the early-stopped reruns of both. Of recipe arms alone, `equal_start`, `resemblance` and
    `shared_start` say whether the candidate trained with its recipe; of other arms alone,
    `identical` and `same_first_batch` say whether all runs are equal or begin with one batch.
    `smoothing_bias` (n,) is what averages in the candidate's log could add to its losses at the
    window's common steps, nats; None where the log holds no averages. `r_hidden` is the correlation
    of batches that can't be shown to be equal or others. `lacking` is what baseline and candidate
    alone lack of their grids, `early_holes` what they lack before the window; `parts_late` is
    whether both logs begin late, with nearly equal losses.
    """

    compares: Comparison
    policy: Policy
    multiplicity: Multiplicity
    arms: Arms
    noise_sources: NoiseSources
    controls: Controls
    early: tuple[EarlyStops, EarlyStops]
    window: Window
    planned_share: float
    schedule: ScheduleState
    common_logged_steps: int
    aligned: Aligned
    r_pair: float | None
    r_hidden: float | None
    batches_proven: bool
    same_data_recorded: bool
    differing_context: tuple[str, ...]
    resolution: Resolution
    noise_ratio: float | None
    same_first_batch: bool
    smoothing_bias: FloatArray | None
    lacking: tuple[Lacking, Lacking]
    early_holes: tuple[EarlyHole, EarlyHole]
    parts_late: bool
    mismatch: Mismatch
    equal_start: EqualStart | None
    resemblance: str | None
    worst_run: RunGap | None
    shared_start: int | None
    without_assumed_noise: str | None
    identical: Identical | None
    statistics: WindowStatistics | None

    @property
    def confidence(self) -> float:
        """The confidence of the interval that is shown and that decides: the policy's, shared by
        its looks and candidates.
        """
        return self.multiplicity.confidence(self.policy.confidence)

    @property
    def levels(self) -> tuple[float, float]:
        """That confidence, and the one of its error within pairs, which looks do not share."""
        return self.multiplicity.levels(self.policy.confidence)

    @property
    @computed_once  # more than ten rules and sentences ask for them
    def bounds(self) -> tuple[float, float] | None:
        """The ends of that interval, nats; None without a window."""
        if not self.statistics:
            return None
        return self.statistics.interval.bounds(*self.levels)


class FurtherRuns(NamedTuple):
    """Runs next to those of the arms: reruns of the baseline, early-stopped reruns of baseline and
    candidate, and finished runs of the baseline's recipe on fewer tokens.
    """

    controls: Sequence[Curve] = ()
    short_reruns: tuple[Sequence[Curve], Sequence[Curve]] = ((), ())
    shorter: Sequence[Curve] = ()


NO_FURTHER_RUNS = FurtherRuns()


def measure(
    compared: Compared,
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    policy: Policy,
    window: Window,
    noise_families: NoiseFamilies,
    further: FurtherRuns = NO_FURTHER_RUNS,
    multiplicity: Multiplicity = ONE_LOOK,
) -> Measurements:
    """Measure two arms of at least one run each in a registered window."""
    window = decay_phase(window, baseline[0], policy.min_points)
    compares = compared.compares
    arms = make_arms(compared[:2], baseline, candidate, policy, window)
    aligned = align(*arms.both_runs, window.last)
    usable = usable_controls(arms, further.controls, policy, window)
    early = usable_early_stops(arms, usable, further.short_reruns, policy, window)
    resolved = resolution(*arms.both_runs, window)
    r_pair = worst_correlation(aligned, *arms.both_runs)
    proven = r_pair is None or r_pair >= SAME_ORDER or is_proven_somewhere(aligned)
    r_hidden = None if r_pair is None or r_pair >= SAME_ORDER else hidden_correlation(aligned)
    schedule = _schedule(arms, window, policy)
    baseline_source, candidate_source = (
        _noise_source(arm, declared, noise_families, schedule)
        for arm, declared in zip(arms.both, policy.declared_noise, strict=True)
    )
    noise_sources = baseline_source, candidate_source
    pairs = pairs_to_test(*arms.both_runs)
    statistics, identical = None, None
    part = window.part(aligned.steps)
    if arms.share_seeds and part.start < part.stop:
        pair = PairInWindow(
            aligned=aligned,
            means=aligned.arm_means(),
            part=part,
            arms=arms,
            controls=usable,
            policy=policy,
            rounding_step=resolved.rounding_step,
            shorter=further.shorter,
            noise_sources=noise_sources,
            early=(early[0].spread, early[1].spread),
            multiplicity=multiplicity,
            slope=schedule.assumed_slope,
        )
        statistics = measure_window(pair, window)
        identical = None if compares == RECIPE else find_identical(arms, statistics)
        if identical is not None:
            statistics = measure_window(dataclasses.replace(pair, exact=identical.rounding), window)
    are_recipes = compares == RECIPE
    alike = (
        not are_recipes
        and arms.share_seeds
        and same_first_batch(*arms.both_runs, resolved.rounding_step)
    )
    ratio = noise_ratio(
        aligned, resolved.rounding_step, same_batches=(proven or alike) and policy.is_paired
    )
    return Measurements(
        compares=compares,
        policy=policy,
        multiplicity=multiplicity,
        arms=arms,
        noise_sources=noise_sources,
        controls=usable,
        early=early,
        window=window,
        planned_share=planned_share(arms.runs, window),
        schedule=schedule,
        common_logged_steps=len(aligned.steps) or len(common_losses(arms.runs)[0]),
        aligned=aligned,
        r_pair=r_pair,
        r_hidden=r_hidden,
        batches_proven=proven,
        same_data_recorded=same_data_recorded(arms.runs)
        or (policy.pairing == "stated" and (r_pair is None or r_hidden is not None)),
        differing_context=confounding_context(
            ((*baseline, *further.controls), candidate), policy.may_differ, compares
        ),
        resolution=resolved,
        noise_ratio=ratio,
        same_first_batch=alike,
        smoothing_bias=_smoothing_bias(arms, aligned.steps[part], ratio, window)
        if (alike and not proven) or _is_below(ratio)
        else None,
        lacking=(
            lacking_points(*arms.both_runs, window),
            lacking_points(*arms.both_runs[::-1], window),
        ),
        early_holes=(
            early_hole(*arms.both_runs, window),
            early_hole(*arms.both_runs[::-1], window),
        ),
        parts_late=parts_late(arms, aligned, window),
        mismatch=find_mismatch(*arms.both_runs, aligned, r_pair, resolved.rounding_step),
        equal_start=equal_start(*arms.both_runs, resolved.rounding_step) if are_recipes else None,
        resemblance=next(
            (
                why
                for run, other in pairs
                if are_recipes and (why := resemblance(run, other)) is not None
            ),
            None,
        ),
        worst_run=_worst_run(arms, window, policy, schedule, statistics),
        shared_start=_shared_start(arms, pairs if are_recipes else ()),
        without_assumed_noise=without_assumed_noise(arms.runs),
        identical=identical,
        statistics=statistics,
    )


def at_margin(measured: Measurements, policy: Policy) -> Measurements:
    """The same comparison under a policy that differs in its margin alone, which is no margin in
    tokens: nothing else is measured again.
    """
    if measured.statistics is None:
        return dataclasses.replace(measured, policy=policy)
    statistics = statistics_at_margin(
        measured.statistics, policy, measured.levels, measured.resolution.rounding_step
    )
    return dataclasses.replace(
        measured,
        policy=policy,
        statistics=statistics,
        worst_run=_worst_run(measured.arms, measured.window, policy, measured.schedule, statistics),
    )


def _is_below(ratio: float | None) -> bool:
    return ratio is not None and ratio < 1.0 / MAX_NOISE_RATIO


def _smoothing_bias(
    arms: Arms, steps: IntArray, ratio: float | None, window: Window
) -> FloatArray | None:
    if ratio is None or ratio >= 1.0 or len(steps) == 0:
        return None
    bias: FloatArray = np.mean(
        [smoothing_bias(run, steps, ratio, window) for run in arms.baseline.runs], axis=0
    )
    return bias


def _worst_run(
    arms: Arms,
    window: Window,
    policy: Policy,
    schedule: ScheduleState,
    statistics: WindowStatistics | None,
) -> RunGap | None:
    if statistics is None or statistics.margin is None or arms.pairing.by == "unknown":
        return None
    return worst_run(
        arms,
        window,
        policy,
        schedule.assumed_slope,
        statistics.baseline.level,
        statistics.margin.nats,
    )


def _schedule(arms: Arms, window: Window, policy: Policy) -> ScheduleState:
    """The state of the schedule, with the steepest slope of a run of the baseline: a worse
    candidate must not change its own noise.
    """
    loaded = began_loaded(arms, policy)
    slopes = []
    for run in arms.baseline.runs:
        end = int(np.searchsorted(run.steps, window.last, side="right"))
        some = slice(0, end, 1 + end // SLOPE_SAMPLE)
        steps, loss = run.steps[some], run.loss[some]
        slopes.append(log_slope(steps[usable(loss)], loss[usable(loss)], loaded=loaded))
    return schedule_state(arms.both_runs, window, policy, max(slopes))


def _noise_source(
    arm: Arm, declared: Amount | None, noise_families: NoiseFamilies, schedule: ScheduleState
) -> NoiseSource | None:
    """What the arm may borrow; what holds for finished schedules needs one in both arms."""
    noise_source = noise_source_for(arm.name, arm.rounding, declared, noise_families)
    if noise_source is None or not noise_source.needs_finished or schedule.finished:
        return noise_source
    return refused(
        noise_source.family, f"it holds for runs that finished their schedule; {schedule.why}"
    )


def _shared_start(arms: Arms, pairs: RunPairs) -> int | None:
    """The last step up to which a candidate's run is a baseline's run of its seed; None where they
    part at once.
    """
    if {run.context.get(FORKED_FROM) for run in arms.candidate.runs} != {
        run.context.get(FORKED_FROM) for run in arms.baseline.runs
    }:
        return max(int(run.steps[-1]) for run in arms.runs if len(run.steps))
    same_seed = ((run, other) for run, other in pairs if run.seed == other.seed)
    return max(
        (until for run, other in same_seed if (until := shared_start(run, other)) is not None),
        default=None,
    )


def noise_source_for(
    arm: str, rounding: Rounding, declared: Amount | None, noise_families: NoiseFamilies
) -> NoiseSource | None:
    """What an arm may borrow by its name and rounding; run-to-run noise that the policy declares
    counts more.
    """
    noise_source = noise_families.of(arm, rounding)
    if noise_source is None or noise_source.noise is None or declared is None:
        return noise_source
    return refused(
        noise_source.family, f"the policy declares the run-to-run noise of {arm} ({declared})"
    )


def began_loaded(arms: Arms, policy: Policy) -> bool:
    """Whether the policy states that all runs began with trained weights, or the record of every
    run does.
    """
    return policy.start == LOADED or all(run.context.get(START) == LOADED for run in arms.runs)
