"""Which rule about held-out losses comes before which: the first one that holds decides.

The codes are those of training losses, and the order is theirs where both have the rule. What is
only said stands in `WARNINGS`; a code may stand in both.
"""

from parity.judging import codes
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS
from parity.judging.evaluations import rules
from parity.judging.evaluations.rules import EvaluationEvidence
from parity.judging.ruling import Ruling, Warned

ROWS: tuple[Ruling[EvaluationEvidence], ...] = (
    Ruling(INCONCLUSIVE, codes.BASELINE_INVALID, rules.baseline_invalid),
    Ruling(FAIL, codes.NONFINITE_CAND, rules.nonfinite_candidate),
    Ruling(INCONCLUSIVE, codes.ARMS_IDENTICAL, rules.arms_identical),
    Ruling(INCONCLUSIVE, codes.ARMS_SHARE_START, rules.arms_share_start),
    Ruling(INCONCLUSIVE, codes.LOSS_NOT_NATS, rules.not_nats),
    Ruling(INCONCLUSIVE, codes.LOSS_SCALED, rules.loss_scaled),
    Ruling(INCONCLUSIVE, codes.NO_COMMON_STEPS, rules.no_common_steps),
    Ruling(INCONCLUSIVE, codes.RUNS_UNPAIRED, rules.no_pair),
    Ruling(INCONCLUSIVE, codes.CLUSTERS_UNUSABLE, rules.clusters_unusable),
    Ruling(INCONCLUSIVE, codes.RUN_NOISE_UNKNOWN, rules.noise_unknown),
    Ruling(FAIL, codes.GAP_EXCEEDS_MARGIN, rules.gap_exceeds),
    Ruling(INCONCLUSIVE, codes.CONFOUNDED, rules.confounded),
    Ruling(INCONCLUSIVE, codes.MARGIN_UNDETERMINED, rules.margin_undetermined),
    # What keeps back a pass although the interval at the point compared is within the margin.
    Ruling(INCONCLUSIVE, codes.END_DIFFERS, rules.end_differs),
    Ruling(INCONCLUSIVE, codes.GAP_GROWING, rules.gap_growing),
    Ruling(INCONCLUSIVE, codes.LOSS_NOT_NATS, rules.baseline_rises),
    Ruling(INCONCLUSIVE, codes.DOWNSAMPLED, rules.late_hole),
    Ruling(INCONCLUSIVE, codes.RUNS_UNPAIRED, rules.without_partner),
    Ruling(INCONCLUSIVE, codes.BEYOND_PLAN, rules.beyond_plan),
    Ruling(INCONCLUSIVE, codes.RECIPE_CONTRADICTED, rules.recipe_contradicted),
    Ruling(INCONCLUSIVE, codes.ROLLED_BACK, rules.rolled_back),
    Ruling(INCONCLUSIVE, codes.ROUNDED, rules.margin_of_few_digits),
    Ruling(INCONCLUSIVE, codes.MARGIN_WIDE, rules.margin_wide),
    Ruling(INCONCLUSIVE, codes.TOO_FEW_RUNS, rules.single_runs_of_another_loss),
    Ruling(INCONCLUSIVE, codes.RUN_NOISE_ASSUMED, rules.noise_rejected),
    Ruling(INCONCLUSIVE, codes.NUMBERS_ALONE, rules.numbers_alone),
    Ruling(INCONCLUSIVE, codes.AS_OF, rules.passes_as_of),
    Ruling(INCONCLUSIVE, codes.BETTER_THAN_BASELINE, rules.better),
    Ruling(PASS, codes.WITHIN_MARGIN, rules.within_margin),
    Ruling(INCONCLUSIVE, codes.CI_STRADDLES_MARGIN, rules.straddles),
)
WARNINGS: tuple[Warned[EvaluationEvidence], ...] = (
    (codes.NUMBERS_ALONE, rules.numbers_sentence),
    (codes.AS_OF, rules.as_of_sentence),
    (codes.CLUSTERS_WIDEN, rules.clusters_widen),
    (codes.RUN_NOISE_ASSUMED, rules.noise_assumed),
    (codes.SCHEDULE_STATED, rules.schedule_stated),
    (codes.REPLICATES_IDENTICAL, rules.copies_left_out),
    (codes.REPLICATES_DEPENDENT, rules.forks_left_out),
    (codes.RUNS_TRUNCATED, rules.runs_truncated),
)
