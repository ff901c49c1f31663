"""Which policy is the fastest that the judge will pass? What to run next, as a pure function of the results so far.

    1  forks    each switch alone, the candidate and the baseline, from the baseline's checkpoints of every parent
    2  pilots   one full run at a time, of the policy that promises most
    3  confirm  fresh pairs of the fastest policy that passes with 95 % power; after a fail or an inconclusive, of the next one

After each step `believe` gives the gap of every policy with its error. A policy is out if its gap is above the target (the largest gap with
95 % power) with 98 % probability, or if it is no faster than the leader, the fastest one that may be confirmed now. Of the others, the one
with the largest chance to fit times the time that it would save is run; if none would save 1 % of a step, the leader is confirmed.

If forks do not see the candidate's gap (95 %), the search ends: forks of this checkpoint have no effect, or the opposite one.

`ask` names what lacks, and the same results give the same answer: a search that was stopped goes on with what is on record.
Can fail: see `belief`; whatever is wrong there costs time or a confirmation, never a wrong pass (`power`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging import special
from parity.judging.curve import FloatArray
from parity.search.belief import Belief, Noise, Shares, believe
from parity.search.evaluations import Evaluation, Outcome, Result
from parity.search.policies import Policy, all_policies, alone
from parity.search.power import WANTED, Confirmation
from parity.why.estimate import Estimate
from parity.why.forks import Arm, Forks, effect, fork_noise

AA_DRAWS = 2
OUT = 0.02
WORTH = 0.01
Step = tuple[Evaluation, ...]
_NO_SD = 1e-12  # nats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """What a search knows before it runs anything.

    `times` (2^n,) are those of a step, by policy (`cost`). `given` are full runs that exist: of the baseline and of the candidate, at least
    one each. `parents` are baseline runs with a kept checkpoint. `baseline_sd` and `candidate_sd` are the run noise (nats).
    """

    size: int
    times: FloatArray
    given: tuple[Result, ...]
    parents: tuple[str, ...]
    baseline_sd: float
    candidate_sd: float
    confirmation: Confirmation
    target: float
    pilots: int = 4

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
    passes: FloatArray
    fits: FloatArray


def ask(setting: Setting, results: Sequence[Result], barred: Collection[Policy] = ()) -> Step | Outcome:
    """What to run next (all of it may run at once), or how the search ended. The order of `results` does not matter.

    `barred` policies have been judged by another job: they are neither confirmed nor tried in pilots.
    """
    have = {result.evaluation: result for result in results}
    batches: list[list[Result]] = []
    while True:
        step = _next(setting, batches, barred)
        if isinstance(step, Outcome):
            return step
        lacking = tuple(each for each in step if each not in have)
        if lacking:
            return lacking
        batches.append([have[each] for each in step])


def first_step(setting: Setting) -> Step:
    """The forks of every switch alone, and the A/A forks, for each parent."""
    both_ends = [("0" * setting.size, draw) for draw in range(AA_DRAWS)] + [("1" * setting.size, draw) for draw in range(AA_DRAWS)]
    own = dict.fromkeys([*both_ends, *((alone(setting.size, at), 0) for at in range(setting.size))])  # a single switch is the candidate
    return tuple(Evaluation(kind="fork", policy=policy, number=draw, parent=parent) for parent in setting.parents for policy, draw in own)


def shares(setting: Setting, forks: Sequence[Result]) -> tuple[Estimate, tuple[Estimate, ...]]:
    """The effects (nats) of the candidate and of each switch alone in the forks of the first step."""
    unchanged, everything = (_by_parent(forks, bit * setting.size) for bit in "01")
    noise = fork_noise([unchanged, everything])
    baseline = Arm(forks=unchanged, noise=noise)
    own = [effect(Arm(forks=_by_parent(forks, alone(setting.size, at)), noise=noise), baseline) for at in range(setting.size)]
    return effect(Arm(forks=everything, noise=noise), baseline), tuple(own)


def rate(setting: Setting, batches: Sequence[Sequence[Result]]) -> Rating:
    """Every policy after these batches, of which the first is `first_step`."""
    whole, own = shares(setting, batches[0])
    policies = all_policies(setting.size)
    belief = believe(
        policies,
        [*setting.given, *(result for batch in batches for result in batch)],
        Noise(baseline=setting.baseline_sd, candidate=setting.candidate_sd),
        Shares(gap=candidate_gap(setting), whole=whole.value, own=own),
    )
    passes = setting.confirmation.expected(belief.mean, belief.sd)
    fits: FloatArray = special.ndtr((setting.target - belief.mean) / np.maximum(belief.sd, _NO_SD))
    return Rating(policies=policies, belief=belief, passes=passes, fits=fits)


def candidate_gap(setting: Setting) -> float:
    """The candidate's gap in the full runs that are given, in nats."""
    means = [
        np.mean([each.value for each in setting.given if each.evaluation.kind == "run" and each.evaluation.policy == bit * setting.size])
        for bit in "01"
    ]
    return float(means[1] - means[0])


