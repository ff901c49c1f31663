"""The rules that hold for a pair after some changes, by name, in the order of decision."""

from parity.judging import ruling
from parity.judging.decide import holding
from parity.judging.evaluations.precedence import ROWS as EVALUATION_ROWS
from parity.judging.precedence import ROWS
from tests.parity.judging.precedence import changes, evaluation_changes
from tests.parity.judging.precedence.evaluation_pair import EvaluationPair
from tests.parity.judging.precedence.pair import Pair

RULES_OF_TRAINING = tuple(row.name for row in ROWS)
RULES_OF_EVALUATIONS = tuple(row.name for row in EVALUATION_ROWS)


def training_holds(combination: tuple[str, ...]) -> tuple[str, ...]:
    """The rules that hold for training losses after these changes; the first one decides."""
    pair = Pair()
    for name in combination:
        changes.CHANGES[name](pair)
    return tuple(name for name, _, _ in holding(pair.measured()))


def evaluations_hold(combination: tuple[str, ...]) -> tuple[str, ...]:
    """The rules that hold for held-out losses after these changes; the first one decides."""
    pair = EvaluationPair()
    for name in combination:
        evaluation_changes.CHANGES[name](pair)
    evidence = pair.case().evidence(pair.names[1])
    return tuple(name for name, _, _ in ruling.holding(EVALUATION_ROWS, evidence))
