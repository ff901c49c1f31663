"""An attack on the judge: something done to real runs that must not get a pass in error, with an
honest twin that must pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

Runs = Sequence[Curve]
"""Reruns of one configuration, at least seven: the first is the baseline, the second the candidate,
the others are at hand.
"""

MARGIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the judge is given."""

    base: Sequence[Curve]
    cand: Sequence[Curve]
    policy: Mapping[str, Any] = field(default_factory=lambda: {"margin": "1%"})
    options: Mapping[str, Any] = field(default_factory=lambda: {"assume_complete": True})
    names: tuple[str, str] | None = None

    def judged(self) -> Verdict:
        """The verdict."""
        policy = policy_from_mapping({"schedule": "decayed", **self.policy})
        named = {"baseline_name": self.names[0]} if self.names else {}
        name = self.names[1] if self.names else "candidate"
        return judge(list(self.base), {name: list(self.cand)}, policy, **named, **self.options)[0]


Build = Callable[[Runs], Case]


def plain(runs: Runs) -> Case:
    """The honest pair itself."""
    return Case(base=[runs[0]], cand=[runs[1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is done to the runs, in words, and as code; `codes` are those of which at least one must
    be among the verdict's reasons.

    `may_pass` is for what is no reason to refuse a pass, but never silent. `honest` is the twin
    that looks alike and is all right.
    """

    what: str
    build: Build
    codes: tuple[str, ...]
    twin: str = "the pair as it is"
    honest: Build = plain
    may_pass: bool = False


def margin_of(run: Curve) -> float:
    """1 % of the loss in the last fifth, nats."""
    return MARGIN * float(run.loss[-len(run.loss) // 5 :].mean())


def with_loss(run: Curve, loss: np.ndarray, **changes: Any) -> Curve:
    """The run with other losses."""
    values = {"rounding": run.rounding, "seed": run.seed, "label": run.label} | changes
    return curve_from_arrays(run.steps, loss, **values)


def kept(run: Curve, keep: Any, **changes: Any) -> Curve:
    """Some points of the run."""
    values = {"rounding": run.rounding, "seed": run.seed, "label": run.label} | changes
    return curve_from_arrays(run.steps[keep], run.loss[keep], **values)


def raised(run: Curve, start: float, margins: float, stop: float = 1.0) -> Curve:
    """The run, worse by so many margins from `start` to `stop`, shares of its length."""
    loss = run.loss.copy()
    n = len(loss)
    loss[round(start * n) : round(stop * n)] += margins * margin_of(run)
    return with_loss(run, loss)


def ramped(run: Curve, start: float, margins: float) -> Curve:
    """The run, worse by a ramp from 0 at `start` to so many margins at its end."""
    n = len(run.loss)
    first = round(start * n)
    loss = run.loss.copy()
    loss[first:] += margins * margin_of(run) * np.linspace(0.0, 1.0, n - first)
    return with_loss(run, loss)
