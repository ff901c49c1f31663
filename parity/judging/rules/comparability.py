"""Rules about what the arms share: batches, steps, units, start, schedule, records and recipes."""

import re
from collections.abc import Sequence

import numpy as np

from parity.effective_recipe import not_claimed
from parity.judging.curves.arms import Arms
from parity.judging.curves.context import RECIPE, explaining, values_of
from parity.judging.curves.curve import Curve
from parity.judging.curves.data_order import OTHER_ORDER, SAME_ORDER, SURELY_SAME_ORDER
from parity.judging.curves.learning_rates import (
    RateDifference,
    differing_rates,
    rates_could_explain_a_gap,
)
from parity.judging.curves.mismatch import BITS
from parity.judging.curves.resolution import MAX_NOISE_RATIO
from parity.judging.curves.schedule import FROM_SCRATCH
from parity.judging.curves.treatment import contradicted
from parity.judging.curves.window import LEARNING_RATE
from parity.judging.gap.margin import Margin
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.measurements import Measurements, began_loaded
from parity.judging.rules.margin import better, gap_exceeds
from parity.judging.rules.with_margin import with_margin
from parity.wording import count, first_few, percent

# of the keys that differ, and of a digest's characters; the document has all of both
KEYS_SHOWN, DIGEST_SHOWN = 3, 8

_DIGEST = re.compile(r"\b[0-9a-fA-F]{16,}\b")

# of the last half; with batches that are alike for 20 (100) steps, other data fail 2 % (6 %) of the
# time, not 8 % (18 %)
BROKEN_PARTS = 4

CAUGHT_UP = 1.5  # shares of the loss by which a candidate began behind, of the gap at the end

# Below, it hides less than the interval holds, or is noise of a pair that shares its batches in part.  # noqa: E501
OFFSET_OF_MARGIN, OFFSET_SDS = 0.5, 4.0

# of the plan; two recipes part at the first step, but coarse rounding can hide that for a while
SHARED_START = 0.1


def window_of_another_recipe(measurements: Measurements) -> str | None:
    for arm in measurements.arms.both:
        phase = not_claimed(
            arm.name, arm.recipe, measurements.window.first, measurements.window.last
        )
        if phase is not None:
            since = f"from step {phase.first_step:,} on" if phase.first_step else "throughout"
            judged = (
                f"steps {measurements.window.first:,} to {measurements.window.last:,} are judged"
            )
            return (
                f"{arm.name} trained with {phase.recipe} {since}, and {judged}: they say nothing "
                "of what its name claims."
            )
    return None


def steps_shifted(measurements: Measurements) -> str | None:
    shift = measurements.mismatch.shift
    if shift is None or measurements.policy.pairing == "unpaired":
        return None
    ahead = "ahead of" if shift > 0 else "behind"
    return (
        f"The step numbers of {measurements.arms.candidate.name} are {count(abs(shift), 'step')} "
        f"{ahead} "
        f"those of {measurements.arms.baseline.name}: shifted by that, their batch noise agrees."
    )


def steps_scaled(measurements: Measurements) -> str | None:
    factor = measurements.mismatch.factor
    if factor is None:
        return None
    more, fewer, factor = _larger_first(measurements, factor)
    return (
        f"{more} counts {factor:,.10g} for each step of {fewer}; point by point the batch noise "
        "agrees."
    )


def loss_scaled(measurements: Measurements) -> str | None:
    ratio = measurements.mismatch.ratio
    if ratio is None:
        return None
    more, fewer, ratio = _larger_first(measurements, ratio)
    unit = " (1.4427: bits against nats)" if abs(ratio / BITS - 1.0) < 0.02 else ""
    return (
        f"The losses of {more} are {ratio:.4f} times those of {fewer} from the first step on{unit}."
    )


def _larger_first(measurements: Measurements, ratio: float) -> tuple[str, str, float]:
    """The arms by name, the larger one first, and how much larger it is, where the candidate is
    `ratio` times the baseline.
    """
    baseline, candidate = measurements.arms.baseline.name, measurements.arms.candidate.name
    if ratio > 1.0:
        return candidate, baseline, ratio
    return baseline, candidate, 1.0 / ratio


