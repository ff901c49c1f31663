"""From which step on must a candidate go on with a safer recipe? Which switch is trained and judged
next, and what the switches so far say.

A switch at step N is a fork of each of the candidate's runs from its kept checkpoint of step N,
trained to the planned end with the safer recipe. With the recorded steps before N it is, bit for
bit, the run of an arm with `then: {recipe, from_step: N}`, and the judge compares these runs with
the job's own baseline as it would compare that arm. So one look at a switch is one verdict.

error      every look has the error of one verdict divided by the number n of kept steps (Bonferroni
           over all that could be looked at): the chance that any switch passes whose true gap is
           beyond the margin is at most what it is for one verdict, in whatever order they are
           looked at, and whether or not a later switch has a larger gap
looks      at most K = ceil(log2(n + 1)). A pass moves the search later, a fail or an open verdict
           earlier. Of the steps after which the looks that are left suffice, the latest that is
           expected to pass comes next, else the earliest; the gap is expected by interpolation in
           (step / steps of the run)^4, from 0 at step 0 to the candidate's at its end
law        a later switch has a larger gap. It decides which steps need no look; no error rests on
           it. Where looks contradict it, only a pass before every fail is named

An inconclusive look whose gap says nothing (other data, a baseline that fell) ends the search: no
other switch would change that. The same looks give the same next step, so a search that was killed
goes on where it was.
Can fail: the power 4 is a guess, which can only cost looks.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, takewhile
from typing import Any, Literal, TypedDict

import numpy as np

from parity.frozen import frozen
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, State

_POWER = 4.0
_USUAL_SHARES = (0.5, 0.7, 0.8, 0.9)
Outcome = Literal["named", "none", "open"]
"""named: a switch passes; none: even the earliest fails; open: neither is known."""


@frozen
class HealingSetup:
    """One search, fixed before it begins.

    `recipe` and `gemms` are those of the rest of the run. `parents`: ids of the candidate's runs,
    all of which are forked. `steps`: the kept steps that all of them have, ascending; at least one,
    each after the first step and before the planned end `run_steps`. `gap` and `half_width`: of the
    interval that decided the candidate's own verdict; `margin`; all in nats, None where they were
    not measured. `most_steps`: the largest cost, in steps of training, at which the search stops.
    """

    recipe: str
    gemms: str
    parents: tuple[str, ...]
    steps: tuple[int, ...]
    run_steps: int
    gap: float | None
    half_width: float | None
    margin: float | None
    most_steps: float

    def __post_init__(self) -> None:
        ascending = sorted(set(self.steps))
        if not self.steps or [*self.steps] != ascending or not self.parents:
            raise ValueError(
                f"steps are {self.steps} of {len(self.parents)} runs; expected at least one step "
                "and run, each step once, ascending"
            )
        if not 0 < self.steps[0] <= self.steps[-1] < self.run_steps:
            raise ValueError(
                f"steps are {self.steps}; expected steps after the first and before the planned "
                f"end {self.run_steps}"
            )

    @property
    def most_looks(self) -> int:
        """K: as many as a bisection needs."""
        return looks_for(len(self.steps))

    @property
    def least_steps(self) -> float:
        """What the first look costs, in steps of training."""
        return cost_of(self, first_switch(self))

    @property
    def largest_cost(self) -> float:
        """What K looks cost at most, in steps of training: those at the earliest steps."""
        return sum(cost_of(self, step) for step in self.steps[: self.most_looks])

    def document(self) -> dict[str, Any]:
        """The setup as the record keeps it; `setup_from` reads it."""
        names = self.__dataclass_fields__
        return {name: _plain(getattr(self, name)) for name in names}


@frozen
class Look:
    """The verdict on the switch at a step: the gap and the ends of the interval that decided, nats,
    at `level`; None where the judge measured none.

    `code` and `sentence` are those of the deciding reason. An inconclusive look has no gap where
    the judge found that the runs cannot be compared.
    """

    step: int
    verdict: State
    gap: float | None
    low: float | None
    high: float | None
    level: float | None
    code: str
    sentence: str


class Contradiction(TypedDict):
    """An `earlier` switch whose gap is larger than that of a `later` one, beyond noise."""

    earlier: int
    later: int


@frozen
class Found:
    """What the looks say so far.

    `switch`: the latest step that passes, before every fail; None without one. `until`: the
    earliest step after it that does not pass, the planned end where none is known. `untested`: kept
    steps between both. `is_stopped`: the next look would exceed the largest cost.
    """

    outcome: Outcome
    switch: int | None
    until: int
    untested: tuple[int, ...]
    contradictions: tuple[Contradiction, ...]
    is_stopped: bool


def looks_for(steps: int) -> int:
    """The looks that a bisection over so many steps needs at most."""
    return math.ceil(math.log2(steps + 1))


def cost_of(setup: HealingSetup, step: int) -> float:
    """What the look at a step costs, in steps of training."""
    return float(len(setup.parents) * (setup.run_steps - step))


def steps_spent(setup: HealingSetup, looks: Sequence[Look]) -> float:
    """What these looks have cost, in steps of training."""
    return sum(cost_of(setup, look.step) for look in looks)


def first_switch(setup: HealingSetup) -> int:
    """The step that is looked at first, whatever it costs."""
    return _chosen(setup, ()) or setup.steps[-1]


def next_switch(setup: HealingSetup, looks: Sequence[Look]) -> int | None:
    """The step that is looked at next; None at the end of the search."""
    chosen = _chosen(setup, looks)
    if chosen is None or _is_too_dear(setup, looks, chosen):
        return None
    return chosen


def found(setup: HealingSetup, looks: Sequence[Look]) -> Found:
    """What the looks on record say, in whatever order they were taken."""
    switch, until = _ends(setup, looks)
    chosen = _chosen(setup, looks)
    outcome: Outcome = "open"
    if switch is not None:
        outcome = "named"
    elif any(look.step == setup.steps[0] and look.verdict == FAIL for look in looks):
        outcome = "none"
    return Found(
        outcome=outcome,
        switch=switch,
        until=until,
        untested=_untested(setup, looks),
        contradictions=_contradictions(looks),
        is_stopped=chosen is not None and _is_too_dear(setup, looks, chosen),
    )


def shares_to_keep(
    gap: float | None, half_width: float | None, margin: float | None
) -> list[float]:
    """The shares of the steps at which a candidate with this gap (nats) should keep checkpoints:
    around the latest switch that is expected to pass.
    """
    room = 0.0 if margin is None else margin - (half_width or 0.0)
    if gap is None or gap <= 0.0 or room <= 0.0:
        return [*_USUAL_SHARES]
    middle = min(max(round((room / gap) ** (1.0 / _POWER), 2), 0.4), 0.85)
    return [round(middle + offset, 2) for offset in (-0.2, -0.1, 0.0, 0.1)]


def steps_to_keep(setup: HealingSetup, looks: Sequence[Look]) -> list[int]:
    """Steps at which checkpoints would bring the answer closer: three between the switch that
    passes (or step 0) and the one after it that does not.
    """
    switch, until = _ends(setup, looks)
    first = switch or 0
    between = {first + round(share * (until - first)) for share in (0.25, 0.5, 0.75)}
    return sorted(step for step in between if first < step < until and step not in setup.steps)


def setup_from(document: Mapping[str, Any]) -> HealingSetup:
    """The setup of a document."""
    tuples = {name: tuple(document[name]) for name in ("parents", "steps")}
    return HealingSetup(**{**document, **tuples})


def expected_gap(setup: HealingSetup, looks: Sequence[Look], step: int) -> float | None:
    """The gap (nats) that a switch is expected to have; None where the candidate's is unknown."""
    if setup.gap is None:
        return None
    known = {0: 0.0, setup.run_steps: setup.gap}
    known |= {look.step: look.gap for look in looks if look.gap is not None}
    steps = sorted(known)
    places = [(other / setup.run_steps) ** _POWER for other in steps]
    place = (step / setup.run_steps) ** _POWER
    return float(np.interp(place, places, [known[other] for other in steps]))


