"""The decision about training losses: the first rule that holds decides, and what else holds.

The pass is non-inferiority: the upper end of the interval is below the margin. A candidate that is
better than the baseline by more than the margin does not pass either: the arms may be swapped, or
differ in more than is on record. Afterwards `checks` may take back a pass.
"""

from parity.judging import ruling
from parity.judging.codes import BY_CODE, IDENTICAL
from parity.judging.decision import FAIL, INCONCLUSIVE, Decision, Reason, State
from parity.judging.measurements import Measurements
from parity.judging.precedence import ROWS, WARNINGS


def holding(measurements: Measurements) -> list[tuple[str, State, Reason]]:
    """The rules that hold, by name, in the order in which they decide: the first one does."""
    equal = measurements.identical is not None
    return ruling.holding(
        (row for row in ROWS if not (equal and row.code.skipped_for_identical)), measurements
    )


def warnings_of(measurements: Measurements) -> list[Reason]:
    """All warnings that hold for one comparison."""
    equal = measurements.identical is not None
    return ruling.warned(
        ((entry, rule) for entry, rule in WARNINGS if not (equal and entry.about_run_noise)),
        measurements,
    )


def decide(measurements: Measurements) -> Decision:
    """Apply the order to one comparison's measurements."""
    (_, state, deciding), *further = holding(measurements)
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
    warnings = [
        reason
        for reason in warnings_of(measurements)
        if reason.code not in listed_codes
        and not (entry.gap_means_nothing and BY_CODE[reason.code].about_run_noise)
    ]
    return Decision(state=state, deciding=deciding, others=(*vetoes, *warnings))
