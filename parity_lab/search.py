"""Which assignment is the fastest that the judge will pass? What to run next, as a pure function of
the setup and the results so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from parity.design.chances import drawing
from parity.design.experiment import BASELINE, CANDIDATE, Design
from parity.judging import special
from parity.judging.curve import FloatArray
from parity.judging.lending import Lenders
from parity.judging.noise_table import read_noise_table
from parity.judging.policy import Policy, policy_from_mapping
from parity.structure import frozen
from parity.wording import age_in_words, count
from parity_lab.answer import nats_words
from parity_lab.assignments import Assignment, Space, Switch, all_assignments, alone, export_lines
from parity_lab.belief import (
    WANTED,
    Belief,
    Confirmation,
    Evaluation,
    Noise,
    Outcome,
    Result,
    Shares,
    believe,
    confirmation,
)
from parity_lab.effects import Arm, Estimate, effect, fork_noise
from parity_lab.effects import Forks as MeasuredForks
from parity_lab.replay import Replay, replays_from

# Which assignment is the fastest that the judge will pass? What to run next, as a pure function of
# the results so far.
#
#     1  forks    each switch alone, the candidate and the baseline, from the baseline's checkpoints
#        of every parent
#     2  pilots   one full run at a time, of the assignment that promises most
#     3  confirm  fresh pairs of the fastest assignment that passes with 95 % power; after a fail or
#        an inconclusive, of the next one
#
# After each step `believe` gives the gap of every assignment with its error. An assignment is out
# if its gap is above the target (the largest gap with 95 % power) with 98 % probability, or if it
# is no faster than the leader, the fastest one that may be confirmed now. Of the others, the one
# with the largest chance to fit times the time that it would save is run; if none would save 1 % of
# a step, the leader is confirmed.
#
# If forks do not see the candidate's gap (95 %), the search ends: forks of this checkpoint have no
# effect, or the opposite one.
#
# `ask` names what lacks, and the same results give the same answer: a search that was stopped goes
# on with what is on record. Can fail: see `parity_lab.belief`; whatever is wrong there costs time
# or a confirmation, never a wrong pass.

AA_DRAWS = 2
OUT = 0.02
WORTH = 0.01
Step = tuple[Evaluation, ...]
_NO_SD = 1e-12  # nats


@frozen(eq=False)
class Setting:
    """What a search knows before it runs anything.

    `times` (2^n,) are those of a step, by assignment (`cost`). `given` are full runs that exist: of
    the baseline and of the candidate, at least one each. `parents` are baseline runs with a kept
    checkpoint. `baseline_sd` and `candidate_sd` are the run-to-run noise (nats).
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
            raise ValueError(
                f"{len(self.times)} times, expected {2**self.size}: one for each assignment of "
                f"{self.size} switches"
            )
        for assignment in ("0" * self.size, "1" * self.size):
            if not self.losses(assignment):
                raise ValueError(
                    f"no run of assignment {assignment} is given, expected full runs of the "
                    "baseline and of the candidate"
                )
        if not self.parents:
            raise ValueError(
                "there are no parents, expected baseline runs with a kept checkpoint "
                "(`keep_checkpoints`)"
            )

    def losses(self, assignment: Assignment) -> list[float]:
        """Those of the given runs of an assignment, in nats."""
        return [
            each.value
            for each in self.given
            if each.evaluation.kind == "run" and each.evaluation.assignment == assignment
        ]


@frozen
class Rating:
    """Every assignment after the results so far: gaps, chance to pass a confirmation, chance that
    the gap is at or below the target.
    """

    assignments: tuple[Assignment, ...]
    belief: Belief
    passes: FloatArray
    fits: FloatArray


