"""Which policy is the fastest that the judge will pass? What to run next, as a pure function of the results so far.

    1  forks     each switch alone, each switch taken back, the candidate and the baseline, from the baseline's checkpoints of every parent
    2  screening  forks of the policies that promise most; as many as `WIDTHS` says, fewer each round
    3  pilots    full runs of the policy that would be confirmed, which see what forks do not
    4  confirm   fresh pairs of the fastest policy that passes with 95 % power; after a fail or an inconclusive, of the next one

After each batch `believe` gives the gap of every policy with its error. In a round a policy is out if its gap is above the target (the
largest gap with 95 % power) with 98 % probability, or if it is no faster than the fastest one that may be confirmed now. Of the
others, those with the largest expected gain of speed are forked.

If forks do not see the candidate's gap (95 %), there is no screening: forks of this checkpoint have no effect, or the opposite one.

`ask` names what lacks, and the same results give the same answer: a search that was stopped goes on with what is on record.
Can fail: see `belief`; whatever is wrong there costs time or a confirmation, never a wrong pass (`power`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.judging import special
from parity.search.belief import Belief, Noise, Scale, believe
from parity.search.evaluations import Evaluation, Outcome, Result
from parity.search.policies import Policy, all_policies, alone, without
from parity.search.power import WANTED, Confirmation
from parity.why.estimate import Estimate
from parity.why.forks import Forks, effect, fork_noise

WIDTHS = (8, 4, 2)
AA_DRAWS = 2
OUT = 0.02
Step = tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """What a search knows before it runs anything.

    `times` (2^n,) are those of a step, by policy (`cost`). `given` are full runs that exist: of the baseline and of the candidate, at least
    one each. `parents` are baseline runs with a kept checkpoint. `baseline_sd` and `candidate_sd` are the run noise (nats).
    """

    size: int
    times: NDArray[np.float64]
    given: tuple[Result, ...]
    parents: tuple[str, ...]
    baseline_sd: float
    candidate_sd: float
    confirmation: Confirmation
    target: float
    pilots: int = 6
    pilots_each: int = 2
    confirmations: int = 2

    def __post_init__(self) -> None:
        if len(self.times) != 2**self.size:
            raise ValueError(f"{len(self.times)} times, expected {2**self.size}: one for each policy of {self.size} switches")
        for policy in ("0" * self.size, "1" * self.size):
            if not any(each.evaluation.kind == "run" and each.evaluation.policy == policy for each in self.given):
                raise ValueError(f"no run of policy {policy} is given, expected full runs of the baseline and of the candidate")
        if not self.parents:
            raise ValueError("there are no parents, expected baseline runs with a kept checkpoint (`keep_checkpoints`)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """Every policy after the results so far: gaps, chance to pass a confirmation, chance that the gap is at or below the target."""

    policies: tuple[Policy, ...]
    belief: Belief
    passes: NDArray[np.float64]
    fits: NDArray[np.float64]


def ask(setting: Setting, results: Sequence[Result]) -> Step | Outcome:
    """What to run next (all of it may run at once), or how the search ended. The order of `results` does not matter."""
    have = {result.evaluation: result for result in results}
    batches: list[list[Result]] = []
    while True:
        step = _next(setting, batches)
        if isinstance(step, Outcome):
            return step
        lacking = tuple(each for each in step if each not in have)
        if lacking:
            return lacking
        batches.append([have[each] for each in step])


def first_step(setting: Setting) -> Step:
    """The forks of every switch, both ways, and the A/A forks, for each parent."""
    both_ends = [("0" * setting.size, draw) for draw in range(AA_DRAWS)] + [("1" * setting.size, draw) for draw in range(AA_DRAWS)]
    each_switch = [(policy(setting.size, at), 0) for policy in (alone, without) for at in range(setting.size)]
    own = dict.fromkeys([*both_ends, *each_switch])  # a single switch alone is the candidate
    return tuple(Evaluation(kind="fork", policy=policy, number=draw, parent=parent) for parent in setting.parents for policy, draw in own)


def seen(setting: Setting, forks: Sequence[Result]) -> Estimate:
    """The candidate's effect in the forks of the first step, in nats."""
    unchanged, everything = (_by_parent(forks, bit * setting.size) for bit in "01")
    return effect(everything, unchanged, fork_noise([unchanged, everything]))


