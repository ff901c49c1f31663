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


def window_of_another_recipe(m: Measurements) -> str | None:
    for arm in m.arms.both:
        phase = not_claimed(arm.name, arm.recipe, m.window.first, m.window.last)
        if phase is not None:
            since = f"from step {phase.first_step:,} on" if phase.first_step else "throughout"
            judged = f"steps {m.window.first:,} to {m.window.last:,} are judged"
            return (
                f"{arm.name} trained with {phase.recipe} {since}, and {judged}: they say nothing "
                "of what its name claims."
            )
    return None


def steps_shifted(m: Measurements) -> str | None:
    shift = m.mismatch.shift
    if shift is None or m.policy.pairing == "unpaired":
        return None
    ahead = "ahead of" if shift > 0 else "behind"
    return (
        f"The step numbers of {m.arms.candidate.name} are {count(abs(shift), 'step')} {ahead} "
        f"those of {m.arms.baseline.name}: shifted by that, their batch noise agrees."
    )


def steps_scaled(m: Measurements) -> str | None:
    factor = m.mismatch.factor
    if factor is None:
        return None
    more, fewer, factor = _larger_first(m, factor)
    return (
        f"{more} counts {factor:,.10g} for each step of {fewer}; point by point the batch noise "
        "agrees."
    )


def loss_scaled(m: Measurements) -> str | None:
    ratio = m.mismatch.ratio
    if ratio is None:
        return None
    more, fewer, ratio = _larger_first(m, ratio)
    unit = " (1.4427: bits against nats)" if abs(ratio / BITS - 1.0) < 0.02 else ""
    return (
        f"The losses of {more} are {ratio:.4f} times those of {fewer} from the first step on{unit}."
    )


def _larger_first(m: Measurements, ratio: float) -> tuple[str, str, float]:
    """The arms by name, the larger one first, and how much larger it is, where the candidate is
    `ratio` times the baseline.
    """
    baseline, candidate = m.arms.baseline.name, m.arms.candidate.name
    if ratio > 1.0:
        return candidate, baseline, ratio
    return baseline, candidate, 1.0 / ratio


def seeds_unstated(m: Measurements) -> str | None:
    if m.arms.pairing.by != "unknown" or _rounding_explains(m) or _is_averaged(m):
        return None
    runs = (
        f"{count(len(m.arms.baseline.runs), 'run')} of {m.arms.baseline.name} and "
        f"{len(m.arms.candidate.runs)} of {m.arms.candidate.name}"
    )
    return (
        f"No seeds are stated, and the batches don't show which of the {runs} belong together: "
        "state them with --seeds."
    )


def other_batches(m: Measurements) -> str | None:
    if m.arms.share_seeds and (m.batches_proven or _broke(m)):
        return None
    return data_order(m)


def order_nowhere_shown(m: Measurements) -> str | None:
    if m.batches_proven:
        return None
    return order_unshown(m)


def order_unshown(m: Measurements) -> str | None:
    if (
        not m.policy.is_paired
        or not m.arms.share_seeds
        or m.r_hidden is None
        or m.same_data_recorded
    ):
        return None
    if _rounding_explains(m) or _is_averaged(m):
        return None
    return (
        "Whether the arms read the same data in the same order can't be shown: their batch noise "
        f"correlates {m.r_hidden:.2f}, as with "
        "very large batches, whose noise is small against that of the runs."
    )


def rounding_hides_pairing(m: Measurements) -> str | None:
    if not _rounding_explains(m):
        return None
    return (
        f"Losses are rounded to {m.resolution.rounding_step:.2g} nats, coarser than the batch "
        "noise: it can't show whether the data is the same."
    )


def _rounding_explains(m: Measurements) -> bool:
    return _pairing_unseen(m) and m.mismatch.rounding_hides


def _pairing_unseen(m: Measurements) -> bool:
    return (
        m.policy.is_paired
        and m.r_pair is not None
        and m.r_pair < SAME_ORDER
        and not m.same_data_recorded
    )


