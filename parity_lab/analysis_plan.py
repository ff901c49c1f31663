"""What an analysis measures, fixed before it begins: its GEMMs, its parents, and how often; and
what that costs and could see.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from parity.frozen import frozen
from parity.judging import special
from parity_lab.halving import LOOKS
from parity_lab.replay import (
    RatesDiffer,
    RecordedRun,
    RecordRequest,
    Replay,
    Role,
    planned,
    replays_from,
)

FORWARD_SHARE = 1.0 / 3.0
POWER = 0.8


# The offset of a fork is settled after some 60 steps, while effects still grow
# (docs/design/attribution.md#forks-train-100-steps).
FORK_STEPS = 100
# Over all parents, at the first look and at the second, which is also that of the ends: with 9 the
# noise of forks was estimated too low too often
# (docs/design/attribution.md#each-end-has-its-own-noise).
FORKS_OF_AN_ARM, NOISE_FORKS = 3, 18
BATCHES, GRADIENT_BATCHES, SEEDS = 8, 4, 2
# of what finding one GEMM costs: so much of the record is trained again whole, in pairs of runs
REPLAY_SHARE = 0.5
# the chance of naming any unit without an effect
# (docs/design/attribution.md#halving-weighed-by-the-gradient)
ALPHA = 0.025
Origin = Role
"""Whose checkpoints are forked: the baseline's, into which units are put, or the candidate's, out
of which they are taken.
"""


@frozen
class Setup:
    """One analysis and its cost. `units` and `ingredients` are names; `parents` are ids of runs
    whose checkpoint of `fork_step` is kept.

    `noise_draws` and `draws` are the forks of an arm for each parent. The two splits are measured
    at the checkpoint of the first parent. `most_steps` is the largest cost, in steps of training,
    at which the search stops. `replays` are the recorded steps that are trained again before
    anything else; an analysis of an earlier version has none. `rates`: where a pair has different
    learning rates on record. `accept_noise`: whether a replay within the noise of reruns is enough,
    where bits may differ.
    """

    units: tuple[str, ...]
    ingredients: tuple[str, ...]
    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    pair_steps: int
    origin: Origin
    noise_draws: int
    draws: int
    batches: int = BATCHES
    gradient_batches: int = GRADIENT_BATCHES
    seeds: int = SEEDS
    most_steps: float = 0.0
    alpha: float = ALPHA
    replays: tuple[Replay, ...] = ()
    rates: RatesDiffer | None = None
    accept_noise: bool = False

    @property
    def replay_steps(self) -> float:
        """The replays, in steps."""
        return float(sum(replay.steps for replay in self.replays))

    @property
    def instant_steps(self) -> float:
        """The instant split, in steps: off, on, two evaluations for each GEMM, one for each
        ingredient.
        """
        rows = 2 + 2 * len(self.units) + len(self.ingredients)
        return self.batches * rows * FORWARD_SHARE

    @property
    def gradient_steps(self) -> float:
        """The gradient split, in steps: for each batch the reference, everything on, and each GEMM
        alone.
        """
        return self.gradient_batches * (1.0 + (1 + len(self.units)) * self.seeds)

    def forks(self, cuts: int) -> int:
        """Forks that are trained if this many clusters are cut and one of their halves is guilty at
        the first look.
        """
        arms = 4 * cuts - 2 if cuts else 0
        return len(self.parents) * (2 * self.noise_draws + arms * self.draws)

    @property
    def cuts_for_one(self) -> int:
        """Clusters that are cut to find one guilty unit if all GEMMs weigh the same."""
        return math.ceil(math.log2(len(self.units)))

    @property
    def least_steps(self) -> float:
        """Steps in all if nothing is guilty: the root alone is tested."""
        return self._steps(0)

    @property
    def steps_for_one(self) -> float:
        """Steps in all if one GEMM is guilty and the gradient points to it."""
        return self._steps(min(1, self.cuts_for_one))

    @property
    def steps_for_any(self) -> float:
        """Steps in all if one GEMM is guilty to which nothing points, and no second look is
        needed.
        """
        return self._steps(self.cuts_for_one)

    @property
    def together_steps(self) -> float:
        """The forks with all named GEMMs off, where several clusters are named."""
        return len(self.parents) * self.draws * self.fork_steps

    def smallest_effect(self, fork_sd: float) -> float:
        """The effect (nats) of one GEMM that the second look at it sees with 80 % power, given the
        noise of forks (nats).
        """
        df = 2 * len(self.parents) * (self.noise_draws - 1)
        # of half of (on - without + alone - off), four arms
        se = fork_sd / math.sqrt(self.noise_draws * len(self.parents))
        # three tests, and the share of one GEMM
        level = self.alpha * LOOKS[-1] / (3 * len(self.units))
        return float((special.stdtrit(df, 1 - level / 2) + special.stdtrit(df, POWER)) * se)

    def _steps(self, cuts: int) -> float:
        return (
            self.replay_steps
            + self.instant_steps
            + self.gradient_steps
            + self.forks(cuts) * self.fork_steps
        )


def make_setup(
    *,
    units: tuple[str, ...],
    ingredients: tuple[str, ...],
    parents: tuple[str, ...],
    fork_step: int,
    run_steps: int,
    fork_steps: int | None = None,
    most_steps: float | None = None,
    recorded: Sequence[RecordedRun] = (),
) -> Setup:
    """A setup with as many forks of the baseline for each parent as three parents need; the largest
    cost is by default that of one guilty unit to which nothing points, and of the forks with all
    named GEMMs off. Steps of the `recorded` runs are replayed first.

    Raises ValueError for forks that would end after the run.
    """
    length = min(FORK_STEPS, run_steps - fork_step) if fork_steps is None else fork_steps
    if not 1 <= length <= run_steps - fork_step:
        raise ValueError(
            f"fork_steps is {length}, expected 1 to {run_steps - fork_step}: the run ends at step "
            f"{run_steps}"
        )
    setup = Setup(
        units=units,
        ingredients=ingredients,
        parents=parents,
        fork_step=fork_step,
        fork_steps=length,
        pair_steps=2 * run_steps,
        origin="baseline",
        noise_draws=-(-NOISE_FORKS // len(parents)),
        draws=-(-FORKS_OF_AN_ARM // len(parents)),
    )
    setup = replace(
        setup,
        replays=planned(recorded, whole=int(REPLAY_SHARE * setup.steps_for_one / setup.pair_steps)),
    )
    return replace(
        setup,
        most_steps=setup.steps_for_any + setup.together_steps if most_steps is None else most_steps,
    )


def replayed_whole(setup: Setup, recorded: Sequence[RecordedRun]) -> Setup:
    """The setup with every recorded step of these runs replayed; what that adds is added to the
    largest cost.
    """
    whole = replace(setup, replays=planned(recorded, whole=len(recorded)))
    return replace(whole, most_steps=setup.most_steps + whole.replay_steps - setup.replay_steps)


def setup_from(document: Mapping[str, Any]) -> Setup:
    """The setup of a document: that of `asdict`."""
    tuples = {name: tuple(document[name]) for name in ("units", "ingredients", "parents")}
    rates = document.get("rates")
    replays, rates = (
        replays_from(document.get("replays", ())),
        RatesDiffer(**rates) if rates else None,
    )
    return Setup(**{**document, **tuples, "replays": replays, "rates": rates})


class MeasureRequest(TypedDict):
    """What a training process measures for an analysis, with its `Setup` as a document.

    `parents`: the specifications of the runs that are forked, by id. `baseline`: that of the
    baseline; None: against bf16. `records`: the runs that are replayed, by id. `results`: what is
    on record by key, which has cost `spent` steps of training.
    """

    setup: dict[str, Any]
    parents: dict[str, dict[str, Any]]
    baseline: dict[str, Any] | None
    records: dict[str, RecordRequest]
    results: dict[str, Any]
    spent: float
