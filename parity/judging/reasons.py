"""The decision table: pass, fail or inconclusive. The first rule of this file that holds decides;
afterwards `checks` may take back a pass.

Each reason is one entry: its code, what it means, what to do next, and the function that returns
its sentence where it holds. The pass is non-inferiority: the upper end of the interval is below the
margin. A candidate that is better than the baseline by more than the margin does not pass either:
something other than the precision has changed. docs/codes.md, which has them in their order, is
generated from this file.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parity.effective_recipe import not_claimed
from parity.judging import decision
from parity.judging.agreement import (
    BITS,
    MAX_HOLE,
    MAX_LAG_SHARE,
    MAX_NOISE_RATIO,
    MIN_COVERAGE,
    RECIPE,
    SMOOTHED_WEIGHT,
    contradicted,
    explaining,
    shared_facts,
)
from parity.judging.curve import Curve, FloatArray, computed_once
from parity.judging.decision import (
    AS_OF,
    CHECK_CODES,
    FAIL,
    IDENTICAL,
    INCONCLUSIVE,
    PASS,
    VALIDATION_LOSS_WORSE,
    CheckName,
    Decision,
    Reason,
    ReasonCode,
    Rule,
    State,
)
from parity.judging.interval import Margin, NoSlope
from parity.judging.measurements import Measurements, began_loaded
from parity.judging.pairing import OTHER_ORDER, SAME_ORDER, SURELY_SAME_ORDER
from parity.judging.policy import POINTS_TO_FAIL, WIDE_MARGIN, Policy
from parity.judging.reading import different_meanings, in_bits, unread_lines, without_losses
from parity.judging.schedule import (
    FROM_SCRATCH,
    MAX_BEYOND,
    beyond_plan,
    differing_rates,
    rates_could_explain_a_gap,
)
from parity.judging.secondary import GRAD_NORM, gap_before_window, norm_ratio
from parity.judging.warnings import (
    BEYOND_PLAN,
    LOG_STARTS_LATE,
    NONFINITE_DROPPED,
    ROUNDED,
    RUN_NOISE_ASSUMED,
    SMOOTHED,
    WARNING_CODES,
    as_of,
    goes_beyond_plan,
    noise_assumed,
    warnings_of,
)
from parity.judging.window import LEARNING_RATE, MAX_MASKED_SHARE, diverged_late, interpolate
from parity.judging.window_statistics import WindowStatistics, late_part_above
from parity.wording import count, first_few, interval_words, nats_decimals, percent, signed

MAX_COUNTED = 10**15  # beyond the tokens of any training, and far beyond its steps
# below, the noise is no share of the loss any more; above ln of any vocabulary
MIN_LEVEL_NATS, MAX_LEVEL_NATS = 0.3, 20.0
# of the loss in a relative margin: fewer are a margin between neighbouring digits
MIN_PRINTED_STEPS = 4
# Of the window's points; fewer count in the interval.
HOLE_IN_ONE_ARM, LACKING_IN_ONE_ARM, FEWEST_LACKING = 0.015, 0.03, 3
NEAR_WINDOW = 0.5  # of the window's length before it
# of the keys that differ, and of a digest's characters; the document has all of both
KEYS_SHOWN, DIGEST_SHOWN = 3, 8
_DIGEST = re.compile(r"\b[0-9a-fA-F]{16,}\b")
# What has to be put right before anything else is looked at.
MISFITS = ("LOSSES_DIFFER", "STEPS_SHIFTED", "STEPS_SCALED", "LOSS_SCALED", "SEEDS_UNSTATED")
DRIFT_Z, DRIFT_REACH = 1.96, 1.5
# of the loss; other batches after a restart move a mean of 3 points by 2 % (124 M model)
ROLLED_BACK = 0.05
# of the last half; with batches that are alike for 20 (100) steps, other data fail 2 % (6 %) of the
# time, not 8 % (18 %)
BROKEN_PARTS = 4
NORMS_APART = 10.0  # 0.9 to 2.9 on GB200, 2.9 at the first step from loaded weights
NOT_KNOWN = (math.nan, math.nan)  # the ends of an interval without a window
CONFOUNDS = ("LEARNING_RATES_DIFFER", "CONFOUNDED", "START_DIFFERS")
CAUGHT_UP = 1.5  # shares of the loss by which a candidate began behind, of the gap at the end
# Below, it hides less than the interval holds, or is noise of a pair that shares its batches in part.  # noqa: E501
OFFSET_OF_MARGIN, OFFSET_SDS = 0.5, 4.0
# of the plan; two recipes part at the first step, but coarse rounding can hide that for a while
SHARED_START = 0.1


# What is asked of a gap that noise and digits leave open, and not of runs that are equal one for
# one.
NOT_OF_IDENTICAL = (
    "TOO_FEW_STEPS",
    "MARGIN_UNDETERMINED",
    "RUN_NOISE_UNKNOWN",
    "RUN_NOISE_ASSUMED",
    "TOO_FEW_RUNS",
    "MARGIN_WIDE",
    "SMOOTHED",
)

MarginRule = Callable[[Measurements, WindowStatistics, Margin], str | None]
_TABLE: list[tuple[State, ReasonCode, Rule]] = []


def decides(
    state: State,
    code: str,
    check: CheckName,
    *,
    means: str,
    detail: str | None = None,
    next_step: str | None = None,
    next_step_of_job: str | None = None,
) -> Callable[[Rule], Rule]:
    """Make a function the next row of the table, with a code of its own (`ReasonCode`).

    `state` is the verdict where the function returns a sentence and no earlier row does.
    """
    return decides_as(
        state,
        ReasonCode(
            code,
            check,
            means=means,
            detail=detail,
            next_step=next_step,
            next_step_of_job=next_step_of_job,
        ),
    )


def decides_as(state: State, entry: ReasonCode) -> Callable[[Rule], Rule]:
    """The same with a code that another row or a warning has, too."""

    def register(rule: Rule) -> Rule:
        _TABLE.append((state, entry, rule))
        return rule

    return register


def with_margin(rule: MarginRule) -> Rule:
    """A rule that holds only where the window could be measured and the margin is known, which it
    takes too.
    """

    @functools.wraps(rule)
    def of_measurements(m: Measurements) -> str | None:
        s = m.statistics
        if s is None or s.margin is None:
            return None
        return rule(m, s, s.margin)

    return of_measurements


def holding(m: Measurements) -> list[tuple[str, State, Reason]]:
    """The rules that hold, by name, in the order in which they decide: the first one does."""
    skipped = NOT_OF_IDENTICAL if m.identical else ()
    rows = (
        (rule.__name__.lstrip("_"), state, entry.code, rule(m))
        for state, entry, rule in _TABLE
        if entry.code not in skipped
    )
    return [
        (name, state, Reason(code=code, sentence=sentence))
        for name, state, code, sentence in rows
        if sentence is not None
    ]


def decide(m: Measurements) -> Decision:
    """Apply the table to one comparison's measurements."""
    (_, state, deciding), *further = holding(m)
    if deciding.code in MISFITS:  # everything else that holds follows from the misfit
        return Decision(state=state, deciding=deciding, others=())
    # then the fails that it could explain are listed, too
    of_a_confound = state == INCONCLUSIVE and deciding.code in CONFOUNDS
    other_reasons = [
        reason
        for _, other, reason in further
        if other == INCONCLUSIVE
        or reason.code == IDENTICAL.code
        or (other == FAIL and of_a_confound)
    ]
    by_code = {
        reason.code: reason for reason in reversed(other_reasons) if reason.code != deciding.code
    }
    vetoes = list(reversed(by_code.values()))  # each code once, with its first sentence
    listed = {deciding.code, *by_code}
    warnings = [reason for reason in warnings_of(m) if reason.code not in listed]
    return Decision(state=state, deciding=deciding, others=(*vetoes, *warnings))


