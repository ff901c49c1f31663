"""The decision about held-out losses: the first rule that holds decides, and what else holds."""

from parity.judging import ruling
from parity.judging.codes import BY_CODE
from parity.judging.decision import INCONCLUSIVE, Decision
from parity.judging.evaluations.precedence import ROWS, WARNINGS
from parity.judging.evaluations.rules import EvaluationEvidence


def decide(evidence: EvaluationEvidence) -> Decision:
    """Apply the order to what was measured."""
    (_, state, deciding), *further = ruling.holding(ROWS, evidence)
    vetoes = [reason for _, other, reason in further if other == INCONCLUSIVE]
    listed_codes = {deciding.code, *(reason.code for reason in vetoes)}
    warnings = [
        reason
        for reason in ruling.warned(WARNINGS, evidence)
        if reason.code not in listed_codes
        and not (BY_CODE[deciding.code].gap_means_nothing and BY_CODE[reason.code].about_run_noise)
    ]
    return Decision(state=state, deciding=deciding, others=(*vetoes, *warnings))
