"""Which rule comes before which: the first one that holds decides.

Afterwards `checks` may take back a pass. The order is data, in groups, and each group says why it
stands where it does. `tests/parity/judging/precedence` has a case for each pair of rules that can
hold at once; who adds a rule adds it here, its function to a file of `rules`, and its code to
`codes`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from parity.judging import codes
from parity.judging.codes import ReasonCode
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, State
from parity.judging.measurements import Measurements
from parity.judging.rules import comparability, inputs, margin, noise, plan, stability, warnings
from parity.judging.ruling import Ruling, Warned


class RulingGroup(NamedTuple):
    """Rows that stand together, and why they stand before those of the next groups."""

    about: str
    because: str
    rows: tuple[Ruling[Measurements], ...]


GROUPS: tuple[RulingGroup, ...] = (
    RulingGroup(
        "Nothing was trained, or something else than what is asked.",
        "Without steps nothing can be measured, and steps of another recipe say nothing of the one "
        "that is named.",
        (
            Ruling(INCONCLUSIVE, codes.EMPTY, inputs.empty),
            Ruling(INCONCLUSIVE, codes.WINDOW_OTHER_RECIPE, comparability.window_of_another_recipe),
        ),
    ),
    RulingGroup(
        "The two columns of numbers do not belong together.",
        "A shift, another unit or another quantity makes every later number wrong, so a misfit "
        "comes before all that is computed from the numbers.",
        (
            Ruling(INCONCLUSIVE, codes.LOSSES_DIFFER, inputs.losses_differ),
            Ruling(INCONCLUSIVE, codes.STEPS_SHIFTED, comparability.steps_shifted),
            Ruling(INCONCLUSIVE, codes.STEPS_SCALED, comparability.steps_scaled),
            Ruling(INCONCLUSIVE, codes.LOSS_SCALED, comparability.loss_scaled),
            Ruling(INCONCLUSIVE, codes.NO_COMMON_STEPS, inputs.no_common_steps),
            Ruling(INCONCLUSIVE, codes.SEEDS_UNSTATED, comparability.seeds_unstated),
        ),
    ),
    RulingGroup(
        "It is nowhere shown that the arms read the same batches.",
        "Where no part of the runs shows it, a gap may be that of the data: no pass and no fail "
        "can rest on it.",
        (
            Ruling(INCONCLUSIVE, codes.DATA_ORDER_MISMATCH, comparability.other_batches),
            Ruling(INCONCLUSIVE, codes.ORDER_UNSHOWN, comparability.order_nowhere_shown),
            Ruling(INCONCLUSIVE, codes.ROUNDED, comparability.rounding_hides_pairing),
            Ruling(INCONCLUSIVE, codes.ARM_AVERAGED, comparability.averaging_hides_pairing),
        ),
    ),
    RulingGroup(
        "The baseline, or what is read as a loss, is no yardstick.",
        "A candidate is not blamed against a baseline that broke, or in a unit that is not known.",
        (
            Ruling(INCONCLUSIVE, codes.BASELINE_INVALID, stability.baseline_invalid),
            Ruling(INCONCLUSIVE, codes.LOSS_NOT_NATS, inputs.not_nats),
            Ruling(INCONCLUSIVE, codes.LOSS_CONSTANT, inputs.constant),
            Ruling(INCONCLUSIVE, codes.STEPS_TOO_LARGE, inputs.steps_too_large),
        ),
    ),
    RulingGroup(
        "The candidate broke by itself.",
        "NaN, a divergence and spikes of the candidate alone are a fail whatever else differs: no "
        "learning rate or data that both arms could train with explains them away.",
        (
            Ruling(FAIL, codes.NONFINITE_CAND, stability.nonfinite_candidate),
            Ruling(FAIL, codes.DIVERGED, stability.diverged),
            Ruling(FAIL, codes.CANDIDATE_UNSTABLE, stability.candidate_unstable),
        ),
    ),
    RulingGroup(
        "What else than the recipe could explain a gap.",
        "A difference in rates, data, model or start comes before a fail by the gap: a false blame "
        "is as wrong as a false pass.",
        (
            Ruling(INCONCLUSIVE, codes.LEARNING_RATES_DIFFER, comparability.rates_explain_a_gap),
            Ruling(INCONCLUSIVE, codes.CONFOUNDED, comparability.context_explains_a_gap),
            Ruling(INCONCLUSIVE, codes.START_DIFFERS, comparability.start_explains_a_gap),
        ),
    ),
    RulingGroup(
        "The margin or the noise is not known.",
        "An interval needs both; nothing after this can be computed without them.",
        (
            Ruling(INCONCLUSIVE, codes.MARGIN_UNDETERMINED, noise.margin_undetermined),
            Ruling(INCONCLUSIVE, codes.RUN_NOISE_UNKNOWN, noise.noise_unknown),
        ),
    ),
    RulingGroup(
        "The gap is above the margin.",
        "Surely above fails, and no veto of a pass takes that back: what keeps back a pass is "
        "looked at afterwards.",
        (
            Ruling(FAIL, codes.GAP_EXCEEDS_MARGIN, margin.gap_exceeds),
            Ruling(FAIL, codes.ENDS_ABOVE_MARGIN, margin.ends_above),
        ),
    ),
    RulingGroup(
        "Vetoes: a pass is not to be had, and the interval alone must not give one.",
        "Each keeps the verdict open where the gap would pass. They stand from what concerns the "
        "whole comparison to what concerns one run or some steps.",
        (
            Ruling(INCONCLUSIVE, codes.UNSTABLE, stability.unstable),
            Ruling(INCONCLUSIVE, codes.ORDER_UNSHOWN, comparability.order_unshown),
            Ruling(INCONCLUSIVE, codes.DATA_ORDER_MISMATCH, comparability.data_order),
            Ruling(INCONCLUSIVE, codes.TOO_FEW_STEPS, plan.too_few),
            Ruling(INCONCLUSIVE, codes.CONFOUNDED, comparability.confounded),
            Ruling(INCONCLUSIVE, codes.LEARNING_RATES_DIFFER, comparability.rates_differ),
            Ruling(INCONCLUSIVE, codes.ARMS_IDENTICAL, inputs.arms_identical),
            Ruling(INCONCLUSIVE, codes.RECIPE_CONTRADICTED, comparability.recipe_contradicted),
            Ruling(INCONCLUSIVE, codes.TREATMENT_UNSHOWN, comparability.treatment_unshown),
            Ruling(INCONCLUSIVE, codes.END_DIFFERS, stability.end_differs),
            Ruling(INCONCLUSIVE, codes.ARMS_SHARE_START, comparability.arms_share_start),
            Ruling(INCONCLUSIVE, codes.BETTER_THAN_BASELINE, margin.better),
            Ruling(INCONCLUSIVE, codes.START_DIFFERS, comparability.start_differs),
            Ruling(INCONCLUSIVE, codes.START_OFFSET, comparability.start_offset),
            Ruling(INCONCLUSIVE, codes.RUN_ABOVE_MARGIN, stability.run_above),
            Ruling(INCONCLUSIVE, codes.ROLLED_BACK, stability.rolled_back),
            Ruling(INCONCLUSIVE, codes.GRAD_NORM_APART, stability.grad_norm_apart),
            Ruling(INCONCLUSIVE, codes.SHORT_RERUN_DIVERGED, stability.short_rerun_diverged),
            Ruling(INCONCLUSIVE, codes.GAP_GROWING, stability.gap_growing),
            Ruling(INCONCLUSIVE, codes.BEYOND_PLAN, plan.beyond_plan),
        ),
    ),
    RulingGroup(
        "Vetoes: what the log leaves out, or changes, may hide a gap.",
        "The numbers that are there would pass; those that are not there, or are averaged, rounded "
        "or masked, may not.",
        (
            Ruling(INCONCLUSIVE, codes.DOWNSAMPLED, inputs.downsampled),
            Ruling(INCONCLUSIVE, codes.POINTS_IN_ONE_ARM, inputs.points_in_one_arm),
            Ruling(INCONCLUSIVE, codes.LOSSES_NOT_LOGGED, inputs.losses_not_logged),
            Ruling(INCONCLUSIVE, codes.LINES_UNREAD, inputs.lines_unread),
            Ruling(INCONCLUSIVE, codes.LOG_STARTS_LATE, plan.starts_near_the_window),
            Ruling(INCONCLUSIVE, codes.NONFINITE_DROPPED, stability.nonfinite_dropped),
            Ruling(INCONCLUSIVE, codes.ARM_AVERAGED, comparability.arm_averaged),
            Ruling(INCONCLUSIVE, codes.SMOOTHED, inputs.smoothed),
            Ruling(INCONCLUSIVE, codes.ROUNDED, margin.rounding_hides),
            Ruling(INCONCLUSIVE, codes.SPIKES_HIDE_GAP, stability.spikes_hide),
            Ruling(INCONCLUSIVE, codes.VALIDATION_LOSS_WORSE, margin.validation_before),
        ),
    ),
    RulingGroup(
        "Vetoes: the yardstick is too weak for a pass.",
        "Digits, noise or margin that a policy does not accept; a statement or further runs settle "
        "them, so they come after what is wrong.",
        (
            Ruling(INCONCLUSIVE, codes.ROUNDED, margin.margin_of_few_digits),
            Ruling(INCONCLUSIVE, codes.TOO_FEW_RUNS, noise.single_runs_of_another_loss),
            Ruling(INCONCLUSIVE, codes.RUN_NOISE_ASSUMED, noise.noise_rejected),
            Ruling(INCONCLUSIVE, codes.MARGIN_WIDE, margin.margin_wide),
            Ruling(INCONCLUSIVE, codes.AS_OF, plan.passes_as_of),
        ),
    ),
    RulingGroup(
        "The gap decides.",
        "Nothing is left that speaks against the interval.",
        (
            Ruling(PASS, codes.IDENTICAL, margin.identical),
            Ruling(PASS, codes.WITHIN_MARGIN, margin.within_margin),
            Ruling(INCONCLUSIVE, codes.CI_STRADDLES_MARGIN, margin.straddles),
        ),
    ),
)

WARNINGS: tuple[Warned[Measurements], ...] = (
    (codes.RUN_NOISE_ASSUMED, warnings.noise_assumed),
    (codes.RUN_NOISE_BORROWED, warnings.noise_borrowed),
    (codes.RUN_NOISE_CONTRADICTED, warnings.noise_contradicted),
    (codes.FAMILY_UNUSED, warnings.family_unused),
    (codes.REPLICATES_IDENTICAL, warnings.identical),
    (codes.REPLICATES_EQUAL, warnings.equal),
    (codes.REPLICATES_DEPENDENT, warnings.dependent),
    (codes.NONFINITE_DROPPED, warnings.nonfinite_points_dropped),
    (codes.SPIKES_MASKED, warnings.spikes_masked),
    (codes.VALIDATION_NOT_COMPARED, warnings.validation_not_compared),
    (codes.CONTEXT_IN_ONE_ARM, warnings.context_in_one_arm),
    (codes.STEPS_MISSING, warnings.steps_missing),
    (codes.POLICY_UNUSUAL, warnings.policy_unusual),
    (codes.BETTER_THAN_NOISE, warnings.better_than_noise),
    (codes.PAIRING_UNPROVEN, warnings.pairing_unproven),
    (codes.PAIRING_WEAK, warnings.pairing_weak),
    (codes.WINDOW_SENSITIVE, warnings.window_sensitive),
    (codes.ROUNDED, warnings.rounded),
    (codes.SMOOTHED, warnings.smooth),
    (codes.RUNS_UNPAIRED, warnings.unpaired_runs),
    (codes.CONTROLS_LEFT_OUT, warnings.controls_left_out),
    (codes.SHORT_RERUNS_LEFT_OUT, warnings.short_reruns_left_out),
    (codes.BEYOND_PLAN, warnings.goes_beyond_plan),
    (codes.LOG_STARTS_LATE, warnings.log_starts_late),
    (codes.AS_OF, warnings.as_of),
    (codes.SCHEDULE_STATED, warnings.schedule_stated),
    (codes.LEARNING_RATE_IN_ONE_ARM, warnings.rate_in_one_arm),
)
"""What a reader should know next to the verdict, in the order in which it is told; nothing of it
decides."""


ROWS: tuple[Ruling[Measurements], ...] = tuple(row for group in GROUPS for row in group.rows)
CHECKS: dict[str, tuple[ReasonCode, ReasonCode]] = {
    "grad_norm": (codes.GRAD_NORM_FAILS, codes.GRAD_NORM_OPEN),
    "spikes": (codes.SPIKES_FAILS, codes.SPIKES_OPEN),
    "validation_loss": (codes.VALIDATION_LOSS_FAILS, codes.VALIDATION_LOSS_OPEN),
    "accuracy": (codes.ACCURACY_FAILS, codes.ACCURACY_OPEN),
    "net_speedup": (codes.NET_SPEEDUP_FAILS, codes.NET_SPEEDUP_OPEN),
}
"""The checks that a policy can let decide in addition to the loss (`checks`): the code if one
fails, and if it is open or could not be made.
"""


def table() -> tuple[tuple[State | None, ReasonCode], ...]:
    """Every code once, with the state that it decides: rows in their order, checks, validation,
    those that only evaluations have, then warnings (None).
    """
    first: dict[str, tuple[State | None, ReasonCode]] = {}
    for state, entry in _listed():
        first.setdefault(entry.code, (state, entry))
    return tuple(first.values())


def _listed() -> Iterator[tuple[State | None, ReasonCode]]:
    yield from ((row.state, row.code) for row in ROWS)
    for fails, opens in CHECKS.values():
        yield FAIL, fails
        yield INCONCLUSIVE, opens
    yield INCONCLUSIVE, codes.VALIDATION_LOSS_WORSE
    for entry in (codes.AS_OF, codes.NUMBERS_ALONE, codes.TOO_FEW_RUNS, codes.CLUSTERS_UNUSABLE):
        yield INCONCLUSIVE, entry
    yield from ((None, entry) for entry, _ in WARNINGS)
    yield from ((None, entry) for entry in (codes.RUNS_TRUNCATED, codes.CLUSTERS_WIDEN))


FAILING = frozenset(entry.code for state, entry in table() if state == FAIL)
"""The codes that decide a fail."""
