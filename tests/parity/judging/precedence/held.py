"""The rules that hold for a pair after some changes, by name, in the order of decision."""

from parity.judging.decide import holding
from parity.judging.evaluations import rules
from parity.judging.precedence import ROWS
from tests.parity.judging.precedence import changes, evaluation_changes
from tests.parity.judging.precedence.evaluation_pair import EvaluationPair
from tests.parity.judging.precedence.pair import Pair

RULES_OF_TRAINING = tuple(row.name for row in ROWS)
RULES_OF_EVALUATIONS = (
    "BASELINE_INVALID",
    "NONFINITE_CAND",
    "ARMS_IDENTICAL",
    "ARMS_SHARE_START",
    "LOSS_NOT_NATS",
    "LOSS_SCALED",
    "NO_COMMON_STEPS",
    "RUNS_UNPAIRED",
    "CLUSTERS_UNUSABLE",
    "RUN_NOISE_UNKNOWN",
    "GAP_EXCEEDS_MARGIN",
    "CONFOUNDED",
    "MARGIN_UNDETERMINED",
    "END_DIFFERS",
    "GAP_GROWING",
    "DOWNSAMPLED",
    "BEYOND_PLAN",
    "RECIPE_CONTRADICTED",
    "ROLLED_BACK",
    "ROUNDED",
    "MARGIN_WIDE",
    "TOO_FEW_RUNS",
    "RUN_NOISE_ASSUMED",
    "NUMBERS_ALONE",
    "AS_OF",
    "BETTER_THAN_BASELINE",
    "WITHIN_MARGIN",
    "CI_STRADDLES_MARGIN",
)


def training_holds(combination: tuple[str, ...]) -> tuple[str, ...]:
    """The rules that hold for training losses after these changes; the first one decides."""
    pair = Pair()
    for name in combination:
        changes.CHANGES[name](pair)
    return tuple(name for name, _, _ in holding(pair.measured()))


def evaluations_hold(combination: tuple[str, ...]) -> tuple[str, ...]:
    """The codes that could decide about held-out losses after these changes, each once; the first
    one does.
    """
    pair = EvaluationPair()
    for name in combination:
        evaluation_changes.CHANGES[name](pair)
    case, candidate = pair.case(), pair.names[1]
    held = rules.holding(*case.measured(candidate), case.grounds(candidate))
    return tuple(dict.fromkeys(code for state, code, _ in held if state is not None))