def seeds_unstated(measurements: Measurements) -> str | None:
    if (
        measurements.arms.pairing.by != "unknown"
        or _rounding_explains(measurements)
        or _is_averaged(measurements)
    ):
        return None
    runs = (
        f"{count(len(measurements.arms.baseline.runs), 'run')} of "
        f"{measurements.arms.baseline.name} and "
        f"{len(measurements.arms.candidate.runs)} of {measurements.arms.candidate.name}"
    )
    return (
        f"No seeds are stated, and the batches don't show which of the {runs} belong together: "
        "state them with --seeds."
    )


def other_batches(measurements: Measurements) -> str | None:
    if measurements.arms.share_seeds and (measurements.batches_proven or _broke(measurements)):
        return None
    return data_order(measurements)


def order_nowhere_shown(measurements: Measurements) -> str | None:
    if measurements.batches_proven:
        return None
    return order_unshown(measurements)


def order_unshown(measurements: Measurements) -> str | None:
    if (
        not measurements.policy.is_paired
        or not measurements.arms.share_seeds
        or measurements.r_hidden is None
        or measurements.same_data_recorded
    ):
        return None
    if _rounding_explains(measurements) or _is_averaged(measurements):
        return None
    return (
        "Whether the arms read the same data in the same order can't be shown: their batch noise "
        f"correlates {measurements.r_hidden:.2f}, as with "
        "very large batches, whose noise is small against that of the runs."
    )


def rounding_hides_pairing(measurements: Measurements) -> str | None:
    if not _rounding_explains(measurements):
        return None
    return (
        f"Losses are rounded to {measurements.resolution.rounding_step:.2g} nats, coarser than the "
        "batch "
        "noise: it can't show whether the data is the same."
    )


def _rounding_explains(measurements: Measurements) -> bool:
    return _pairing_unseen(measurements) and measurements.mismatch.rounding_hides


def _pairing_unseen(measurements: Measurements) -> bool:
    return (
        measurements.policy.is_paired
        and measurements.r_pair is not None
        and measurements.r_pair < SAME_ORDER
        and not measurements.same_data_recorded
    )


def averaging_hides_pairing(measurements: Measurements) -> str | None:
    if (
        _pairing_unseen(measurements)
        and not measurements.batches_proven
        and not _broke(measurements)
    ):
        return arm_averaged(measurements)
    return None


def _broke(measurements: Measurements) -> bool:
    """Whether a candidate of the baseline's recipe began with the same batch and is worse than
    other batches, or averages, explain.

    A broken trainer hides its batches: what it has not learned, or learned otherwise, makes batch
    noise of its own. Its first loss came before its first update. The interval has the noise of
    other batches in it.
    """
    return (
        measurements.same_first_batch
        and measurements.noise_ratio is not None
        and gap_exceeds(measurements) is not None
        and _is_worse_throughout(measurements) is not None
    )


