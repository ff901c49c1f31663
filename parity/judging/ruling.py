"""A rule with its code and the verdict that it gives; of those that hold, the first one decides."""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from parity.judging.codes import ReasonCode
from parity.judging.decision import Reason, State

Evidence = TypeVar("Evidence")
Rule = Callable[[Evidence], str | None]
"""The sentence of a reason, with its numbers, where it holds for the evidence; else None."""
Warned = tuple[ReasonCode, Rule[Evidence]]
"""A code and the rule that says it next to a verdict; it decides nothing."""


class Ruling(NamedTuple, Generic[Evidence]):
    """A rule with its code, and the verdict where it is the first one that holds."""

    state: State
    code: ReasonCode
    rule: Rule[Evidence]

    @property
    def name(self) -> str:
        """The name of the rule; it stands once in the order, where a code may stand twice."""
        return self.rule.__name__


def holding(
    rulings: Iterable[Ruling[Evidence]], evidence: Evidence
) -> list[tuple[str, State, Reason]]:
    """The rules that hold, by name, in the order in which they decide: the first one does."""
    sentences = ((ruling, ruling.rule(evidence)) for ruling in rulings)
    return [
        (ruling.name, ruling.state, Reason(code=ruling.code.code, sentence=sentence))
        for ruling, sentence in sentences
        if sentence is not None
    ]


def warned(warnings: Iterable[Warned[Evidence]], evidence: Evidence) -> list[Reason]:
    """The warnings that hold, in their order."""
    sentences = ((entry.code, rule(evidence)) for entry, rule in warnings)
    return [
        Reason(code=code, sentence=sentence) for code, sentence in sentences if sentence is not None
    ]
