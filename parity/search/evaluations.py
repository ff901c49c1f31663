"""The measurements of a search: forks, full runs and confirmations. Each has a name, so that a search that was stopped can go on.

    fork          the baseline's checkpoint of a parent, trained on with the policy's arithmetic      one loss
    run           a run of the policy from step 0                                                    one loss
    confirmation  `pairs` fresh runs of the policy and as many fresh runs of the baseline, judged    a verdict, and the gap with its error

A loss is the mean over the late window in nats. The values are the runner's: a trainer, a simulator, or a record that is played back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from parity.search.policies import Policy

Kind = Literal["fork", "run", "confirmation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One thing to run. `number` tells repetitions apart (the draw of a fork, a replicate, the confirmation); `parent` is a fork's."""

    kind: Kind
    policy: Policy
    number: int
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an evaluation gave: a loss; of a confirmation the gap (both in nats), its standard error, and whether the judge passed it."""

    evaluation: Evaluation
    value: float
    se: float = 0.0
    passed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a search ended: the policy that was confirmed, or None, and why in one sentence; confirmations that were used."""

    policy: Policy | None
    reason: str
    confirmations: int


def documents(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Evaluations as JSON-able values; `evaluations_from` gives them back."""
    return [asdict(each) for each in evaluations]


def evaluations_from(rows: Sequence[Mapping[str, Any]]) -> tuple[Evaluation, ...]:
    """The evaluations of `documents`."""
    return tuple(Evaluation(**row) for row in rows)


def results_from(evaluations: Sequence[Evaluation], rows: Sequence[Mapping[str, Any]]) -> tuple[Result, ...]:
    """The results of evaluations, each a mapping of value, se and passed."""
    return tuple(Result(evaluation=own, **row) for own, row in zip(evaluations, rows, strict=True))