def estimated_switch(setup: HealingSetup, looks: Sequence[Look]) -> int | None:
    """The latest kept step up to which every expected gap is below the margin, noise left aside: an
    estimate, which may be named where looks are open, and never a pass. None where there is none,
    or no look.
    """
    if setup.gap is None or setup.margin is None or not any(look.gap is not None for look in looks):
        return None
    margin = setup.margin
    below = takewhile(lambda step: (expected_gap(setup, looks, step) or 0.0) < margin, setup.steps)
    return max(below, default=None)


def _chosen(setup: HealingSetup, looks: Sequence[Look]) -> int | None:
    """The next step, whatever it costs."""
    untested = _untested(setup, looks)
    if any(look.verdict == INCONCLUSIVE and look.gap is None for look in looks):
        return None
    looks_left = setup.most_looks - len(looks)
    if not untested or looks_left < 1:
        return None
    last = len(untested) - 1
    allowed = [
        step
        for place, step in enumerate(untested)
        if max(looks_for(place), looks_for(last - place)) < looks_left
    ] or [untested[last // 2]]
    if setup.gap is None or setup.margin is None:
        return allowed[len(allowed) // 2]
    room = setup.margin - (setup.half_width or 0.0)
    passing = [step for step in allowed if (expected_gap(setup, looks, step) or 0.0) < room]
    return passing[-1] if passing else allowed[0]


def _is_too_dear(setup: HealingSetup, looks: Sequence[Look], step: int) -> bool:
    return steps_spent(setup, looks) + cost_of(setup, step) > setup.most_steps


def _ends(setup: HealingSetup, looks: Sequence[Look]) -> tuple[int | None, int]:
    """The latest step that passes before every fail, and the earliest after it that does not."""
    first_fail = min((look.step for look in looks if look.verdict == FAIL), default=setup.run_steps)
    passes = [look.step for look in looks if look.verdict == PASS and look.step < first_fail]
    switch = max(passes, default=None)
    others = [
        look.step
        for look in looks
        if look.verdict in (FAIL, INCONCLUSIVE) and look.step > (switch or 0)
    ]
    return switch, min(others, default=setup.run_steps)


def _untested(setup: HealingSetup, looks: Sequence[Look]) -> tuple[int, ...]:
    """The kept steps that can still change which switch is named."""
    switch, until = _ends(setup, looks)
    tested = {look.step for look in looks}
    return tuple(
        step for step in setup.steps if (switch or 0) < step < until and step not in tested
    )


def _contradictions(looks: Sequence[Look]) -> tuple[Contradiction, ...]:
    """The pairs of looks in which the earlier switch has the larger gap, beyond both intervals, or
    fails where the later one passes.
    """
    pairs = combinations(sorted(looks, key=lambda look: look.step), 2)
    return tuple(
        Contradiction(earlier=earlier.step, later=later.step)
        for earlier, later in pairs
        if (earlier.verdict == FAIL and later.verdict == PASS)
        or (earlier.low is not None and later.high is not None and earlier.low > later.high)
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
