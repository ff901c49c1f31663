"""The decision about held-out losses: the first rule that holds decides, and what else holds."""

from parity.judging.decision import INCONCLUSIVE, Decision, Reason, State
from parity.judging.evaluations.precedence import ROWS, WARNINGS
from parity.judging.evaluations.rules import EvaluationEvidence


def holding(evidence: EvaluationEvidence) -> list[tuple[str, State, Reason]]:
    """The rules that hold, by name, in the order in which they decide: the first one does."""
    sentences = ((row, row.rule(evidence)) for row in ROWS)
    return [
        (row.name, row.state, Reason(code=row.code.code, sentence=sentence))
        for row, sentence in sentences
        if sentence is not None
    ]


def decide(evidence: EvaluationEvidence) -> Decision:
    """Apply the order to what was measured."""
    (_, state, deciding), *further = holding(evidence)
    vetoes = [reason for _, other, reason in further if other == INCONCLUSIVE]
    listed_codes = {deciding.code, *(reason.code for reason in vetoes)}
    sentences = ((entry.code, rule(evidence)) for entry, rule in WARNINGS)
    warnings = [
        Reason(code=code, sentence=sentence)
        for code, sentence in sentences
        if sentence is not None and code not in listed_codes
    ]
    return Decision(state=state, deciding=deciding, others=(*vetoes, *warnings))