def rate(setting: Setting, batches: Sequence[Sequence[Result]]) -> Rating:
    """Every policy after these batches, of which the first is `first_step`."""
    first = batches[0]
    arms = [_by_parent(first, bit * setting.size) for bit in "01"]
    whole = candidate_gap(setting)
    noise = Noise(fork=fork_noise(arms).sd, baseline=setting.baseline_sd, candidate=setting.candidate_sd)
    scale = Scale(gap=whole, seen=seen(setting, first).value / whole)
    policies = all_policies(setting.size)
    belief = believe(policies, [*setting.given, *(result for batch in batches for result in batch)], noise, scale)
    passes = setting.confirmation.expected(belief.mean, belief.sd)
    with np.errstate(divide="ignore"):
        fits = special.ndtr((setting.target - belief.mean) / np.maximum(belief.sd, 1e-12))
    return Rating(policies=policies, belief=belief, passes=passes, fits=np.asarray(fits))


def candidate_gap(setting: Setting) -> float:
    """The candidate's gap in the full runs that are given, in nats."""
    means = [
        np.mean([each.value for each in setting.given if each.evaluation.kind == "run" and each.evaluation.policy == bit * setting.size])
        for bit in "01"
    ]
    return float(means[1] - means[0])


def fastest(setting: Setting, rating: Rating, least: float = WANTED, tried: Sequence[Policy] = ()) -> int | None:
    """The number of the fastest policy that passes with at least this chance and was not tried; None if there is none."""
    may = [at for at, policy in enumerate(rating.policies) if rating.passes[at] >= least and policy not in tried]
    return min(may, key=lambda at: (setting.times[at], at)) if may else None


def _next(setting: Setting, batches: Sequence[Sequence[Result]]) -> Step | Outcome:
    """The step after these complete ones."""
    flat = [result for batch in batches for result in batch]
    confirmed = [result for result in flat if result.evaluation.kind == "confirmation"]
    if confirmed and confirmed[-1].passed:
        return Outcome(policy=confirmed[-1].evaluation.policy, reason="it passed its confirmation", confirmations=len(confirmed))
    if candidate_gap(setting) <= 0.0:
        return _end("the candidate's runs are no worse than the baseline's; there is no gap to search for")
    if not batches:
        return first_step(setting)
    if seen(setting, batches[0]).bounds(0.9)[0] <= 0.0:
        return _end("forks from this checkpoint do not show the candidate's gap; keep an earlier checkpoint, or compare full runs")
    rating = rate(setting, batches)
    tried = [result.evaluation.policy for result in confirmed]
    leader = fastest(setting, rating, tried=tried)
    rounds = sum(batch[0].evaluation.kind == "fork" for batch in batches) - 1
    if not confirmed and rounds < len(WIDTHS):
        chosen = _promising(setting, rating, leader, WIDTHS[rounds])
        if chosen:
            return tuple(_new_fork(flat, rating.policies[at], parent) for at in chosen for parent in setting.parents)
    if leader is None or rating.policies[leader] == "0" * setting.size:
        return _end("no policy faster than the baseline passes its confirmation with 95 % power", len(confirmed))
    policy = rating.policies[leader]
    pilots = [result.evaluation.policy for result in flat if result.evaluation.kind == "run"]
    if not confirmed and len(pilots) < setting.pilots and pilots.count(policy) < setting.pilots_each:
        return (Evaluation(kind="run", policy=policy, number=pilots.count(policy)),)
    if len(confirmed) < setting.confirmations:
        return (Evaluation(kind="confirmation", policy=policy, number=len(confirmed)),)
    return _end("no policy passed its confirmation", len(confirmed))


def _promising(setting: Setting, rating: Rating, leader: int | None, width: int) -> list[int]:
    """Of the policies that are not out, those with the largest chance to fit times the speed that they would gain."""
    reference = float(setting.times[leader]) if leader is not None else 1.0
    gains = np.maximum(0.0, 1.0 - setting.times / reference) * rating.fits
    ranked = np.argsort(-gains, kind="stable")
    chosen = [int(at) for at in ranked if gains[at] > 0.0 and rating.fits[at] > OUT]
    return ([leader] if leader is not None else [])[: width - 1] + chosen[: width - 1]


def _new_fork(results: Sequence[Result], policy: Policy, parent: str) -> Evaluation:
    """The next draw of a policy's fork."""
    draws = sum(
        each.evaluation.kind == "fork" and each.evaluation.policy == policy and each.evaluation.parent == parent for each in results
    )
    return Evaluation(kind="fork", policy=policy, number=draws, parent=parent)


def _by_parent(results: Sequence[Result], policy: Policy) -> Forks:
    rows = [(each.evaluation.parent, each.value) for each in results if each.evaluation.kind == "fork" and each.evaluation.policy == policy]
    return {parent: [value for own, value in rows if own == parent] for parent in dict.fromkeys(own for own, _ in rows)}


def _end(reason: str, confirmations: int = 0) -> Outcome:
    return Outcome(policy=None, reason=reason, confirmations=confirmations)
