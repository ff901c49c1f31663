"""What a search is given, fixed before it begins, as a document: so that the same record gives the same next step.

A fork of a search is trained from a baseline's checkpoint with random numbers of its own: no two share a draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from parity.design.chances import drawing
from parity.design.experiment import BASELINE, CANDIDATE, Design
from parity.judging.criteria import Criteria, criteria_from_mapping
from parity.judging.floors.groups import read_floors
from parity.judging.floors.lending import Lenders
from parity.search.evaluations import Evaluation, Result
from parity.search.policies import Policy, Space, Switch
from parity.search.power import WANTED, Confirmation, confirmation
from parity.search.search import Setting, Step, first_step

SwitchSource = Literal["request", "analysis", "default"]
"""Where switches come from: named by the request, by an analysis of the base job, or parts of blocks."""
GIVEN = 1000  # the full runs that a search starts from are numbered from here


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """One search. Losses are in nats, costs in steps of training.

    `times` (2^n,) are those of a step by policy, as a share of the baseline's. `given` are losses of full runs of the baseline and of the
    candidate. `parents` are ids of baseline runs whose checkpoint of `fork_step` is kept. `margin` is in nats. `floors` is the table of
    reruns from which confirmations borrow, of `family`; None without one. `budget`: the largest cost of everything.
    `switches_from` says where the switches come from, `analysis` is the job whose answer they follow.
    """

    switches: tuple[Switch, ...]
    times: tuple[float, ...]
    given: Mapping[Policy, Sequence[float]]
    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    run_steps: int
    pairs: int
    pilots: int
    confirmations: int
    margin: float
    design: Mapping[str, Any]
    criteria: Mapping[str, Any]
    floors: str | None
    family: str | None
    budget: float | None = None
    switches_from: SwitchSource | None = None
    analysis: str | None = None

    @property
    def space(self) -> Space:
        """Its policies."""
        return Space(switches=self.switches)

    @property
    def policy_of_the_job(self) -> Criteria:
        """The criteria of the job that it starts from."""
        return criteria_from_mapping(self.criteria)

    @cached_property
    def _lenders(self) -> Lenders:
        families = {BASELINE: self.family, CANDIDATE: self.family} if self.family and self.floors else {}
        return Lenders(read_floors(self.floors) if self.floors else None, families)

    @cached_property
    def confirmation(self) -> Confirmation:
        """One of its confirmations."""
        return confirmation(Design(**self.design), self.policy_of_the_job, self.margin, self.confirmations, self._lenders)

    @cached_property
    def target(self) -> float | None:
        """The largest gap (nats) that a confirmation passes with 95 % power; None where even a gap of 0 has less."""
        return self.confirmation.largest_gap(WANTED)

    @cached_property
    def setting(self) -> Setting:
        """The same for `parity.search.search`. ValueError for one that no policy could pass."""
        if self.target is None:
            chance = self.confirmation.passes(0.0)
            raise ValueError(f"a policy without a gap would be confirmed with {100 * chance:.0f} %, expected at least {100 * WANTED:.0f} %")
        taus = drawing(Design(**self.design), self.policy_of_the_job, self._lenders).taus
        return Setting(
            size=len(self.switches),
            times=np.array(self.times),
            given=tuple(
                Result(evaluation=Evaluation(kind="run", policy=policy, number=GIVEN + at), value=value)
                for policy, losses in self.given.items()
                for at, value in enumerate(losses)
            ),
            parents=self.parents,
            baseline_sd=taus[0],
            candidate_sd=taus[1],
            confirmation=self.confirmation,
            target=self.target,
            pilots=self.pilots,
        )

    def cost(self, step: Step) -> float:
        """What a step costs."""
        each = {"fork": self.fork_steps, "run": self.run_steps, "confirmation": 2 * self.pairs * self.run_steps}
        return float(sum(each[evaluation.kind] for evaluation in step))

    @property
    def least_steps(self) -> float:
        """The cost of the forks, after which a search without a chance ends."""
        return self.cost(first_step(self.setting))

    @property
    def most_steps(self) -> float:
        """The cost if everything is needed: the forks, every pilot and every confirmation; at most the budget."""
        late = self.pilots * self.run_steps + self.confirmations * 2 * self.pairs * self.run_steps
        most = self.least_steps + late
        return most if self.budget is None else min(most, self.budget)

    def document(self) -> dict[str, Any]:
        """The setup as a JSON-able dict; `setup_from` gives it back."""
        return asdict(self) | {"switches": [{"name": each.name, "override": dict(each.override)} for each in self.switches]}


def setup_from(document: Mapping[str, Any]) -> SearchSetup:
    """The setup of a document."""
    switches = tuple(Switch(**each) for each in document["switches"])
    return SearchSetup(**{**document, "switches": switches, "times": tuple(document["times"]), "parents": tuple(document["parents"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOfPolicy:
    """A fork to train: its key on the record, the name of its policy's arm, its parent, and which random numbers it takes."""

    key: str
    policy: str
    parent: str
    draw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """The forks of one step, from the checkpoint of `fork_step` of their parents, each `fork_steps` long."""

    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    forks: tuple[ForkOfPolicy, ...]

    def document(self) -> dict[str, Any]:
        """The forks as a JSON-able dict; `read` gives them back."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Forks:
        """The forks of a document."""
        rows = tuple(ForkOfPolicy(**each) for each in document["forks"])
        return cls(**{**document, "parents": tuple(document["parents"]), "forks": rows})


def forks_of(setup: SearchSetup, step: Sequence[Evaluation]) -> Forks:
    """The forks of a step."""
    size = len(setup.switches)
    return Forks(
        parents=setup.parents,
        fork_step=setup.fork_step,
        fork_steps=setup.fork_steps,
        forks=tuple(
            ForkOfPolicy(
                key=key_of(each),
                policy=arm_name(each.policy),
                parent=each.parent,
                draw=1 + each.number * 2**size + int(each.policy, 2),
            )
            for each in step
        ),
    )


def key_of(evaluation: Evaluation) -> str:
    """The key of a fork's result."""
    return f"{evaluation.policy}.{evaluation.number}.{evaluation.parent}"


def arm_name(policy: Policy) -> str:
    """The name of the arm that trains a policy."""
    return f"policy-{policy}"