@decides(
    INCONCLUSIVE,
    "EMPTY",
    "input",
    means="a run has no steps",
    next_step="Check that the file holds the training loss and that the right column was read.",
)
def _empty(m: Measurements) -> str | None:
    for arm in m.arms.both:
        for number, run in enumerate(arm.runs, 1):
            if len(run.steps) == 0:
                return f"Run {run.label or number} of {arm.name} has no steps."
    return None


@decides(
    INCONCLUSIVE,
    "WINDOW_OTHER_RECIPE",
    "same ground",
    means="an arm did not train with the recipe that its name claims in some of the judged steps",
    detail="a switch to another precision, or an override, has taken its place there",
    next_step="Name the arm after what it did, such as nvfp4-then-bf16 (or leave the name out), "
    "or train with that recipe to the end.",
)
def _window_of_another_recipe(m: Measurements) -> str | None:
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


@decides(
    INCONCLUSIVE,
    "LOSSES_DIFFER",
    "input",
    means="the arms were read from columns of different quantities, such as a total loss and a "
    "language-model loss",
    next_step="Name the column of one quantity in both files (--column ARM:loss=NAME). If both are "
    "one quantity, state it: "
    "--loss-is training.",
    next_step_of_job="Report one quantity in both arms: the cross-entropy per token in nats, "
    "without auxiliary terms.",
)
def _losses_differ(m: Measurements) -> str | None:
    return different_meanings([(arm.name, arm.runs) for arm in m.arms.both])


@decides(
    INCONCLUSIVE,
    "STEPS_SHIFTED",
    "same data order",
    means="the arms number the same steps differently",
    next_step="Renumber the steps of one arm, so that equal numbers mean the same batch: many "
    "tools count from 0, others from 1.",
)
def _steps_shifted(m: Measurements) -> str | None:
    shift = m.mismatch.shift
    if shift is None or m.policy.pairing == "unpaired":
        return None
    ahead = "ahead of" if shift > 0 else "behind"
    return (
        f"The step numbers of {m.arms.candidate.name} are {count(abs(shift), 'step')} {ahead} "
        f"those of {m.arms.baseline.name}: "
        "shifted by that, their batch noise agrees."
    )


@decides(
    INCONCLUSIVE,
    "STEPS_SCALED",
    "same data order",
    means="the arms count their steps in different units, such as tokens or samples",
    next_step="Divide the step column that counts tokens or samples by the tokens or samples of "
    "one step.",
)
def _steps_scaled(m: Measurements) -> str | None:
    factor = m.mismatch.factor
    if factor is None:
        return None
    more, fewer, factor = _larger_first(m, factor)
    return (
        f"{more} counts {factor:,.10g} for each step of {fewer}; point by point the batch noise "
        "agrees."
    )


@decides(
    INCONCLUSIVE,
    "LOSS_SCALED",
    "input",
    means="the losses of the arms are in different units, such as bits and nats",
    next_step="Give both arms the cross-entropy per token in nats (bits x 0.6931).",
)
def _loss_scaled(m: Measurements) -> str | None:
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


@decides(
    INCONCLUSIVE,
    "NO_COMMON_STEPS",
    "input",
    means="no step was logged by every run",
    next_step="Log both arms on the same steps, or check that both count steps and not tokens or "
    "samples.",
)
def _no_common_steps(m: Measurements) -> str | None:
    if m.common_logged_steps:
        return None
    spans = [
        f"{run.completeness.first} to {run.completeness.last} every {run.completeness.stride or 1}"
        for run in m.arms.runs
    ]
    return f"The runs have no step in common: {'; '.join(dict.fromkeys(spans))}."


@decides(
    INCONCLUSIVE,
    "SEEDS_UNSTATED",
    "same data order",
    means="the runs have no stated seeds, and their batches do not show which runs belong together",
    next_step="State the seed of each run (--seeds 0,1,2): runs of both arms with one seed read "
    "the same batches.",
)
def _seeds_unstated(m: Measurements) -> str | None:
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


DATA_ORDER_MISMATCH = ReasonCode(
    "DATA_ORDER_MISMATCH",
    "same data order",
    means="the arms read other data, or the same data in another order, or it is not shown that "
    "they did not",
    next_step="Train both arms with the same seed and data order, or declare the arms unpaired in "
    "the policy.",
)


ORDER_UNSHOWN = ReasonCode(
    "ORDER_UNSHOWN",
    "same data order",
    means="the batch noise is too small against the runs' own noise to show whether the arms read "
    "the same data in the same order",
    detail="as with very large batches; equal data digests, or pairing: stated in the policy, "
    "settle it",
    next_step="If both arms read the same data in the same order, state it: pairing: stated in the "
    "policy, or equal data digests "
    "(--context ARM:data_digest=...). Else declare the arms unpaired.",
    next_step_of_job="If both arms read the same data in the same order, report equal data digests "
    "in the manifests, or write "
    "pairing: stated into the policy of a new job. Else declare the arms unpaired.",
)


@decides_as(INCONCLUSIVE, DATA_ORDER_MISMATCH)
def _other_batches(m: Measurements) -> str | None:
    if m.arms.share_seeds and (m.batches_proven or _broke(m)):
        return None
    return _data_order(m)


@decides_as(INCONCLUSIVE, ORDER_UNSHOWN)
def _order_nowhere_shown(m: Measurements) -> str | None:
    if m.batches_proven:
        return None
    return _order_unshown(m)


