"""Which forks of kept checkpoints a question needs: their plan, what a worker is told, and what the
results on record say of each arm.

A fork trains a run on from a kept checkpoint, with the arithmetic of an arm. No two forks of a
plan share random numbers, so that the forks of one arm and parent differ by their noise
(`parity_lab.effects.fork_noise`), and those of two arms by their effect
(`parity_lab.effects.effect`).

A plan has one checkpoint. A question that compares several steps has a plan for each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from parity.frozen import frozen
from parity_lab.effects import Forks
from parity_lab.parting import replay_steps
from parity_lab.replay import RecordRequest, Replay, ReplayCheck, check, replays_from


@frozen
class PlannedFork:
    """A fork of the run `parent` with the arithmetic of an arm; `draw` says which random numbers it
    takes.
    """

    arm: str
    parent: str
    draw: int

    @property
    def key(self) -> str:
        """The key of its result."""
        return f"fork/{self.arm}/{self.parent}/{self.draw}"


@frozen
class ForkPlan:
    """Forks of the `parents` (ids of runs) from their checkpoint of `fork_step`, each `fork_steps`
    long. The recorded steps of `replays` are trained again first; `accept_noise`: whether a replay
    within the noise of reruns is enough.
    """

    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    forks: tuple[PlannedFork, ...]
    replays: tuple[Replay, ...] = ()
    accept_noise: bool = False

    @property
    def most_steps(self) -> float:
        """The cost of everything but reruns, in steps of training."""
        return float(
            sum(replay.steps for replay in self.replays) + self.fork_steps * len(self.forks)
        )

    def document(self) -> dict[str, Any]:
        """The plan as the record keeps it."""
        return asdict(self)

    def checked(self, results: Mapping[str, Any]) -> ReplayCheck:
        """What the replays say so far."""
        return check(self.replays, results, accept_noise=self.accept_noise)

    def pending(self, results: Mapping[str, Any]) -> tuple[PlannedFork, ...]:
        """The forks that the record lacks; none where the replays end the question."""
        if self.checked(results).ends_it:
            return ()
        return tuple(fork for fork in self.forks if fork.key not in results)

    def steps_spent(self, results: Mapping[str, Any]) -> float:
        """The cost of what is on record, in steps of training."""
        trained = sum(fork.key in results for fork in self.forks)
        return replay_steps(results) + self.fork_steps * trained

    def losses(self, results: Mapping[str, Any], arm: str) -> Forks:
        """The final losses (nats) of an arm's forks by parent, as far as they are on record."""
        losses: dict[str, list[float]] = {parent: [] for parent in self.parents}
        for fork in self.forks:
            if fork.arm == arm and fork.key in results:
                losses[fork.parent].append(float(results[fork.key]))
        return losses


def fork_plan_from(document: Mapping[str, Any]) -> ForkPlan:
    """The plan of a document."""
    return ForkPlan(
        **{
            **document,
            "parents": tuple(document["parents"]),
            "forks": tuple(PlannedFork(**fork) for fork in document["forks"]),
            "replays": replays_from(document["replays"]),
        }
    )


def planned_forks(
    arms: Sequence[str], parents: Sequence[str], number: int
) -> tuple[PlannedFork, ...]:
    """So many forks of each arm and parent, the first of every arm before the second of any."""
    return tuple(
        PlannedFork(arm=arm, parent=parent, draw=1 + repeat * len(arms) + place)
        for repeat in range(number)
        for place, arm in enumerate(arms)
        for parent in parents
    )


class ForkRequest(TypedDict):
    """What a training process measures for a `ForkPlan`, which is `plan` as a document.

    `parents`: the specifications of the runs that are forked, by id. `arms`: those of runs with the
    arithmetic of each arm, by its name. `records`: the runs that are replayed, by id. `results`:
    what is on record by key, which has cost `spent` steps of training.
    """

    plan: dict[str, Any]
    parents: dict[str, dict[str, Any]]
    arms: dict[str, dict[str, Any]]
    records: dict[str, RecordRequest]
    results: dict[str, Any]
    spent: float