def fastest(setting: Setting, rating: Rating, least: float = WANTED, tried: Sequence[Policy] = ()) -> int | None:
    """The number of the fastest policy that passes with at least this chance and was not tried, or None."""
    may = [at for at, policy in enumerate(rating.policies) if rating.passes[at] >= least and policy not in tried]
    return min(may, key=lambda at: (setting.times[at], at)) if may else None


def _next(setting: Setting, batches: Sequence[Sequence[Result]], barred: Collection[Policy]) -> Step | Outcome:
    """The step after these complete ones."""
    flat = [result for batch in batches for result in batch]
    confirmed = [result for result in flat if result.evaluation.kind == "confirmation"]
    if confirmed and confirmed[-1].passed:
        return Outcome(policy=confirmed[-1].evaluation.policy, reason="it passed its confirmation", confirmations=len(confirmed))
    if candidate_gap(setting) <= 0.0:
        return _end("the candidate's runs are no worse than the baseline's; there is no gap to search for")
    if not batches:
        return first_step(setting)
    if shares(setting, batches[0])[0].bounds(0.9)[0] <= 0.0:
        return _end("forks from this checkpoint do not show the candidate's gap; keep an earlier checkpoint, or compare full runs")
    rating = rate(setting, batches)
    tried = [*barred, *(result.evaluation.policy for result in confirmed)]
    leader = fastest(setting, rating, tried=tried)
    pilots = [result.evaluation.policy for result in flat if result.evaluation.kind == "run"]
    if not confirmed and len(pilots) < setting.pilots:
        best = _promising(setting, rating, leader, barred)
        if best is not None:
            return (Evaluation(kind="run", policy=rating.policies[best], number=pilots.count(rating.policies[best])),)
    if leader is None or rating.policies[leader] == "0" * setting.size:
        return _end("no policy faster than the baseline passes its confirmation with 95 % power", len(confirmed))
    policy = rating.policies[leader]
    if len(confirmed) < setting.confirmation.most:
        return (Evaluation(kind="confirmation", policy=policy, number=len(confirmed)),)
    return _end("no policy passed its confirmation", len(confirmed))


def _promising(setting: Setting, rating: Rating, leader: int | None, barred: Collection[Policy]) -> int | None:
    """The policy, neither out nor barred, with the largest chance to fit times the time that it saves; None if that is below 1 %."""
    reference = float(setting.times[leader]) if leader is not None else 1.0
    is_open = np.array([policy not in barred for policy in rating.policies])
    gains = np.where((rating.fits > OUT) & is_open, (1.0 - setting.times / reference) * rating.fits, 0.0)
    best = int(np.argmax(gains))
    return best if gains[best] >= WORTH else None


def _by_parent(results: Sequence[Result], policy: Policy) -> Forks:
    rows = [(each.evaluation.parent, each.value) for each in results if each.evaluation.kind == "fork" and each.evaluation.policy == policy]
    return {parent: [value for own, value in rows if own == parent] for parent in dict.fromkeys(own for own, _ in rows)}


def _end(reason: str, confirmations: int = 0) -> Outcome:
    return Outcome(policy=None, reason=reason, confirmations=confirmations)