@with_margin
def _is_worse_throughout(
    measurements: Measurements, _s: WindowStatistics, margin: Margin
) -> str | None:
    """That the gap is above the margin in each part of the last half: a stretch of harder data,
    longer than the window shows, is not.
    """
    baseline, candidate = measurements.aligned.arm_means()
    late = (candidate - baseline)[len(measurements.aligned.steps) // 2 :]
    if all(float(part.mean()) > margin.nats for part in np.array_split(late, BROKEN_PARTS)):
        return "throughout"
    return None


def _is_averaged(measurements: Measurements) -> bool:
    return (
        measurements.noise_ratio is not None
        and not 1.0 / MAX_NOISE_RATIO <= measurements.noise_ratio <= MAX_NOISE_RATIO
    )


def rates_explain_a_gap(measurements: Measurements) -> str | None:
    if (
        measurements.compares != RECIPE
        or LEARNING_RATE in measurements.policy.may_differ
        or not rates_could_explain_a_gap(measurements.arms.runs)
    ):
        return None
    return rates_differ(measurements)


def context_explains_a_gap(measurements: Measurements) -> str | None:
    if measurements.compares != RECIPE or not explaining(measurements.differing_context):
        return None
    return confounded(measurements)


@with_margin
def start_explains_a_gap(
    measurements: Measurements, s: WindowStatistics, margin: Margin
) -> str | None:
    """A candidate that began behind and has caught up in part; one that is as much worse throughout
    is worse.
    """
    first = measurements.mismatch.first_gap
    if (
        measurements.compares != RECIPE
        or first is None
        or first.share * s.baseline.level < CAUGHT_UP * max(s.interval.mean, margin.nats)
    ):
        return None
    # trained weights, which a recipe rounds
    if float(measurements.arms.baseline.runs[0].loss[0]) < FROM_SCRATCH * s.baseline.level:
        return None
    return start_differs(measurements)


def data_order(measurements: Measurements) -> str | None:
    if measurements.policy.pairing == "unpaired":
        return None
    if not measurements.arms.share_seeds:
        return (
            "The arms have no seed in common, so no two runs read the same data in the same order."
        )
    if _rounding_explains(measurements) or (
        _is_averaged(measurements) and not measurements.batches_proven
    ):
        return None
    if (
        measurements.r_pair is None
        or measurements.r_pair >= SURELY_SAME_ORDER
        or measurements.same_data_recorded
        or measurements.r_hidden is not None
    ):
        return None
    if measurements.r_pair >= SAME_ORDER:
        if better(measurements) is None:
            return None
        return (
            f"The batch noise of the arms correlates only {measurements.r_pair:.2f} (above 0.9 "
            "expected), and "
            "the candidate is better by the margin or more: other data explains both."
        )
    if _broke(measurements):
        return (
            "The arms begin with the same batch; in the last half their batch noise correlates "
            f"only {measurements.r_pair:.2f}: other data there, "
            "trajectories that have parted, or a candidate that broke."
        )
    if measurements.batches_proven:
        return (
            "In some part of the last half the batch noise of the arms correlates only "
            f"{measurements.r_pair:.2f}: other data there, trajectories "
            "that have parted, or a candidate that broke; elsewhere they read the same batches."
        )
    if measurements.r_pair < OTHER_ORDER:
        return (
            "The arms did not read the same data in the same order: their batch noise correlates "
            f"{measurements.r_pair:.2f} (above 0.9 expected)."
        )
    return (
        "It is not shown that the arms read the same data in the same order: their batch noise "
        f"correlates {measurements.r_pair:.2f}, between that "
        "of different batches (about 0) and of equal ones (above 0.9)."
    )


def confounded(measurements: Measurements) -> str | None:
    if not measurements.differing_context:
        return None
    named = [difference_words(measurements, entry) for entry in measurements.differing_context]
    return (
        f"The runs differ in more than the {measurements.compares}: "
        f"{first_few(named, KEYS_SHOWN, '; ')}."
    )


def difference_words(measurements: Measurements, entry: str) -> str:
    """An entry of `differing_context` with the arm of each value, "batch_size (base: 8, cand: 16)";
    as it stands where both arms have the same values.
    """
    key = entry.partition(": ")[0]
    sides = [
        (arm.name, values_of([run.context for run in arm.given], key))
        for arm in measurements.arms.both
    ]
    if sides[0][1] == sides[1][1]:
        return _with_short_digests(entry)
    words = ", ".join(
        f"{name}: {' | '.join(sorted(values)) or 'not recorded'}" for name, values in sides
    )
    return f"{key} ({_with_short_digests(words)})"


def _with_short_digests(words: str) -> str:
    return _DIGEST.sub(lambda digest: digest[0][:DIGEST_SHOWN], words)


def rates_differ(measurements: Measurements) -> str | None:
    if LEARNING_RATE in measurements.policy.may_differ:
        return None
    worst = differing_rates(measurements.arms.runs)
    if worst is None:
        return None
    whose, other = _who_differs(measurements.arms, worst)
    where = f"at step {worst.step:,} {whose} has {worst.rate:.3g} and {other} {worst.reference:.3g}"
    return (
        f"The learning rates differ: {where}. They differ at {worst.steps:,} of "
        f"{count(worst.logged, 'logged step')}."
    )


def _who_differs(arms: Arms, found: RateDifference) -> tuple[str, str]:
    """The arms whose rates differ, and of an arm of several runs which run."""
    places = [(arm, number) for arm in arms.both for number, _ in enumerate(arm.runs, 1)]
    (arm, number), (other, other_number) = places[found.run], places[found.against]
    if arm is other:
        return f"run {number} of {arm.name}", f"its run {other_number}"
    whose, against = (
        one.name if len(one.runs) == 1 else f"run {at} of {one.name}"
        for one, at in ((arm, number), (other, other_number))
    )
    return whose, against


def recipe_contradicted(measurements: Measurements) -> str | None:
    return contradiction(*((arm.name, arm.runs) for arm in measurements.arms.both))


def contradiction(*arms: tuple[str, Sequence[Curve]]) -> str | None:
    """Which arms, by name and runs, recorded another precision than their name or their stated
    recipe says; None where none did.
    """
    parts = [
        f"{name} recorded recipe {recipe}"
        for name, runs in arms
        if (recipe := contradicted(name, runs)) is not None
    ]
    if not parts:
        return None
    return f"The runs of {' and those of '.join(parts)}, which is another precision."


def treatment_unshown(measurements: Measurements) -> str | None:
    start = measurements.equal_start
    if start is None or measurements.resemblance is not None:
        return None
    recipes = f"{measurements.arms.baseline.recipe} and {measurements.arms.candidate.recipe}"
    return (
        f"Both arms begin with a loss of {start.loss:.7g} at step {start.step}; {recipes} give "
        "different losses from the first step on."
    )


def arms_share_start(measurements: Measurements) -> str | None:
    until = measurements.shared_start
    if (
        measurements.resemblance is not None
        or until is None
        or until - measurements.window.origin + 1 < SHARED_START * measurements.window.planned_steps
    ):
        return None
    if until >= measurements.window.last:
        return (
            f"The record of {measurements.arms.candidate.name} or "
            f"{measurements.arms.baseline.name} alone says that it "
            "is a fork of another run."
        )
    return (
        f"The arms are equal up to step {until:,}: {measurements.arms.candidate.name} went on from "
        "a run of "
        f"{measurements.arms.baseline.name}."
    )


def start_differs(measurements: Measurements) -> str | None:
    if (
        measurements.mismatch.start is None
        or measurements.policy.pairing == "unpaired"
        or _costs_precision_at_first(measurements)
    ):
        return None
    side = "above" if measurements.mismatch.start > 0.0 else "below"
    return (
        f"The first loss of {measurements.arms.candidate.name} is "
        f"{percent(abs(measurements.mismatch.start))} {side} "
        f"that of {measurements.arms.baseline.name}."
    )


@with_margin
def start_offset(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    offset = measurements.mismatch.first_gap
    if (
        offset is None
        or measurements.policy.pairing == "unpaired"
        or measurements.mismatch.start is not None
        or measurements.identical is not None
    ):
        return None
    if -offset.nats < max(OFFSET_OF_MARGIN * margin.nats, OFFSET_SDS * s.sd_paired):
        return None
    return (
        f"The first loss of {measurements.arms.candidate.name} is {-offset.nats:.4f} nats "
        f"({percent(-offset.share)}) below that of {measurements.arms.baseline.name}, more than a "
        "recipe "
        "explains: a further term in the baseline's loss would hide as large a gap."
    )


def _costs_precision_at_first(measurements: Measurements) -> bool:
    """Whether a candidate that begins worse only has trained weights rounded: the same batches, and
    never a lower loss (or other units).
    """
    proven = measurements.r_pair is not None and measurements.r_pair >= SURELY_SAME_ORDER
    return (
        measurements.mismatch.start is not None
        and measurements.mismatch.start > 0.0
        and proven
        and began_loaded(measurements.arms, measurements.policy)
    )


def arm_averaged(measurements: Measurements) -> str | None:
    if not _is_averaged(measurements):
        return None
    noise = (
        f"the batch noise of {measurements.arms.candidate.name} is {measurements.noise_ratio:.2g} "
        "times that of "
        f"{measurements.arms.baseline.name}"
    )
    return (
        "One of the logs holds averages and the other single steps, or an arm is unstable: "
        f"{noise}."
    )
