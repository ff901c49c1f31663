"""Which statement says that a training came to its end: its planned length, or that its learning
rate had decayed; neither where the record contradicts it.
"""

from collections.abc import Sequence

from parity.frozen import frozen
from parity.judging.curves.curve import PLANNED_STEPS, Curve
from parity.judging.curves.decline import shows_no_decay
from parity.judging.curves.learning_rates import contradicting_rate, not_at_end
from parity.judging.curves.window import Window
from parity.judging.policy import Policy
from parity.judging.statements.statement_words import PossibleStatement


@frozen
class AskedStatement:
    """A statement with the question whose yes it is."""

    question: str
    statement: PossibleStatement


def end_of_training(
    runs: Sequence[Curve], window: Window, policy: Policy, *, finished: bool
) -> AskedStatement | None:
    """What to ask about the end of runs in their window; None where they are `finished`, or where
    the record contradicts the statement.
    """
    if finished or window.unreached:
        return None
    if any(shows_no_decay(run) for run in runs if not_at_end([run]) is not None):
        return None
    length = window.planned_steps
    is_open = window.plan == "unknown"
    if is_open and any(run.context.get(PLANNED_STEPS, str(length)) != str(length) for run in runs):
        return None
    if is_open and all(not_at_end([run]) is None for run in runs):
        return AskedStatement(
            question=f"Was {length:,} the planned length, and had the learning rate reached its "
            "end?",
            statement=PossibleStatement(key="planned_steps", value=str(length)),
        )
    if policy.schedule == "decayed" or contradicting_rate(runs, cut_counts=is_open) is not None:
        return None
    return AskedStatement(
        question=f"Had the learning rate of every run fallen to its end at step {window.last:,}?",
        statement=PossibleStatement(key="schedule", value="decayed"),
    )