def ask(
    setting: Setting, results: Sequence[Result], barred: Collection[Assignment] = ()
) -> Step | Outcome:
    """What to run next (all of it may run at once), or how the search ended. The order of `results`
    does not matter.

    `barred` assignments have been judged by another job: they are neither confirmed nor tried in
    pilots.
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
    both_ends = [(bit * setting.size, draw) for bit in "01" for draw in range(AA_DRAWS)]
    # a single switch is the candidate
    own = dict.fromkeys([*both_ends, *((alone(setting.size, at), 0) for at in range(setting.size))])
    return tuple(
        Evaluation(kind="fork", assignment=assignment, number=draw, parent=parent)
        for parent in setting.parents
        for assignment, draw in own
    )


def shares(setting: Setting, forks: Sequence[Result]) -> tuple[Estimate, tuple[Estimate, ...]]:
    """The effects (nats) of the candidate and of each switch alone in the forks of the first
    step.
    """
    unchanged, everything = (_by_parent(forks, bit * setting.size) for bit in "01")
    noise = fork_noise([unchanged, everything])
    baseline = Arm(forks=unchanged, noise=noise)
    arms = (everything, *(_by_parent(forks, alone(setting.size, at)) for at in range(setting.size)))
    whole, *own = (effect(Arm(forks=each, noise=noise), baseline) for each in arms)
    return whole, tuple(own)


def rate(setting: Setting, batches: Sequence[Sequence[Result]]) -> Rating:
    """Every assignment after these batches, of which the first is `first_step`."""
    whole, own = shares(setting, batches[0])
    assignments = all_assignments(setting.size)
    belief = believe(
        assignments,
        [*setting.given, *(result for batch in batches for result in batch)],
        Noise(baseline=setting.baseline_sd, candidate=setting.candidate_sd),
        Shares(gap=candidate_gap(setting), whole=whole.value, own=own),
    )
    passes = setting.confirmation.expected(belief.mean, belief.sd)
    fits: FloatArray = special.ndtr((setting.target - belief.mean) / np.maximum(belief.sd, _NO_SD))
    return Rating(assignments=assignments, belief=belief, passes=passes, fits=fits)


def candidate_gap(setting: Setting) -> float:
    """The candidate's gap in the full runs that are given, in nats."""
    baseline, candidate = (np.mean(setting.losses(bit * setting.size)) for bit in "01")
    return float(candidate - baseline)


def fastest(setting: Setting, rating: Rating, tried: Sequence[Assignment] = ()) -> int | None:
    """The number of the fastest assignment that passes with at least 95 % power and was not tried,
    or None.
    """
    may = [
        at
        for at, assignment in enumerate(rating.assignments)
        if rating.passes[at] >= WANTED and assignment not in tried
    ]
    if not may:
        return None
    return min(may, key=lambda at: (setting.times[at], at))


def _next(
    setting: Setting, batches: Sequence[Sequence[Result]], barred: Collection[Assignment]
) -> Step | Outcome:
    """The step after these complete ones."""
    flat = [result for batch in batches for result in batch]
    confirmed = [result for result in flat if result.evaluation.kind == "confirmation"]
    if confirmed and confirmed[-1].passed:
        return Outcome(
            assignment=confirmed[-1].evaluation.assignment, reason="it passed its confirmation"
        )
    if candidate_gap(setting) <= 0.0:
        return Outcome(
            reason="the candidate's runs are no worse than the baseline's; there is no gap to "
            "search for"
        )
    if not batches:
        return first_step(setting)
    if shares(setting, batches[0])[0].bounds(0.9)[0] <= 0.0:
        reason = (
            "forks from this checkpoint do not show the candidate's gap; keep an earlier "
            "checkpoint, or compare full runs"
        )
        return Outcome(reason=reason)
    rating = rate(setting, batches)
    tried = [*barred, *(result.evaluation.assignment for result in confirmed)]
    leader = fastest(setting, rating, tried=tried)
    pilots = [result.evaluation.assignment for result in flat if result.evaluation.kind == "run"]
    if not confirmed and len(pilots) < setting.pilots:
        best = _promising(setting, rating, leader, barred)
        if best is not None:
            return (
                Evaluation(
                    kind="run",
                    assignment=rating.assignments[best],
                    number=pilots.count(rating.assignments[best]),
                ),
            )
    if leader is None or rating.assignments[leader] == "0" * setting.size:
        return Outcome(
            reason="no assignment faster than the baseline passes its confirmation with 95 % power"
        )
    if len(confirmed) < setting.confirmation.most:
        return (
            Evaluation(
                kind="confirmation", assignment=rating.assignments[leader], number=len(confirmed)
            ),
        )
    return Outcome(reason="no assignment passed its confirmation")


