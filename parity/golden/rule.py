"""The rule: lines in order, of which the first that holds gives the answer.

Each line is a function of what was measured. A test swaps each two neighbours.
"""

from collections.abc import Callable, Sequence

from parity.frozen import frozen
from parity.golden.answers import Answer
from parity.golden.batches import HALF_SHARED
from parity.golden.level import UNDECIDED_PCT
from parity.golden.measured import MIN_STEPS, ComparedRun, ComparisonFacts
from parity.golden.quantities import is_apart
from parity.judging.curves.curve import Curve

Condition = Callable[[ComparedRun], bool]
DOUBLED = 2.0  # the noise of a run that broke, over its golden's (a convention)


@frozen
class RuleLine:
    """One line of the rule: its name in reports, its answer, and when it holds."""

    name: str
    answer: Answer
    holds: Condition


def _differ_in_data(measured: ComparedRun) -> bool:
    left, right = measured.stated.golden_data, measured.stated.run_data
    return left is not None and right is not None and left != right


def _agree_in_data(measured: ComparedRun) -> bool:
    left, right = measured.stated.golden_data, measured.stated.run_data
    return left is not None and left == right


def _are_unrelated(measured: ComparedRun) -> bool:
    return measured.agreement.is_unrelated


def _are_not_shared(measured: ComparedRun) -> bool:
    return not measured.agreement.is_shared


def _begins_elsewhere(measured: ComparedRun) -> bool:
    return abs(measured.first_nats) > measured.first_limit


def _was_not_restored(measured: ComparedRun) -> bool:
    return abs(measured.updated_nats) > measured.updated_limit


def _is_short(measured: ComparedRun) -> bool:
    """Few steps follow a resume; one is enough to see that its first losses are wrong."""
    if measured.rows >= MIN_STEPS:
        return False
    return measured.rows == 0 or not (_begins_elsewhere(measured) or _was_not_restored(measured))


def _broke(measured: ComparedRun) -> bool:
    return (
        _are_not_shared(measured)
        and not _begins_elsewhere(measured)
        and measured.agreement.noise_ratio > DOUBLED
        and measured.gap_pct > measured.gap_limit
    )


def _is_shifted(measured: ComparedRun) -> bool:
    return _are_not_shared(measured) and measured.shift != 0


def _reads_other_data(measured: ComparedRun) -> bool:
    return _are_unrelated(measured) and _begins_elsewhere(measured) and not _agree_in_data(measured)


def _reads_another_order(measured: ComparedRun) -> bool:
    return _are_unrelated(measured) and _begins_elsewhere(measured)


def _is_explained(measured: ComparedRun) -> bool:
    return measured.gap_limit < abs(measured.gap_pct) <= measured.explained_pct


def _came_back(measured: ComparedRun) -> bool:
    earlier = measured.earlier_level
    return earlier is not None and abs(earlier.pct) > measured.earlier_limit(earlier)


LINES: tuple[RuleLine, ...] = (
    RuleLine(name="losses", answer="worse", holds=lambda m: m.broken_step is not None),
    RuleLine(name="steps", answer="cannot tell", holds=lambda m: m.common_rows < MIN_STEPS),
    RuleLine(name="end", answer="cannot tell", holds=lambda m: m.missing_steps > 0),
    RuleLine(
        name="missing steps", answer="cannot tell", holds=lambda m: m.missing_between.are_many
    ),
    RuleLine(name="identical", answer="identical", holds=lambda m: m.is_identical),
    RuleLine(name="fork", answer="cannot tell", holds=lambda m: m.first_row is None),
    RuleLine(name="steps judged", answer="cannot tell", holds=_is_short),
    RuleLine(name="data hash", answer="data changed", holds=_differ_in_data),
    RuleLine(
        name="recorded facts", answer="set-up changed", holds=lambda m: bool(m.fact_differences)
    ),
    RuleLine(name="learning rate", answer="set-up changed", holds=lambda m: m.rate is not None),
    RuleLine(name="goldens", answer="cannot tell", holds=lambda m: m.reruns.q > HALF_SHARED),
    RuleLine(name="shift", answer="set-up changed", holds=_is_shifted),
    RuleLine(name="broken", answer="worse", holds=_broke),
    RuleLine(name="batches", answer="data changed", holds=_reads_other_data),
    RuleLine(name="order", answer="set-up changed", holds=_reads_another_order),
    RuleLine(name="noise", answer="cannot tell", holds=_are_not_shared),
    RuleLine(name="first loss", answer="set-up changed", holds=_begins_elsewhere),
    RuleLine(
        name="first gradient norm",
        answer="set-up changed",
        holds=lambda m: any(is_apart(ratio.first) for ratio in m.norms),
    ),
    RuleLine(
        name="first updates",
        answer="set-up changed",
        holds=_was_not_restored,
    ),
    RuleLine(name="spike", answer="worse", holds=lambda m: m.spike.is_beyond),
    RuleLine(name="level near its limit", answer="cannot tell", holds=_is_explained),
    RuleLine(name="level", answer="worse", holds=lambda m: m.gap_pct > m.gap_limit),
    RuleLine(name="level", answer="better", holds=lambda m: m.gap_pct < -m.gap_limit),
    RuleLine(name="dip", answer="better", holds=lambda m: m.dip.is_beyond),
    RuleLine(name="earlier level", answer="cannot tell", holds=_came_back),
    RuleLine(
        name="gradient norm",
        answer="set-up changed",
        holds=lambda m: any(is_apart(ratio.typical) for ratio in m.norms),
    ),
    RuleLine(
        name="level's error", answer="cannot tell", holds=lambda m: m.gap_limit > UNDECIDED_PCT
    ),
    RuleLine(name="all", answer="numerics only", holds=lambda _: True),
)
"""The rule. Facts on record come before what curves can show; what happened before any update comes
before what training made of it; and what is worse comes before what is better.
"""


def judge(
    goldens: Sequence[Curve], run: Curve, stated: ComparisonFacts, lines: Sequence[RuleLine] = LINES
) -> tuple[RuleLine, ComparedRun]:
    """The line that decides about a run of the goldens' own recipe, and what was measured.

    `goldens` is one golden, or 2 to 10 reruns of it; their losses (nats) are finite and positive.
    """
    measured = ComparedRun(goldens=goldens, run=run, stated=stated)
    return next(line for line in lines if line.holds(measured)), measured