def averaging_hides_pairing(m: Measurements) -> str | None:
    if _pairing_unseen(m) and not m.batches_proven and not _broke(m):
        return arm_averaged(m)
    return None


def _broke(m: Measurements) -> bool:
    """Whether a candidate of the baseline's recipe began with the same batch and is worse than
    other batches, or averages, explain.

    A broken trainer hides its batches: what it has not learned, or learned otherwise, makes batch
    noise of its own. Its first loss came before its first update. The interval has the noise of
    other batches in it.
    """
    return (
        m.same_first_batch
        and m.noise_ratio is not None
        and gap_exceeds(m) is not None
        and _is_worse_throughout(m) is not None
    )


@with_margin
def _is_worse_throughout(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    """That the gap is above the margin in each part of the last half: a stretch of harder data,
    longer than the window shows, is not.
    """
    baseline, candidate = m.aligned.arm_means()
    late = (candidate - baseline)[len(m.aligned.steps) // 2 :]
    if all(float(part.mean()) > margin.nats for part in np.array_split(late, BROKEN_PARTS)):
        return "throughout"
    return None


def _is_averaged(m: Measurements) -> bool:
    return (
        m.noise_ratio is not None and not 1.0 / MAX_NOISE_RATIO <= m.noise_ratio <= MAX_NOISE_RATIO
    )


def rates_explain_a_gap(m: Measurements) -> str | None:
    if (
        m.compares != RECIPE
        or LEARNING_RATE in m.policy.may_differ
        or not rates_could_explain_a_gap(m.arms.runs)
    ):
        return None
    return rates_differ(m)


def context_explains_a_gap(m: Measurements) -> str | None:
    if m.compares != RECIPE or not explaining(m.differing_context):
        return None
    return confounded(m)


@with_margin
def start_explains_a_gap(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    """A candidate that began behind and has caught up in part; one that is as much worse throughout
    is worse.
    """
    first = m.mismatch.first_gap
    if (
        m.compares != RECIPE
        or first is None
        or first.share * s.baseline.level < CAUGHT_UP * max(s.interval.mean, margin.nats)
    ):
        return None
    # trained weights, which a recipe rounds
    if float(m.arms.baseline.runs[0].loss[0]) < FROM_SCRATCH * s.baseline.level:
        return None
    return start_differs(m)


def data_order(m: Measurements) -> str | None:
    if m.policy.pairing == "unpaired":
        return None
    if not m.arms.share_seeds:
        return (
            "The arms have no seed in common, so no two runs read the same data in the same order."
        )
    if _rounding_explains(m) or (_is_averaged(m) and not m.batches_proven):
        return None
    if (
        m.r_pair is None
        or m.r_pair >= SURELY_SAME_ORDER
        or m.same_data_recorded
        or m.r_hidden is not None
    ):
        return None
    if m.r_pair >= SAME_ORDER:
        if better(m) is None:
            return None
        return (
            f"The batch noise of the arms correlates only {m.r_pair:.2f} (above 0.9 expected), and "
            "the candidate is better by the margin or more: other data explains both."
        )
    if _broke(m):
        return (
            "The arms begin with the same batch; in the last half their batch noise correlates "
            f"only {m.r_pair:.2f}: other data there, "
            "trajectories that have parted, or a candidate that broke."
        )
    if m.batches_proven:
        return (
            "In some part of the last half the batch noise of the arms correlates only "
            f"{m.r_pair:.2f}: other data there, trajectories "
            "that have parted, or a candidate that broke; elsewhere they read the same batches."
        )
    if m.r_pair < OTHER_ORDER:
        return (
            "The arms did not read the same data in the same order: their batch noise correlates "
            f"{m.r_pair:.2f} (above 0.9 expected)."
        )
    return (
        "It is not shown that the arms read the same data in the same order: their batch noise "
        f"correlates {m.r_pair:.2f}, between that "
        "of different batches (about 0) and of equal ones (above 0.9)."
    )


def confounded(m: Measurements) -> str | None:
    if not m.differing_context:
        return None
    named = [difference_words(m, entry) for entry in m.differing_context]
    return f"The runs differ in more than the {m.compares}: {first_few(named, KEYS_SHOWN, '; ')}."


def difference_words(m: Measurements, entry: str) -> str:
    """An entry of `differing_context` with the arm of each value, "batch_size (base: 8, cand: 16)";
    as it stands where both arms have the same values.
    """
    key = entry.partition(": ")[0]
    sides = [(arm.name, values_of([run.context for run in arm.given], key)) for arm in m.arms.both]
    if sides[0][1] == sides[1][1]:
        return _with_short_digests(entry)
    words = ", ".join(
        f"{name}: {' | '.join(sorted(values)) or 'not recorded'}" for name, values in sides
    )
    return f"{key} ({_with_short_digests(words)})"


def _with_short_digests(words: str) -> str:
    return _DIGEST.sub(lambda digest: digest[0][:DIGEST_SHOWN], words)


def rates_differ(m: Measurements) -> str | None:
    if LEARNING_RATE in m.policy.may_differ:
        return None
    worst = differing_rates(m.arms.runs)
    if worst is None:
        return None
    whose, other = _who_differs(m.arms, worst)
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


def recipe_contradicted(m: Measurements) -> str | None:
    return contradiction(*((arm.name, arm.runs) for arm in m.arms.both))


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


def treatment_unshown(m: Measurements) -> str | None:
    start = m.equal_start
    if start is None or m.resemblance is not None:
        return None
    recipes = f"{m.arms.baseline.recipe} and {m.arms.candidate.recipe}"
    return (
        f"Both arms begin with a loss of {start.loss:.7g} at step {start.step}; {recipes} give "
        "different losses from the first step on."
    )


def arms_share_start(m: Measurements) -> str | None:
    until = m.shared_start
    if (
        m.resemblance is not None
        or until is None
        or until - m.window.origin + 1 < SHARED_START * m.window.planned_steps
    ):
        return None
    if until >= m.window.last:
        return (
            f"The record of {m.arms.candidate.name} or {m.arms.baseline.name} alone says that it "
            "is a fork of another run."
        )
    return (
        f"The arms are equal up to step {until:,}: {m.arms.candidate.name} went on from a run of "
        f"{m.arms.baseline.name}."
    )


def start_differs(m: Measurements) -> str | None:
    if m.mismatch.start is None or m.policy.pairing == "unpaired" or _costs_precision_at_first(m):
        return None
    side = "above" if m.mismatch.start > 0.0 else "below"
    return (
        f"The first loss of {m.arms.candidate.name} is {percent(abs(m.mismatch.start))} {side} "
        f"that of {m.arms.baseline.name}."
    )


@with_margin
def start_offset(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    offset = m.mismatch.first_gap
    if (
        offset is None
        or m.policy.pairing == "unpaired"
        or m.mismatch.start is not None
        or m.identical is not None
    ):
        return None
    if -offset.nats < max(OFFSET_OF_MARGIN * margin.nats, OFFSET_SDS * s.sd_paired):
        return None
    return (
        f"The first loss of {m.arms.candidate.name} is {-offset.nats:.4f} nats "
        f"({percent(-offset.share)}) below that of {m.arms.baseline.name}, more than a recipe "
        "explains: a further term in the baseline's loss would hide as large a gap."
    )


def _costs_precision_at_first(m: Measurements) -> bool:
    """Whether a candidate that begins worse only has trained weights rounded: the same batches, and
    never a lower loss (or other units).
    """
    proven = m.r_pair is not None and m.r_pair >= SURELY_SAME_ORDER
    return (
        m.mismatch.start is not None
        and m.mismatch.start > 0.0
        and proven
        and began_loaded(m.arms, m.policy)
    )


def arm_averaged(m: Measurements) -> str | None:
    if not _is_averaged(m):
        return None
    noise = (
        f"the batch noise of {m.arms.candidate.name} is {m.noise_ratio:.2g} times that of "
        f"{m.arms.baseline.name}"
    )
    return (
        "One of the logs holds averages and the other single steps, or an arm is unstable: "
        f"{noise}."
    )