def _promising(
    setting: Setting, rating: Rating, leader: int | None, barred: Collection[Assignment]
) -> int | None:
    """The assignment, neither out nor barred, with the largest chance to fit times the time that it
    saves; None if that is below 1 %.
    """
    reference = float(setting.times[leader]) if leader is not None else 1.0
    is_open = np.array([assignment not in barred for assignment in rating.assignments])
    gains = np.where(
        (rating.fits > OUT) & is_open, (1.0 - setting.times / reference) * rating.fits, 0.0
    )
    best = int(np.argmax(gains))
    return best if gains[best] >= WORTH else None


def _by_parent(results: Sequence[Result], assignment: Assignment) -> MeasuredForks:
    rows = [
        (each.evaluation.parent, each.value)
        for each in results
        if each.evaluation.kind == "fork" and each.evaluation.assignment == assignment
    ]
    return {
        parent: [value for own, value in rows if own == parent]
        for parent in dict.fromkeys(own for own, _ in rows)
    }


# What a search is given, fixed before it begins, as a document: so that the same record gives the
# same next step.
#
# A fork of a search is trained from a baseline's checkpoint with random numbers of its own: no two
# share a draw.

SwitchSource = Literal["request", "analysis", "default"]
"""Where switches come from: named by the request, by an analysis of the base job, or parts of
blocks.
"""
GIVEN = 1000  # the full runs that a search starts from are numbered from here


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """One search. Losses are in nats, costs in steps of training.

    `times` (2^n,) are those of a step by assignment, as a share of the baseline's. `given` are
    losses of full runs of the baseline and of the candidate. `parents` are ids of baseline runs
    whose checkpoint of `fork_step` is kept. `margin` is in nats. `noise_table` is the noise table
    from which confirmations borrow, of `family`; None without one. `budget`: the largest cost of
    everything. `switches_from` says where the switches come from, `analysis` is the job whose
    answer they follow. `replays`: recorded steps that are trained again before the first forks
    (`parity_lab.replay`); a search of an earlier version has none.
    """

    switches: tuple[Switch, ...]
    times: tuple[float, ...]
    given: Mapping[Assignment, Sequence[float]]
    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    run_steps: int
    pairs: int
    pilots: int
    confirmations: int
    margin: float
    design: Mapping[str, Any]
    policy: Mapping[str, Any]
    noise_table: str | None
    family: str | None
    budget: float | None = None
    switches_from: SwitchSource | None = None
    analysis: str | None = None
    replays: tuple[Replay, ...] = ()

    @property
    def space(self) -> Space:
        """Its assignments."""
        return Space(switches=self.switches)

    @property
    def policy_of_the_job(self) -> Policy:
        """The policy of the job that it starts from."""
        return policy_from_mapping(self.policy)

    @cached_property
    def _lenders(self) -> Lenders:
        if self.family and self.noise_table:
            families = {BASELINE: self.family, CANDIDATE: self.family}
        else:
            families = {}
        return Lenders(read_noise_table(self.noise_table) if self.noise_table else None, families)

    @cached_property
    def confirmation(self) -> Confirmation:
        """One of its confirmations."""
        return confirmation(
            Design(**self.design),
            self.policy_of_the_job,
            self.margin,
            self.confirmations,
            self._lenders,
        )

    @cached_property
    def target(self) -> float | None:
        """The largest gap (nats) that a confirmation passes with 95 % power; None where even a gap
        of 0 has less.
        """
        return self.confirmation.largest_gap()

    @cached_property
    def setting(self) -> Setting:
        """The same for `parity_lab.search`. ValueError for one that no assignment could pass."""
        if self.target is None:
            chance = self.confirmation.passes(0.0)
            raise ValueError(
                f"an assignment without a gap would be confirmed with {100 * chance:.0f} %, "
                f"expected at least {100 * WANTED:.0f} %"
            )
        taus = drawing(Design(**self.design), self.policy_of_the_job, self._lenders).taus
        return Setting(
            size=len(self.switches),
            times=np.array(self.times),
            given=tuple(
                Result(
                    evaluation=Evaluation(kind="run", assignment=assignment, number=GIVEN + at),
                    value=value,
                )
                for assignment, losses in self.given.items()
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
        """What a step costs, with the replays before forks."""
        each = {
            "fork": self.fork_steps,
            "run": self.run_steps,
            "confirmation": 2 * self.pairs * self.run_steps,
        }
        replays = sum(own.steps for own in self.replays) if step[0].kind == "fork" else 0
        return float(replays + sum(each[evaluation.kind] for evaluation in step))

    @property
    def least_steps(self) -> float:
        """The cost of the replays and forks, after which a search without a chance ends."""
        return self.cost(first_step(self.setting))

    @property
    def most_steps(self) -> float:
        """The cost if everything is needed: the forks, every pilot and every confirmation; at most
        the budget.
        """
        most = (
            self.least_steps + (self.pilots + self.confirmations * 2 * self.pairs) * self.run_steps
        )
        if self.budget is None:
            return most
        return min(most, self.budget)


def setup_from(document: Mapping[str, Any]) -> SearchSetup:
    """The setup of a document: that of `asdict`."""
    switches = tuple(Switch(**each) for each in document["switches"])
    lists = {
        "switches": switches,
        "times": tuple(document["times"]),
        "parents": tuple(document["parents"]),
    }
    return SearchSetup(
        **{**document, **lists, "replays": replays_from(document.get("replays", ()))}
    )


@frozen
class ForkOfAssignment:
    """A fork to train: its key on the record, the name of its assignment's arm, its parent, and
    which random numbers it takes.
    """

    key: str
    assignment: str
    parent: str
    draw: int


@frozen
class Forks:
    """The forks of one step, from the checkpoint of `fork_step` of their parents, each `fork_steps`
    long; the `replays` come before.
    """

    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    forks: tuple[ForkOfAssignment, ...]
    replays: tuple[Replay, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Forks:
        """The forks of a document: that of `asdict`."""
        rows = tuple(ForkOfAssignment(**each) for each in document["forks"])
        replays = replays_from(document.get("replays", ()))
        return cls(
            **{**document, "parents": tuple(document["parents"]), "forks": rows, "replays": replays}
        )


def forks_of(setup: SearchSetup, step: Sequence[Evaluation]) -> Forks:
    """The forks of a step."""
    size = len(setup.switches)
    return Forks(
        parents=setup.parents,
        fork_step=setup.fork_step,
        fork_steps=setup.fork_steps,
        replays=setup.replays if step[0].kind == "fork" else (),
        forks=tuple(
            ForkOfAssignment(
                key=key_of(each),
                assignment=arm_name(each.assignment),
                parent=each.parent,
                draw=1 + each.number * 2**size + int(each.assignment, 2),
            )
            for each in step
        ),
    )


def key_of(evaluation: Evaluation) -> str:
    """The key of a fork's result."""
    return f"{evaluation.assignment}.{evaluation.number}.{evaluation.parent}"


def arm_name(assignment: Assignment) -> str:
    """The name of the arm that trains an assignment."""
    return f"assignment-{assignment}"


# A search in lines of text, as the command line prints it.

_SHOWN = 8


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """What a search runs, costs and guarantees."""
    yield (
        f"{plan['candidate']} of {plan['base_name']} ({plan['base']}): "
        f"{plan['candidate_speed']:.2f} times the baseline's speed per step"
    )
    names = ", ".join(each["name"] for each in plan["switches"])
    yield (
        f"space: {2 ** len(plan['switches']):,} assignments of "
        f"{count(len(plan['switches']), 'switch', 'switches')}: {names}"
    )
    source = switches_words(plan)
    if source:
        yield f"switches: {source}"
    parents = count(len(plan["parents"]), "baseline run")
    yield (
        f"forks: {plan['fork_steps']} steps from step {plan['fork_step']:,} of {parents}; at most "
        f"{count(plan['pilots'], 'pilot run')}"
    )
    yield (
        f"confirmation: {count(plan['pairs'], 'fresh pair')} at {100 * plan['confidence']:.4g} %, "
        f"at most {plan['confirmations']} times; "
        f"aims at gaps up to {plan['target']:.4f} nats, which pass with 95 % power (margin "
        f"{plan['margin']:.4f})"
    )
    if plan["seconds"] is not None:
        time = f"; the most takes about {age_in_words(plan['seconds'])} on one device"
    else:
        time = ""
    yield (
        f"cost: {plan['least_steps']:,.0f} to {plan['most_steps']:,.0f} steps; a pair of full runs "
        f"has {plan['pair_steps']:,}{time}"
    )
    yield (
        f"guarantee: {plan['guarantee']} It counts for one search on this question, and is as good "
        "as the judge's interval."
    )


def switches_words(plan: Mapping[str, Any]) -> str:
    """Where the switches come from; empty for a search that did not record it."""
    source = plan.get("switches_from")  # a server of an older version has none
    if source == "analysis":
        return f"what analysis {plan['analysis']} named, then the other blocks"
    if source == "default":
        return (
            f"attention and MLP by GEMM; no analysis of {plan['base']} names a part (`parity why "
            f"{plan['base']}` makes one)"
        )
    if source == "request":
        return "as named in search.switches"
    return ""


def step_line(step: Mapping[str, Any]) -> str:
    """A step in one line."""
    if len(step["assignments"]) == 1:
        what = step["assignments"][0]
    else:
        what = count(len(step["assignments"]), "assignment", "assignments")
    return (
        f"step {step['number']}: {step['kind']} of {what}, {step['cost']:,.0f} steps, "
        f"{step['status']}" + (f": {step['outcome']}" if step["outcome"] else "")
    )


def answer_lines(search: Mapping[str, Any]) -> Iterator[str]:
    """How a search ended."""
    if search["assignment"] is None:
        yield f"no assignment: {search['message']}"
    else:
        own = next(
            each for each in search["assignments"] if each["assignment"] == search["assignment"]
        )
        back = ", ".join(own["takes_back"]) or "nothing"
        yield (
            f"confirmed: assignment {own['assignment']}, {search['speed']:.2f} times the "
            f"baseline's speed per step; takes back {back}"
        )
        last = next(step for step in reversed(search["steps"]) if step["kind"] == "confirmation")
        yield f"{last['outcome']}; job {last['job']}"
    yield f"{search['steps_spent']:,.0f} steps spent in {count(len(search['steps']), 'step')}"
    for each in search["assignments"][:_SHOWN]:
        gap = nats_words(each["gap"], each["low"], each["high"])
        yield f"  {each['assignment']}  {each['speed']:.2f}x  {gap}  {each['state']}"
    if search["assignment"] is not None:
        candidate = search["job"]["candidates"][0]
        yield from export_lines(candidate["recipe"], candidate.get("overrides", ()))
    yield f"guarantee: {search['plan']['guarantee']}"
