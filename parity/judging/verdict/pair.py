"""One candidate judged against the runs before it: all that is given of the pair, and what follows
from it.
"""

from collections.abc import Sequence

from parity.frozen import frozen
from parity.judging.curves.curve import Curve
from parity.judging.curves.window import Window, plan_window
from parity.judging.decide import decide
from parity.judging.decision import Decision
from parity.judging.document_types import CheckDocument
from parity.judging.measurements import Compared, FurtherRuns, Measurements, measure
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy
from parity.judging.secondary.advisory import Advisory, measure_advisory
from parity.judging.secondary.tasks import Evaluations, downstream_gaps
from parity.judging.verdict.checks import apply_checks, checks


@frozen(eq=False)
class PairQuestion:
    """All that is given of one candidate and the arm that it is judged against."""

    compared: Compared
    baseline: Sequence[Curve]
    candidate: Sequence[Curve]
    policy: Policy
    planned_steps: int | None
    assume_complete: bool
    noise_families: NoiseFamilies
    further: FurtherRuns
    multiplicity: Multiplicity
    evaluations: Evaluations

    @property
    def runs(self) -> tuple[Curve, ...]:
        """The runs of both arms, baseline first."""
        return (*self.baseline, *self.candidate)


@frozen(eq=False)
class JudgedPair:
    """What was measured and decided; `window` is the registered one, before its decay phase is
    taken.
    """

    window: Window
    measurements: Measurements
    advisory: Advisory
    checks: tuple[CheckDocument, ...]
    decision: Decision


def judge_pair(question: PairQuestion) -> JudgedPair:
    """Measure and decide one pair."""
    policy, compared = question.policy, question.compared
    complete = question.assume_complete or policy.schedule == "decayed"
    window = plan_window(question.runs, question.planned_steps, complete, policy.window_fraction)
    measured = measure(
        compared,
        question.baseline,
        question.candidate,
        policy,
        window,
        question.noise_families,
        question.further,
        question.multiplicity,
    )
    advisory = measure_advisory(
        measured,
        downstream_gaps(question.evaluations, compared.baseline, compared.candidate, policy),
    )
    made = checks(advisory, measured.statistics.margin if measured.statistics else None, policy)
    return JudgedPair(
        window=window,
        measurements=measured,
        advisory=advisory,
        checks=made,
        decision=apply_checks(decide(measured), made, policy),
    )
