"""The decision about training losses: the first rule that holds decides, and what else holds.

The pass is non-inferiority: the upper end of the interval is below the margin. A candidate that is
better than the baseline by more than the margin does not pass either: something other than the
precision has changed. Afterwards `checks` may take back a pass.
"""

from parity.judging.codes import BY_CODE, IDENTICAL, SMOOTHED
from parity.judging.decision import FAIL, INCONCLUSIVE, Decision, Reason, State
from parity.judging.measurements import Measurements
from parity.judging.precedence import ROWS, WARNINGS


def holding(m: Measurements) -> list[tuple[str, State, Reason]]:
    """The rules that hold, by name, in the order in which they decide: the first one does."""
    skips = m.identical is not None
    rows = ((row, row.rule(m)) for row in ROWS if not (skips and row.code.skipped_for_identical))
    return [
        (row.name, row.state, Reason(code=row.code.code, sentence=sentence))
        for row, sentence in rows
        if sentence is not None
    ]


def warnings_of(m: Measurements) -> list[Reason]:
    """All warnings that hold for one comparison; equal runs are told of smoothing, too."""
    skips = m.identical is not None
    sentences = (
        (entry.code, rule(m))
        for entry, rule in WARNINGS
        if not (skips and entry.skipped_for_identical and entry is not SMOOTHED)
    )
    return [
        Reason(code=code, sentence=sentence) for code, sentence in sentences if sentence is not None
    ]


def decide(m: Measurements) -> Decision:
    """Apply the order to one comparison's measurements."""
    (_, state, deciding), *further = holding(m)
    entry = BY_CODE[deciding.code]
    if entry.suppresses_others:
        return Decision(state=state, deciding=deciding, others=())
    explained = state == INCONCLUSIVE and entry.may_explain_a_fail
    listed = [
        reason
        for _, other, reason in further
        if other == INCONCLUSIVE or reason.code == IDENTICAL.code or (other == FAIL and explained)
    ]
    by_code = {reason.code: reason for reason in reversed(listed) if reason.code != deciding.code}
    vetoes = list(reversed(by_code.values()))  # each code once, with its first sentence
    listed_codes = {deciding.code, *by_code}
    warnings = [reason for reason in warnings_of(m) if reason.code not in listed_codes]
    return Decision(state=state, deciding=deciding, others=(*vetoes, *warnings))