def _order_unshown(m: Measurements) -> str | None:
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


@decides_as(INCONCLUSIVE, ROUNDED)
def _rounding_hides_pairing(m: Measurements) -> str | None:
    if not _rounding_explains(m):
        return None
    return (
        f"Losses are rounded to {m.resolution.quantum:.2g} nats, coarser than the batch noise: it "
        "can't show whether the data is the same."
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


ARM_AVERAGED = ReasonCode(
    "ARM_AVERAGED",
    "input",
    means="the batch noise of one arm is less than half or more than twice that of the other",
    detail="then one log holds averages and the other single steps, or an arm is unstable",
    next_step="Log the raw loss of single steps in both arms, or means over the same steps in "
    "both.",
)


@decides_as(INCONCLUSIVE, ARM_AVERAGED)
def _averaging_hides_pairing(m: Measurements) -> str | None:
    if _pairing_unseen(m) and not m.batches_proven and not _broke(m):
        return _arm_averaged(m)
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
        and _gap_exceeds(m) is not None
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


@decides(
    INCONCLUSIVE,
    "BASELINE_INVALID",
    "finite losses",
    means="the baseline has NaN or infinite losses at its end, or 3 and 1 % of its points",
    next_step="Fix the baseline first: nothing can be compared with it.",
)
def _baseline_invalid(m: Measurements) -> str | None:
    return _nonfinite(m, baseline=True)


@decides(
    INCONCLUSIVE,
    "LOSS_NOT_NATS",
    "input",
    means="the loss is not a cross-entropy in nats, so relative margins and run-to-run noise mean "
    "nothing",
    next_step="Give the cross-entropy per token in nats, state --loss-unit other for a loss such "
    "as a mean squared error, or state the "
    "margin and the run-to-run noise of both arms in absolute units.",
    next_step_of_job="Report the cross-entropy per token in nats, or write loss_unit: other for a "
    "loss such as a mean squared error, "
    "or the margin and the run-to-run noise of both arms in absolute units, into the policy of a "
    "new job.",
)
def _not_nats(m: Measurements) -> str | None:
    if m.policy.loss_unit == "nats" and (run := in_bits(m.arms.runs)) is not None:
        return (
            f"The losses of {run.label or 'a run'} are bits per token, as their perplexities show; "
            "expected nats (bits x 0.6931)."
        )
    if m.statistics is None:
        return None
    level = m.statistics.baseline.level
    absolute = m.statistics.margin is not None and m.policy.is_absolute
    words = None if absolute else no_relative_margin(level, m.policy)
    if not words:
        return None
    return f"The baseline's loss in the window is {level:.4g}; {words}."


def no_relative_margin(level: float, policy: Policy) -> str | None:
    """Why no share of a loss at this level says how good a model is; None where one does."""
    if policy.loss_unit == "other":
        if level > 0.0:
            return None
        return "expected a loss above 0, of which a margin can be a share"
    if MIN_LEVEL_NATS <= level <= MAX_LEVEL_NATS:
        return None
    return (
        f"expected a cross-entropy in nats, {MIN_LEVEL_NATS:g} to {MAX_LEVEL_NATS:g}, of which "
        "margin and run-to-run noise can be shares"
    )


@decides(
    INCONCLUSIVE,
    "LOSS_CONSTANT",
    "input",
    means="a run's loss is one value over the whole window",
    next_step="Check that the right column was read: a training loss varies from step to step.",
)
def _constant(m: Measurements) -> str | None:
    part = m.window.part(m.aligned.steps)
    if part.stop - part.start < 2:
        return None
    for arm, losses in (
        (m.arms.baseline, m.aligned.baseline),
        (m.arms.candidate, m.aligned.candidate),
    ):
        for run in losses[:, part]:
            if run.min() == run.max():
                return (
                    f"The loss of {arm.name} is {run[0]:.6g} at every step of the window; a "
                    "training loss varies from step to step."
                )
    return None


@decides(
    INCONCLUSIVE,
    "STEPS_TOO_LARGE",
    "input",
    means="the steps of a run exceed what any training counts",
    detail="so they are neither steps nor tokens",
    next_step="Name the column that counts optimizer steps, with --column step=NAME.",
    next_step_of_job="Report optimizer steps, counted alike in both arms.",
)
def _steps_too_large(m: Measurements) -> str | None:
    last = max((int(run.steps[-1]) for run in m.arms.runs if len(run.steps)), default=0)
    if last <= MAX_COUNTED:
        return None
    return (
        f"A run's last step is {last:,}; no training counts beyond {MAX_COUNTED:,}, in steps or in "
        "tokens."
    )


@decides(
    FAIL,
    "NONFINITE_CAND",
    "finite losses",
    means="the candidate has NaN or infinite losses at its end, or 3 and 1 % of its points",
)
def _nonfinite_candidate(m: Measurements) -> str | None:
    return _nonfinite(m, baseline=False)


def _nonfinite(m: Measurements, *, baseline: bool) -> str | None:
    arm = m.arms.baseline if baseline else m.arms.candidate
    bad = arm.nonfinite
    if not bad.fails:
        return None
    where = (
        "and a run ends in one" if bad.at_end else f"{percent(bad.worst_share)} of a run's steps"
    )
    losses = count(bad.count, "NaN, infinite or blank loss", "NaN, infinite or blank losses")
    return f"{arm.name} has {losses} from step {bad.first_step:,} on, {where}."


@decides(
    FAIL,
    "DIVERGED",
    "stability",
    means="the gap ends far above the margin and above its own first half",
)
@with_margin
def _diverged(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not diverged_late(s.spikes.masked_gap, margin.nats):
        return None
    if (
        _data_order(m) is not None
        or _order_unshown(m) is not None
        or (not s.end.above and s.end.rise <= s.end.limit)
    ):  # other batches, or noise alone, can do that
        return None
    if not diverged_late(_without_averages(m, s), margin.nats):
        return None
    return (
        f"{m.arms.candidate.name} diverges late: over the last tenth of the window its gap is "
        f"above 3 x {_nats(m, margin)} nats."
    )


@decides(
    FAIL,
    "CANDIDATE_UNSTABLE",
    "stability",
    means="the candidate alone spikes, over more than a tenth of the window, and with its spikes "
    "the interval is above the margin",
)
@with_margin
def _candidate_unstable(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.spikes.masked_share <= MAX_MASKED_SHARE or not s.spikes.candidate_alone:
        return None
    with_spikes = _nominal_bounds(m)[0] + s.raw_gap_candidate - s.interval.mean
    if with_spikes <= margin.nats:  # bumps with a small mean effect block a pass: UNSTABLE
        return None
    spikes = (
        f"{m.arms.candidate.name} has {count(s.spikes.candidate, 'spike')}, {m.arms.baseline.name} "
        f"{s.spikes.baseline}"
    )
    return f"{spikes}; they cover {percent(s.spikes.masked_share)} of the window."


LEARNING_RATES_DIFFER = ReasonCode(
    "LEARNING_RATES_DIFFER",
    "same ground",
    means="the recorded learning rates of two runs differ by more than their rounding",
    detail="after the warm-up and by more than 1 % of the peak it decides before a gap does",
    next_step="Train all runs with one schedule, or list learning_rate in the policy's may_differ "
    "where it is part of the recipe.",
)
CONFOUNDED = ReasonCode(
    "CONFOUNDED",
    "same ground",
    means="the arms differ in more than the recipe",
    detail="where it is the data, the model, its start, batches or schedule, which could explain "
    "a gap, it decides before the gap does",
    next_step="Train all runs on the same engine, device class, data and code, so that only the "
    "recipe differs.",
)
START_DIFFERS = ReasonCode(
    "START_DIFFERS",
    "same ground",
    means="the first losses differ by more than 1.5 %, although both logs begin with the first "
    "step",
    detail="a candidate that begins worse on the same batches from loaded weights (start: loaded) "
    "is no such case",
    next_step="Check that both arms start from the same initialization and batch, and log the "
    "same loss.",
)


@decides_as(INCONCLUSIVE, LEARNING_RATES_DIFFER)
def _rates_explain_a_gap(m: Measurements) -> str | None:
    if (
        m.compares != RECIPE
        or LEARNING_RATE in m.policy.may_differ
        or not rates_could_explain_a_gap(m.arms.runs)
    ):
        return None
    return _rates_differ(m)


@decides_as(INCONCLUSIVE, CONFOUNDED)
def _context_explains_a_gap(m: Measurements) -> str | None:
    if m.compares != RECIPE or not explaining(m.differing_context):
        return None
    return _confounded(m)


@decides_as(INCONCLUSIVE, START_DIFFERS)
@with_margin
def _start_explains_a_gap(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
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
    return _start_differs(m)


@decides(
    INCONCLUSIVE,
    "MARGIN_UNDETERMINED",
    "run-to-run noise",
    means="the noise-floor margin has no measured run-to-run noise, or one baseline run lies "
    "apart, or a margin in tokens has no slope",
    next_step="Add baseline reruns as replicates or with --control, look at a run that lies apart, "
    "state the slope of a margin in "
    "tokens, or choose another margin.",
    next_step_of_job="Add replicates or controls of the baseline, look at a run that lies apart, "
    "state the slope of a margin in "
    "tokens, or choose another margin.",
)
def _margin_undetermined(m: Measurements) -> str | None:
    if m.statistics is None or m.statistics.margin is not None:
        return None
    if (
        m.policy.margin is not None
        and m.policy.margin.unit == "tokens"
        and isinstance(m.statistics.token_slope, NoSlope)
    ):
        return (
            f"A margin of {m.policy.margin} is no amount in nats yet: "
            f"{m.statistics.token_slope.why}."
        )
    if m.statistics.floors[0].one_apart:
        return (
            "The noise-floor margin has no yardstick: one run of the baseline ends far from the "
            "others, further than their spread explains."
        )
    return (
        "The noise-floor margin needs measured run-to-run noise of the baseline: at least 4 "
        "baseline runs or controls of one seed."
    )


@decides(
    INCONCLUSIVE,
    "RUN_NOISE_UNKNOWN",
    "run-to-run noise",
    means="nothing is assumed about the run-to-run noise of such a model, and it is neither "
    "measured nor borrowed",
    detail="on record are a model below 10 million parameters, an encoder (BERT, T5), binary "
    "weights, or engine emulated",
    next_step="Add replicates to both arms, or controls of the baseline, until 4 degrees of "
    "freedom are measured; or name a family of "
    "reruns that is like these runs (--family, with --noise-table for a table of your own).",
    next_step_of_job="Add replicates to both arms, or controls of the baseline, until 4 degrees of "
    "freedom are measured; or name a "
    "family of reruns that is like these runs (family in the job file).",
)
def _noise_unknown(m: Measurements) -> str | None:
    declared = None not in m.policy.run_floors
    if (
        m.without_assumed_floor is None
        or m.statistics is None
        or not m.statistics.noise_is_assumed
        or declared
    ):
        return None
    return noise_unknown(m.without_assumed_floor)


def noise_unknown(record: str) -> str:
    """That nothing is assumed of the run-to-run noise of such models, by what the record says of
    them.
    """
    return (
        f"The record says {record}: nothing is assumed about how much such runs differ, and it was "
        "not measured."
    )


@decides(
    FAIL,
    "GAP_EXCEEDS_MARGIN",
    "gap against margin",
    means="the lower end of the interval is above the margin",
)
@with_margin
def _gap_exceeds(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    bounds = _nominal_bounds(m)
    if s.n < POINTS_TO_FAIL or not bounds[0] - _averages_explain(m, s) > margin.nats:
        return None
    words = interval_words(*bounds, _decimals(m, margin))
    as_of_step = "" if m.schedule.finished else f" as of step {m.schedule.step:,}"
    return (
        f"The whole interval ({words}) is above the margin of {_nats(m, margin)} nats{as_of_step}."
    )


@decides(
    FAIL,
    "ENDS_ABOVE_MARGIN",
    "gap against margin",
    means="the last quarter or half of the window lies above the margin",
    detail="the interval of its mean gap does",
)
@with_margin
def _ends_above(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not s.end.above:
        return None
    if m.lift is not None and not late_part_above(
        _without_averages(m, s), s.interval, margin.nats, (m.policy.confidence, m.policy.confidence)
    ):
        return None
    where = f"the last quarter or half of the window is above the margin of {_nats(m, margin)} nats"
    return (
        f"{m.arms.candidate.name} ends too high: {where}, although the interval over the whole "
        "window is not."
    )


def _without_averages(m: Measurements, s: WindowStatistics) -> FloatArray:
    """The gap series (n,) without what averages in the candidate's log could add to it."""
    gap: FloatArray = s.spikes.masked_gap
    if m.lift is not None:
        gap = gap - interpolate(m.lift, s.spikes.mask)
    return gap


def _averages_explain(m: Measurements, s: WindowStatistics) -> float:
    """How much of the mean gap averages in the candidate's log could explain, nats."""
    return max(0.0, float((s.spikes.masked_gap - _without_averages(m, s)).mean()))


@decides(
    INCONCLUSIVE,
    "UNSTABLE",
    "stability",
    means="spikes cover more than a tenth of the window",
    next_step="Find the cause of the spikes in both arms, or train with a lower learning rate.",
)
def _unstable(m: Measurements) -> str | None:
    if m.statistics is None or m.statistics.spikes.masked_share <= MAX_MASKED_SHARE:
        return None
    s = m.statistics.spikes
    return (
        f"Spikes cover {percent(s.masked_share)} of the window (baseline {s.baseline}, candidate "
        f"{s.candidate}); 10 % at most."
    )


decides_as(INCONCLUSIVE, ORDER_UNSHOWN)(_order_unshown)


@decides_as(INCONCLUSIVE, DATA_ORDER_MISMATCH)
def _data_order(m: Measurements) -> str | None:
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
        if _better(m) is None:
            return None
        return (
            f"The batch noise of the arms correlates only {m.r_pair:.2f} (above 0.9 expected), and "
            "the candidate is better by the margin "
            "or more: other data explains both."
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


@decides(
    INCONCLUSIVE,
    "TOO_FEW_STEPS",
    "plan and window",
    means="too few common steps in the window",
    detail="of training losses a pass needs 12, a fail 8",
    next_step="Log the loss more often: at every step where the run is short. Held-out losses "
    "need fewer: --loss-is validation.",
    next_step_of_job="Log the loss more often: at every step where the run is short.",
)
def _too_few(m: Measurements) -> str | None:
    points = m.statistics.n if m.statistics else 0
    if points >= m.policy.min_points:
        return None
    strides = [max(run.completeness.stride or 1 for run in arm.runs) for arm in m.arms.both]
    if strides[0] != strides[1]:
        every = f"the arms are logged every {strides[0]:,} and {strides[1]:,} steps"
        return (
            f"The window has {count(points, 'common step')}: {every}. Log both at the same steps."
        )
    whole = round(m.policy.min_points / m.policy.window_fraction)
    return (
        f"The window has {count(points, 'common step')}; a pass needs {m.policy.min_points}, so "
        f"about {whole:,} logged steps in all."
    )


@decides_as(INCONCLUSIVE, CONFOUNDED)
def _confounded(m: Measurements) -> str | None:
    if not m.differing_context:
        return None
    named = [
        _DIGEST.sub(lambda digest: digest[0][:DIGEST_SHOWN], entry) for entry in m.differing_context
    ]
    return f"The runs differ in more than the {m.compares}: {first_few(named, KEYS_SHOWN, '; ')}."


@decides_as(INCONCLUSIVE, LEARNING_RATES_DIFFER)
def _rates_differ(m: Measurements) -> str | None:
    if LEARNING_RATE in m.policy.may_differ:
        return None
    worst = differing_rates(m.arms.runs)
    if worst is None:
        return None
    where = f"at step {worst.step:,} {worst.rate:.3g} against {worst.reference:.3g}"
    return (
        f"The learning rates of the runs differ: {where}, and at {count(worst.steps, 'step')} of "
        f"{worst.logged:,} in all."
    )


@decides(
    INCONCLUSIVE,
    "ARMS_IDENTICAL",
    "input",
    means="the candidate's curve is a copy of the baseline's",
    detail="with other digits, thinned out, scaled, averaged, with little noise added, or equal "
    "at 10 points in a row",
    next_step="Check that one file was not given twice, and that the candidate really trained "
    "with its recipe.",
)
def _arms_identical(m: Measurements) -> str | None:
    if m.resemblance is None:
        return None
    resemblance = (
        f"The losses of {m.arms.candidate.name} and {m.arms.baseline.name} are {m.resemblance}"
    )
    recipes = {m.arms.baseline.recipe, m.arms.candidate.recipe}
    if len(recipes - {None}) == 1:
        return (
            f"{resemblance}: one of two equal recipes may be a copy of the other, or both trained "
            "alike."
        )
    return f"{resemblance}; runs of two recipes part at the first step."


@decides(
    INCONCLUSIVE,
    "RECIPE_CONTRADICTED",
    "same ground",
    means="an arm is named after one precision, or stated to have it, and its runs recorded "
    "another one",
    next_step="Check that the arms are not swapped, and correct the arm's name or its recipe.",
)
def _recipe_contradicted(m: Measurements) -> str | None:
    return recipe_contradicted(*((arm.name, arm.runs) for arm in m.arms.both))


def recipe_contradicted(*arms: tuple[str, Sequence[Curve]]) -> str | None:
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


@decides(
    INCONCLUSIVE,
    "TREATMENT_UNSHOWN",
    "same ground",
    means="the arms begin with equal losses, as reruns of one recipe do, although their recipes "
    "differ",
    detail="where the first step is logged with four decimals or more, and the loss is not ln V "
    "of a model that starts at zero",
    next_step="Check that the candidate trained with its recipe from the first step on. If its "
    "first steps are meant to run in another "
    "precision, record that: --context NAME:start_precision=bf16.",
    next_step_of_job="Check that the candidate trained with its recipe from the first step on. If "
    "its first steps are meant to run in "
    "another precision, record that in the run's manifest (start_precision: bf16).",
)
def _treatment_unshown(m: Measurements) -> str | None:
    start = m.equal_start
    if start is None or m.resemblance is not None:
        return None
    recipes = f"{m.arms.baseline.recipe} and {m.arms.candidate.recipe}"
    return (
        f"Both arms begin with a loss of {start.loss:.7g} at step {start.step}; {recipes} give "
        "different losses from the first step on."
    )


@decides(
    INCONCLUSIVE,
    "END_DIFFERS",
    "stability",
    means="the last steps depart from the rest of the window, far enough to cross the margin",
    next_step="Train on until it is clear whether the last steps are a spike or a divergence.",
)
@with_margin
def _end_differs(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not s.end.differs:
        return None
    end, decimals = s.end, _decimals(m, margin)
    if abs(end.rise) <= end.limit:
        return (
            f"The gap ends at the margin of {_nats(m, margin)} nats or above it, although its mean "
            "over the window is below."
        )
    if end.rise > 0.0:
        what = "an unfinished spike or a divergence"
    else:
        what = f"a spike or divergence of {m.arms.baseline.name}, or a sudden gain"
    steps = "last point" if end.points == 1 else f"last {end.points:,} points"
    return (
        f"Over the {steps} the gap is {signed(end.gap, decimals)} nats, "
        f"{signed(end.rise, decimals)} from the window before it "
        f"(noise allows {end.limit:.{decimals}f}): {what}."
    )


@decides(
    INCONCLUSIVE,
    "ARMS_SHARE_START",
    "same ground",
    means="a run of the candidate went on from a run of the baseline",
    detail="equal losses over the first tenth of the plan or more",
    next_step="Train the candidate from step 0: a run that began in the baseline's precision does "
    "not show that its own converges.",
)
def _arms_share_start(m: Measurements) -> str | None:
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


@decides(
    INCONCLUSIVE,
    "BETTER_THAN_BASELINE",
    "gap against margin",
    means="the candidate is better by the margin or more",
    detail="a lower precision seldom is: the arms may be swapped, or differ in data, model or loss",
    next_step="Check that the arms are not swapped, then look for a difference in data, model or "
    "evaluation between them.",
)
@with_margin
def _better(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if not (_nominal_bounds(m)[1] < 0.0 and s.interval.mean <= -margin.nats):
        return None
    better = (
        f"{m.arms.candidate.name} is better than {m.arms.baseline.name} by the margin or more "
        f"({_interval(m, margin)})"
    )
    if m.compares != RECIPE:
        return (
            f"{better}: a gain, or other data, another loss or targets that leak, which the losses "
            "cannot tell apart."
        )
    return f"{better}. Are the arms swapped? {_agreement(m)}"


def _agreement(m: Measurements) -> str:
    """What the record says of a difference other than the recipe."""
    if m.differing_context:
        return f"Their records differ in {count(len(m.differing_context), 'fact')}."
    facts = shared_facts(m.arms.runs)
    if not facts:
        return "Nothing else is on record of how they trained."
    return f"All {facts:,} recorded facts agree." if facts > 1 else "The one recorded fact agrees."


@decides_as(INCONCLUSIVE, START_DIFFERS)
def _start_differs(m: Measurements) -> str | None:
    if m.mismatch.start is None or m.policy.pairing == "unpaired" or _costs_precision_at_first(m):
        return None
    side = "above" if m.mismatch.start > 0.0 else "below"
    return (
        f"The first loss of {m.arms.candidate.name} is {percent(abs(m.mismatch.start))} {side} "
        f"that of {m.arms.baseline.name}."
    )


@decides(
    INCONCLUSIVE,
    "START_OFFSET",
    "same ground",
    means="the candidate's first loss is lower than recipes explain, by half the margin or more",
    detail="by 0.6 % of the loss; a further term in the baseline's loss does that, and hides a "
    "gap of its size",
    next_step="Check that both arms log the same terms: the cross-entropy per token alone, "
    "without z-loss or router losses.",
)
@with_margin
def _start_offset(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
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
        f"({percent(-offset.share)}) below that of "
        f"{m.arms.baseline.name}, more than a recipe explains: a further term in the baseline's "
        "loss would hide as large a gap."
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


@decides(
    INCONCLUSIVE,
    "RUN_ABOVE_MARGIN",
    "stability",
    means="one run of the candidate alone is above the margin by more than noise",
    detail="against the baseline's run of its seed, over the window or its last half",
    next_step="Find out what happened in that run: a recipe that sometimes diverges is not at "
    "parity on average.",
)
def _run_above(m: Measurements) -> str | None:
    if m.worst_run is None or not m.worst_run.is_above:
        return None
    worst, decimals = m.worst_run, nats_decimals(m.worst_run.limit)
    run = f"Run {worst.label} of {m.arms.candidate.name}"
    return (
        f"{run} alone is {worst.gap:.{decimals}f} nats worse; margin and noise allow "
        f"{worst.limit:.{decimals}f}."
    )


@decides(
    INCONCLUSIVE,
    "ROLLED_BACK",
    "stability",
    means="a run of the candidate had risen by more than 5 % of the loss before it went back to "
    "an earlier step",
    detail="the log has the steps that were overwritten",
    next_step="Find out why that run rose: a recipe that has to be rolled back is not at parity, "
    "whatever it reaches afterwards.",
)
def _rolled_back(m: Measurements) -> str | None:
    if not m.statistics:
        return None
    return rolled_back(m.arms.candidate.name, m.arms.candidate.runs, m.statistics.baseline.level)


def rolled_back(candidate: str, runs: Sequence[Curve], level: float) -> str | None:
    """How much higher losses were that a run of the candidate overwrote, where that is much of the
    baseline's `level`; else None.
    """
    risen = max(run.completeness.rolled_back for run in runs)
    if risen <= ROLLED_BACK * abs(level):
        return None
    if risen > MAX_LEVEL_NATS:
        height = "NaN, infinite or above 1,000,000"
    else:
        height = f"{risen:.3f} nats above those that replaced them"
    return (
        f"A run of {candidate} went back to an earlier step; the losses that it overwrote are "
        f"{height}."
    )


@decides(
    INCONCLUSIVE,
    "GRAD_NORM_APART",
    "stability",
    means="the gradient norms of the arms differ by a factor of 10 or more over the window",
    detail="unless the policy's may_differ lists grad_norm",
    next_step="Check what each arm logs (before clipping, over all ranks); if it is the same, the "
    "candidate's gradients are not "
    "those of the baseline. List grad_norm in may_differ where the arms log different norms.",
)
def _grad_norm_apart(m: Measurements) -> str | None:
    if GRAD_NORM in m.policy.may_differ:
        return None
    ratio = norm_ratio(*m.arms.both_runs, m.aligned.steps[m.window.part(m.aligned.steps)])
    if ratio is None or 1.0 / NORMS_APART < ratio < NORMS_APART:
        return None
    return (
        f"The gradient norm of {m.arms.candidate.name} is {ratio:.3g} times that of "
        f"{m.arms.baseline.name} over the window."
    )


@decides(
    INCONCLUSIVE,
    "SHORT_RERUN_DIVERGED",
    "finite losses",
    means="a rerun that was stopped early ends more than 3 % above its arm, or has NaN or infinite "
    "losses at its end or in more than "
    "1 % of its steps",
    next_step="Find out why that rerun diverged: a recipe that sometimes diverges is not at "
    "parity on average.",
)
def _short_rerun_diverged(m: Measurements) -> str | None:
    diverged = [label for early in m.early for label in early.diverged]
    if not diverged:
        return None
    return f"{count(len(diverged), 'short rerun')} diverged: {'; '.join(diverged)}."


@decides(
    INCONCLUSIVE,
    "GAP_GROWING",
    "late phase",
    means="the gap rises, and would reach the margin if it went on",
    next_step="Find what drives the gap: where it still grows at the end of the schedule, more "
    "steps of the same kind do not close it.",
)
@with_margin
def _gap_growing(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if (
        not s.drift - DRIFT_Z * s.drift_se > 0.0
        or not s.interval.mean + DRIFT_REACH * s.drift > margin.nats
    ):
        return None
    where = "and is above" if s.interval.mean > margin.nats else "toward"
    return (
        f"The gap is growing: by {s.drift:+.4f} nats over the window, {where} the margin of "
        f"{_nats(m, margin)}."
    )


@decides_as(INCONCLUSIVE, BEYOND_PLAN)
def _beyond_plan(m: Measurements) -> str | None:
    beyond, s = beyond_plan(*m.arms.both_runs, m.window), m.statistics
    if beyond is None or s is None:
        return None
    worse = s.margin is not None and beyond.is_worse(s.candidate.level, s.margin.nats, s.sigma_step)
    longer = beyond.share > MAX_BEYOND and not m.window.unreached
    if worse or longer:
        return goes_beyond_plan(m)
    return None


@decides(
    INCONCLUSIVE,
    "DOWNSAMPLED",
    "input",
    means="a series is a sample of its run, or has a hole in the window",
    next_step="Give the full series: exports of dashboards are samples of the run.",
)
def _downsampled(m: Measurements) -> str | None:
    if m.resolution.coverage >= MIN_COVERAGE:
        if m.resolution.hole <= MAX_HOLE:
            return None
        return (
            f"A log has a hole of {percent(m.resolution.hole)} of the window: what is not logged "
            "can't be compared."
        )
    return (
        f"A series is a sample of its run: the window has {percent(m.resolution.coverage)} of the "
        "steps that its logging interval gives."
    )


@decides(
    INCONCLUSIVE,
    "POINTS_IN_ONE_ARM",
    "input",
    means="one arm alone lacks 3 % of the window's points, or 1.5 % that follow each other",
    detail="three at least; what was not logged there may be spikes or a divergence",
    next_step="Give the steps that the log lacks: export the run again, or train it again from "
    "the checkpoint before them.",
)
def _points_in_one_arm(m: Measurements) -> str | None:
    part = m.window.part(m.aligned.steps)
    for arm, lacking in zip(m.arms.both, m.lacking, strict=True):
        grid = part.stop - part.start + lacking.points
        if lacking.longest >= max(FEWEST_LACKING, HOLE_IN_ONE_ARM * grid):
            points = f"{count(lacking.longest, 'point')} that follow each other"
        elif lacking.points >= max(FEWEST_LACKING, LACKING_IN_ONE_ARM * grid):
            points = count(lacking.points, "point")
        else:
            continue
        return (
            f"The log of {arm.name} alone lacks {points} in the window: what happened there is not "
            "known."
        )
    return None


@decides(
    INCONCLUSIVE,
    "LOSSES_NOT_LOGGED",
    "input",
    means="the source of an arm has steps of training without a loss, where the other arm has "
    "losses",
    next_step="Export the loss at every step at which it was logged; a loss that is NaN is "
    "written as nan.",
)
def _losses_not_logged(m: Measurements) -> str | None:
    return without_losses([(arm.name, arm.runs) for arm in m.arms.both])


@decides(
    INCONCLUSIVE,
    "LINES_UNREAD",
    "input",
    means="more than 0.1 % of a log's lines look like those that were read, and were not read",
    detail="three at least",
    next_step="Give a pattern that finds all of them (--pattern REGEX), such as one that allows "
    "blanks before a number, or export CSV.",
    next_step_of_job="Report the losses with parity.Run, or print every step in one form.",
)
def _lines_unread(m: Measurements) -> str | None:
    return unread_lines([(arm.name, arm.runs) for arm in m.arms.both])


@decides_as(INCONCLUSIVE, LOG_STARTS_LATE)
def _starts_near_the_window(m: Measurements) -> str | None:
    """A run that went on from the other arm's checkpoint near the window shows little of its own
    recipe.
    """
    first = max((int(run.steps[0]) for run in m.arms.runs if len(run.steps)), default=0)
    if first > m.window.first - NEAR_WINDOW * (m.window.last - m.window.first + 1):
        window = f"the window, which begins at {m.window.first:,}"
        return (
            f"A log begins at step {first:,}, near {window}: a run that went on from the other's "
            "checkpoint looks so."
        )
    if m.parts_late:
        return (
            f"Both logs begin late, at step {first:,}, with nearly equal losses, and part from "
            "there, as a fork of one run does."
        )
    return None


@decides_as(INCONCLUSIVE, NONFINITE_DROPPED)
def _nonfinite_dropped(m: Measurements) -> str | None:
    bad, name = m.arms.candidate.nonfinite, m.arms.candidate.name
    if not bad.blocks:
        return None
    return (
        f"A run of {name} has NaN or infinite losses at {percent(bad.worst_share)} of its points, "
        f"from step {bad.first_step:,} on."
    )


@decides_as(INCONCLUSIVE, ARM_AVERAGED)
def _arm_averaged(m: Measurements) -> str | None:
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


@decides_as(INCONCLUSIVE, SMOOTHED)
def _smoothed(m: Measurements) -> str | None:
    if m.resolution.smoothing < SMOOTHED_WEIGHT or m.resolution.memory_share <= MAX_LAG_SHARE:
        return None
    return (
        f"A series is smoothed (weight about {m.resolution.smoothing:.2f}) over more than 5 % of "
        "the window. Use the raw loss."
    )


@decides_as(INCONCLUSIVE, ROUNDED)
@with_margin
def _rounding_hides(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    _, hi = _bounds(m)
    if (
        m.resolution.rounding == 0.0
        or hi + m.resolution.rounding < margin.nats
        or hi >= margin.nats
    ):
        return None
    return (
        f"Losses are rounded to {m.resolution.quantum:.2g}: that can move the gap by "
        f"{m.resolution.rounding:.2g} nats, across the margin."
    )


@decides(
    INCONCLUSIVE,
    "SPIKES_HIDE_GAP",
    "stability",
    means="only without the candidate's spikes is the interval below the margin",
    next_step="Find the cause of the candidate's spikes: with them the gap may be above the "
    "margin.",
)
@with_margin
def _spikes_hide(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.spikes.masked_share == 0.0 or _within_margin(m) is None:
        return None
    _, hi = _bounds(m)
    spikes = s.raw_gap_candidate - s.interval.mean
    if hi + spikes < margin.nats:
        return None
    decimals = _decimals(m, margin)
    return (
        f"The spikes of {m.arms.candidate.name} add {spikes:.{decimals}f} nats to the gap: with "
        "them the interval reaches "
        f"{signed(hi + spikes, decimals)}, across the margin."
    )


@decides_as(INCONCLUSIVE, VALIDATION_LOSS_WORSE)
@with_margin
def _validation_before(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    """The last evaluation before the window, where the window has none in common; `checks` looks at
    those of the window.
    """
    if m.policy.validation != "veto":
        return None
    before = gap_before_window(*m.arms.both_runs, m.window, s.interval.run, m.policy.confidence)
    if before is None or before[1] <= margin.nats:
        return None
    where = f"At step {before[0]:,}, the last common evaluation,"
    return (
        f"{where} the validation gap is at least {before[1]:+.4f} nats, above the margin of "
        f"{_nats(m, margin)}."
    )


@decides_as(INCONCLUSIVE, ROUNDED)
@with_margin
def _margin_of_few_digits(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    """Batch noise wider than a printed step averages the rounding away, so that a long curve shows
    less than a step.
    """
    printed = m.resolution.quantum
    if m.policy.is_absolute or printed <= s.sigma_step or _within_margin(m) is None:
        return None
    if margin.nats < MIN_PRINTED_STEPS * printed:
        return few_digits(margin, printed)
    return None


def few_digits(margin: Margin, printed: float) -> str:
    """The sentence for a relative margin below 4 steps of the losses as they are printed (nats)."""
    return (
        f"The margin of {margin.nats:.2g} is below {MIN_PRINTED_STEPS} steps of {printed:.2g}, to "
        "which the losses are printed: expected "
        "more digits, or a margin and run-to-run noise in absolute units."
    )


@decides_as(INCONCLUSIVE, decision.TOO_FEW_RUNS)
def _single_runs_of_another_loss(m: Measurements) -> str | None:
    if (
        m.policy.loss_unit != "other"
        or min(len(m.arms.baseline.runs), len(m.arms.candidate.runs)) > 1
        or _within_margin(m) is None
    ):
        return None
    return ANOTHER_LOSS


ANOTHER_LOSS = (
    "The loss is no cross-entropy, so its run-to-run noise cannot be assumed from cross-entropies: "
    "a pass needs two runs per arm."
)


@decides_as(INCONCLUSIVE, RUN_NOISE_ASSUMED)
def _noise_rejected(m: Measurements) -> str | None:
    if m.policy.assumed_noise != "reject":
        return None
    return noise_assumed(m)


@decides(
    INCONCLUSIVE,
    "MARGIN_WIDE",
    "gap against margin",
    means="the margin is above 5 % of the loss, and the policy does not say that this is meant",
    next_step='State a smaller margin, such as "1%", or wide_margin: accept in the policy.',
)
@with_margin
def _margin_wide(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if margin.rel <= WIDE_MARGIN or m.policy.wide_margin == "accept" or _within_margin(m) is None:
        return None
    return f"The margin of {_nats(m, margin)} nats is {percent(margin.rel)} of the loss."


@decides_as(INCONCLUSIVE, AS_OF)
def _passes_as_of(m: Measurements) -> str | None:
    would_pass = m.identical is not None or _within_margin(m) is not None
    if m.policy.as_of != "accept" and would_pass:
        return as_of(m)
    return None


@decides_as(PASS, IDENTICAL)
def _identical(m: Measurements) -> str | None:
    if m.identical is None:
        return None
    names = f"{m.arms.candidate.name} trains exactly as {m.arms.baseline.name} does"
    return (
        f"{names}: {count(m.identical.runs, 'run is', 'runs are')} equal at each of "
        f"{m.identical.steps:,} logged steps."
    )


@decides(
    PASS,
    "WITHIN_MARGIN",
    "gap against margin",
    means="the upper end of the interval is below the margin",
)
@with_margin
def _within_margin(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    lo, hi = _bounds(m)
    if not hi < margin.nats or (m.policy.two_sided and not lo > -margin.nats):
        return None
    return (
        f"The upper end of the interval ({_interval(m, margin)}) is below the margin of "
        f"{_nats(m, margin)} nats."
    )


@decides(
    INCONCLUSIVE,
    "CI_STRADDLES_MARGIN",
    "gap against margin",
    means="the interval contains the margin",
    detail="the advice says which runs or steps would decide",
)
@with_margin
def _straddles(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if _within_margin(m) or _gap_exceeds(m) or _better(m):
        return None
    return f"The interval ({_interval(m, margin)}) straddles the margin of {_nats(m, margin)} nats."


def _bounds(m: Measurements) -> tuple[float, float]:
    """The interval that decides, at the confidence of this look and candidate."""
    return m.bounds or NOT_KNOWN


@computed_once
def _nominal_bounds(m: Measurements) -> tuple[float, float]:
    """The interval of a fail and of a veto: further looks and candidates must not make either
    harder to reach.
    """
    if m.statistics:
        return m.statistics.interval.bounds(m.policy.confidence)
    return NOT_KNOWN


def _interval(m: Measurements, margin: Margin) -> str:
    return interval_words(*_bounds(m), _decimals(m, margin))


def _nats(m: Measurements, margin: Margin) -> str:
    return f"{margin.nats:.{_decimals(m, margin)}f}"


def _decimals(m: Measurements, margin: Margin) -> int:
    """Decimals of all nats in the sentences, so that no end of the interval is printed on another
    side of zero or the margin.
    """
    return nats_decimals(margin.nats, *_bounds(m))


def table() -> tuple[tuple[State | None, ReasonCode], ...]:
    """Every reason code once, with the state that it decides: rows in their order, checks,
    validation, evaluations, then warnings (None).
    """
    checks = [
        row
        for fails, opens in CHECK_CODES.values()
        for row in ((FAIL, fails), (INCONCLUSIVE, opens))
    ]
    rows: list[tuple[State | None, ReasonCode]] = [
        *((state, entry) for state, entry, _ in _TABLE),
        *checks,
    ]
    rows.append((INCONCLUSIVE, VALIDATION_LOSS_WORSE))
    rows += [(INCONCLUSIVE, entry) for entry in decision.DECIDING]
    rows += [(None, entry) for entry in (*WARNING_CODES, *decision.WARNINGS)]
    first: dict[str, tuple[State | None, ReasonCode]] = {}
    for state, entry in rows:
        first.setdefault(entry.code, (state, entry))
    return tuple(first.values())


RULES: tuple[str, ...] = tuple(rule.__name__.lstrip("_") for _, _, rule in _TABLE)
"""The rules by name, in the order in which they decide."""
BY_CODE: Mapping[str, ReasonCode] = {entry.code: entry for _, entry in table()}
FAILING = frozenset(entry.code for state, entry in table() if state == FAIL)
"""The codes that decide a fail."""
