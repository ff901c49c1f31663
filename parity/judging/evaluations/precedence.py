"""Which rule about held-out losses comes before which: the first one that holds decides.

The codes are those of training losses, and the order is theirs where both have the rule. What is
only said stands in `WARNINGS`; a code may stand in both.
"""

from typing import NamedTuple

from parity.judging import codes
from parity.judging.codes import ReasonCode
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, State
from parity.judging.evaluations import rules
from parity.judging.evaluations.rules import Rule


class EvaluationRuling(NamedTuple):
    """A rule with its code, and the verdict where it is the first one that holds."""

    state: State
    code: ReasonCode
    rule: Rule

    @property
    def name(self) -> str:
        """The name of the rule; it stands once in the order, where a code may stand twice."""
        return self.rule.__name__


ROWS = (
    EvaluationRuling(INCONCLUSIVE, codes.BASELINE_INVALID, rules.baseline_invalid),
    EvaluationRuling(FAIL, codes.NONFINITE_CAND, rules.nonfinite_candidate),
    EvaluationRuling(INCONCLUSIVE, codes.ARMS_IDENTICAL, rules.arms_identical),
    EvaluationRuling(INCONCLUSIVE, codes.ARMS_SHARE_START, rules.arms_share_start),
    EvaluationRuling(INCONCLUSIVE, codes.LOSS_NOT_NATS, rules.not_nats),
    EvaluationRuling(INCONCLUSIVE, codes.LOSS_SCALED, rules.loss_scaled),
    EvaluationRuling(INCONCLUSIVE, codes.NO_COMMON_STEPS, rules.no_common_steps),
    EvaluationRuling(INCONCLUSIVE, codes.RUNS_UNPAIRED, rules.no_pair),
    EvaluationRuling(INCONCLUSIVE, codes.CLUSTERS_UNUSABLE, rules.clusters_unusable),
    EvaluationRuling(INCONCLUSIVE, codes.RUN_NOISE_UNKNOWN, rules.noise_unknown),
    EvaluationRuling(FAIL, codes.GAP_EXCEEDS_MARGIN, rules.gap_exceeds),
    EvaluationRuling(INCONCLUSIVE, codes.CONFOUNDED, rules.confounded),
    EvaluationRuling(INCONCLUSIVE, codes.MARGIN_UNDETERMINED, rules.margin_undetermined),
    # What keeps back a pass although the interval at the point compared is within the margin.
    EvaluationRuling(INCONCLUSIVE, codes.END_DIFFERS, rules.end_differs),
    EvaluationRuling(INCONCLUSIVE, codes.GAP_GROWING, rules.gap_growing),
    EvaluationRuling(INCONCLUSIVE, codes.LOSS_NOT_NATS, rules.baseline_rises),
    EvaluationRuling(INCONCLUSIVE, codes.DOWNSAMPLED, rules.late_hole),
    EvaluationRuling(INCONCLUSIVE, codes.RUNS_UNPAIRED, rules.without_partner),
    EvaluationRuling(INCONCLUSIVE, codes.BEYOND_PLAN, rules.beyond_plan),
    EvaluationRuling(INCONCLUSIVE, codes.RECIPE_CONTRADICTED, rules.recipe_contradicted),
    EvaluationRuling(INCONCLUSIVE, codes.ROLLED_BACK, rules.rolled_back),
    EvaluationRuling(INCONCLUSIVE, codes.ROUNDED, rules.margin_of_few_digits),
    EvaluationRuling(INCONCLUSIVE, codes.MARGIN_WIDE, rules.margin_wide),
    EvaluationRuling(INCONCLUSIVE, codes.TOO_FEW_RUNS, rules.single_runs_of_another_loss),
    EvaluationRuling(INCONCLUSIVE, codes.RUN_NOISE_ASSUMED, rules.noise_rejected),
    EvaluationRuling(INCONCLUSIVE, codes.NUMBERS_ALONE, rules.numbers_alone),
    EvaluationRuling(INCONCLUSIVE, codes.AS_OF, rules.passes_as_of),
    EvaluationRuling(INCONCLUSIVE, codes.BETTER_THAN_BASELINE, rules.better),
    EvaluationRuling(PASS, codes.WITHIN_MARGIN, rules.within_margin),
    EvaluationRuling(INCONCLUSIVE, codes.CI_STRADDLES_MARGIN, rules.straddles),
)
WARNINGS: tuple[tuple[ReasonCode, Rule], ...] = (
    (codes.NUMBERS_ALONE, rules.numbers_sentence),
    (codes.AS_OF, rules.as_of_sentence),
    (codes.CLUSTERS_WIDEN, rules.clusters_widen),
    (codes.RUN_NOISE_ASSUMED, rules.noise_assumed),
    (codes.SCHEDULE_STATED, rules.schedule_stated),
    (codes.REPLICATES_IDENTICAL, rules.copies_left_out),
    (codes.REPLICATES_DEPENDENT, rules.forks_left_out),
    (codes.RUNS_TRUNCATED, rules.runs_truncated),
)
