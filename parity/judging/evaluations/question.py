"""What is asked about two arms of held-out losses, and what is on record of both."""

from parity.frozen import frozen
from parity.judging.gap.margin import Margin
from parity.judging.policy import Policy
from parity.wording import tokens_words


@frozen
class Ground:
    """What an arm's runs have on record under one key: the values of the baseline's runs and of the
    candidate's.
    """

    key: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]

    @property
    def confounded(self) -> bool:
        """Whether the arms share no value, so that a difference between them may be this one."""
        return not set(self.baseline) & set(self.candidate)


@frozen(eq=False)
class EvaluationQuestion:
    """What is asked about two arms: their names as given and as reports say them, the policy, the
    plan, the cluster's key, and the points.

    `confidence` is that of the gap's interval: the policy's, shared by the candidates and looks of
    the comparison. `typed`: the losses are numbers without runs.
    """

    arms: tuple[str, str]
    names: tuple[str, str]
    policy: Policy
    confidence: float
    margin: Margin | None
    planned_steps: int | None
    cluster: str | None
    tokens_per_step: float | None
    typed: bool = False

    def point(self, step: int) -> str:
        """A point as a report says it: tokens where their number is known, else the step."""
        if self.typed and not self.tokens_per_step:
            return "these numbers"
        if self.tokens_per_step:
            return tokens_words(step * self.tokens_per_step)
        return f"step {step:,}"
