"""What the searches of `experiments.heal` name, next to what all recorded runs say.

search     `parity_lab.healing` with verdicts of the judge on the runs that a job has of each arm
over seeds for each switch the gap of the late window, nats, paired by seed and replicate: its mean
           over all seeds, and Student's 95 % interval over seeds
over runs  the same over the runs of the search's own seed that the search has not seen
right      the latest switch up to which every mean gap is below the margin; 0, the safe recipe from
           the start, where there is none
possible   what the intervals leave open of it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, takewhile

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import stats

from experiments.heal_cases import (
    BASELINE,
    CASES,
    CONTROL_MARGIN,
    JOB_SEED,
    MARGIN_SHARE,
    REPLICATES,
    STEPS,
    SWITCHES,
    Case,
    run_of,
)
from experiments.heal_record import HealRecord, Key, key_of
from parity.effective_recipe import written
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.decision import PASS
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.emulated_table import SMALL, emulated_noise_table
from parity.judging.policy import WINDOW_FRACTION, Policy
from parity.judging.verdict.verdict import Verdict, judge
from parity_lab.healing import (
    Found,
    HealingSetup,
    Look,
    cost_of,
    estimated_switch,
    found,
    next_switch,
    steps_spent,
)
from training.spec import RunSpec, labels_of
from training.trainer import optimizer

Losses = npt.NDArray[np.float64]
Pair = tuple[int, int]
"""Seed and replicate of a run of each arm."""
# seen after the first runs of seed 0: with MARGIN_SHARE few switches heal
OTHER_SHARES = (0.6, 0.8)
Job = tuple[Pair, ...]
JOBS: Mapping[str, Job] = {
    **{
        f"{REPLICATES} runs of seed {seed}": tuple((seed, number) for number in range(REPLICATES))
        for seed in (JOB_SEED, 1)
    },
    **{
        f"{runs} runs of seed {JOB_SEED}": tuple((JOB_SEED, number) for number in range(runs))
        for runs in (6, 9, 12)
    },
    "a run of 6 seeds": tuple((seed, 0) for seed in range(6)),
}
_LATE = round((1.0 - WINDOW_FRACTION) * STEPS)
_CONFIDENCE = 0.95
_NAME = "candidate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap, nats: its mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.high - self.mean:.4f}"


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The gaps (units,) of the switch at each step, nats, in independent units: seeds, or runs."""

    gaps: Mapping[int, Losses]

    def gap(self, step: int) -> Gap:
        """The gap of the switch at a step; at STEPS that of the candidate."""
        return _interval(self.gaps[step])

    @property
    def units(self) -> int:
        """How many there are."""
        return len(self.gaps[STEPS])

    def larger(self, step: int, earlier: int) -> Gap:
        """How much larger the gap of a switch is than that of an earlier one."""
        return _interval(self.gaps[step] - self.gaps[earlier])

    def right_step(self, margin: float) -> int:
        """The step that all runs name."""
        return _latest(lambda step: self.gap(step).mean < margin)

    def possible_steps(self, margin: float) -> list[int]:
        """The right steps that the intervals leave open."""
        earliest = _latest(lambda step: self.gap(step).high < margin)
        latest = _latest(lambda step: self.gap(step).low < margin)
        return [step for step in (0, *SWITCHES) if earliest <= step <= latest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search: its setup, its looks in the order in which it took them, and what they say."""

    setup: HealingSetup
    looks: tuple[Look, ...]
    found: Found

    @property
    def step(self) -> int | None:
        """The step that it names: 0 where not even the earliest switch passes, None where that is
        open.
        """
        return None if self.found.outcome == "open" else self.found.switch or 0

    @property
    def estimate(self) -> int:
        """The step that it estimates, noise left aside; 0 where there is none."""
        return estimated_switch(self.setup, self.looks) or 0

    @property
    def steps_spent(self) -> float:
        """What it cost, in steps of training."""
        return steps_spent(self.setup, self.looks)


class CaseRuns:
    """The recorded runs of one case."""

    def __init__(self, case: Case, recorded: Mapping[Key, HealRecord]) -> None:
        self.case = case
        self._recorded = recorded
        self._verdicts: dict[tuple[int, Job, float], Verdict] = {}
        pairs = sorted({key[3:] for key in recorded})
        arms = [None, STEPS] if case.is_control else [None, STEPS, *SWITCHES]
        self.pairs = [
            pair for pair in pairs if all(self._key(arm, pair) in recorded for arm in arms)
        ]
        """The pairs of which every arm has a run."""

    def has(self, job: Job) -> bool:
        """Whether every arm has the runs of a job."""
        return set(job) <= set(self.pairs)

    def over_seeds(self) -> Truth:
        """The truth over all seeds, each the mean of its runs."""
        seeds = sorted({seed for seed, _ in self.pairs})
        return Truth(
            {
                step: np.array([self._gaps(step, self._of_seed(seed)).mean() for seed in seeds])
                for step in self._steps
            }
        )

    def over_runs(self, job: Job) -> Truth:
        """The truth over the runs of the job's seed that the job does not have; none if it has
        several seeds.
        """
        (seed, _), *_ = job
        is_single = all(other == seed for other, _ in job)
        unseen = [pair for pair in self._of_seed(seed) if is_single and pair not in job]
        return Truth({step: self._gaps(step, unseen) for step in self._steps})

    def margin(self, share: float = MARGIN_SHARE, seed: int | None = None) -> float:
        """The margin of the case, nats, if it is this share of the candidate's gap over all seeds,
        or over all runs of one.
        """
        if self.case.is_control:
            levels = [self._late(None, pair) for pair in self.pairs]
            return CONTROL_MARGIN * float(np.mean(levels))
        if seed is None:
            return share * self.over_seeds().gap(STEPS).mean
        return share * float(self._gaps(STEPS, self._of_seed(seed)).mean())

    def judged(self, step: int, job: Job, margin: float) -> Verdict:
        """The judge's verdict on the switch at a step, as a look; at STEPS on the candidate."""
        question = (step, job, margin)
        if question not in self._verdicts:
            self._verdicts[question] = self._judge(*question)
        return self._verdicts[question]

    def _judge(self, step: int, job: Job, margin: float) -> Verdict:
        baseline, arm = ([self._curve(which, pair) for pair in job] for which in (None, step))
        (verdict,) = judge(
            baseline,
            {_NAME: arm},
            Policy(margin=f"{margin} nats", wide_margin="accept"),
            planned_steps=STEPS,
            layer_policy="all_linears",
            noise_table=emulated_noise_table().only({SMALL}),
            families=dict.fromkeys((BASELINE["recipe"], _NAME), SMALL),
            multiplicity=Multiplicity(candidates=len(SWITCHES)),
        )
        return verdict

    def search(self, job: Job, margin: float, *, is_blind: bool = False) -> Search:
        """The search on the runs of a job; a blind one does not know the candidate's gap, and
        halves what is left.
        """
        gap = half_width = None
        if not is_blind:
            candidate = look_from(STEPS, self.judged(STEPS, job, margin))
            if candidate.gap is not None and candidate.high is not None:
                gap, half_width = candidate.gap, candidate.high - candidate.gap
        setup = HealingSetup(
            recipe=self.case.to,
            gemms=self.case.gemms,
            parents=tuple(f"seed {seed} replicate {replicate}" for seed, replicate in job),
            steps=SWITCHES,
            run_steps=STEPS,
            gap=gap,
            half_width=half_width,
            margin=margin,
            most_steps=float("inf"),
        )
        looks: list[Look] = []
        while (step := next_switch(setup, looks)) is not None:
            looks.append(look_from(step, self.judged(step, job, margin)))
        return Search(setup=setup, looks=tuple(looks), found=found(setup, looks))

    @property
    def _steps(self) -> tuple[int, ...]:
        return (STEPS,) if self.case.is_control else (*SWITCHES, STEPS)

    def _of_seed(self, seed: int) -> list[Pair]:
        return [pair for pair in self.pairs if pair[0] == seed]

    def _gaps(self, step: int, pairs: Sequence[Pair]) -> Losses:
        """(pairs,) gaps of the late window, nats."""
        return np.array([self._late(step, pair) - self._late(None, pair) for pair in pairs])

    def _late(self, step: int | None, pair: Pair) -> float:
        return float(self._losses(step, pair)[_LATE:].mean())

    def _losses(self, step: int | None, pair: Pair) -> Losses:
        """(STEPS,) losses of a run, nats."""
        record = self._recorded[self._key(step, pair)]
        if not record.first:
            return np.asarray(record.losses)
        before = self._losses(STEPS, pair)[: record.first]
        return np.concatenate([before, np.asarray(record.losses)])

    def _key(self, step: int | None, pair: Pair) -> Key:
        return key_of(self.case.size, self._spec(step, pair))

    def _spec(self, step: int | None, pair: Pair) -> RunSpec:
        """A run of the baseline (None), of the candidate (STEPS), or of a switch."""
        arm = BASELINE if step is None else self.case.candidate
        spec = run_of(self.case.size, arm, *pair)
        return spec if step in (None, STEPS) else replace(spec, then=self.case.later(int(step)))

    def _curve(self, step: int | None, pair: Pair) -> Curve:
        spec, steps = self._spec(step, pair), np.arange(STEPS)
        document = spec.document()
        rates = optimizer.learning_rate(optimizer.settings(spec.schedule), jnp.asarray(steps))
        return curve_from_arrays(
            steps,
            self._losses(step, pair),
            columns={"learning_rate": np.asarray(rates)},
            label=f"{spec.label} {pair}",
            seed=pair[0],
            replicate=pair[1],
            recipe=written(labels_of(document, document)),
            rounding=spec.rounding,
        )


def look_from(step: int, verdict: Verdict) -> Look:
    """A verdict as a look at a switch."""
    document = verdict.document()
    gap = document["gap"]
    deciding = None if gap is None else gap["deciding"]
    reason = document["reasons"][0]
    return Look(
        step=step,
        verdict=verdict.verdict,
        gap=None if gap is None else gap["mean"],
        low=None if deciding is None else deciding["lo"],
        high=None if deciding is None else deciding["hi"],
        level=None if deciding is None else deciding["level"],
        code=reason["code"],
        sentence=reason["sentence"],
    )


def table(
    recorded: Sequence[HealRecord],
    jobs: Sequence[str] = tuple(JOBS),
    shares: Sequence[float] = (MARGIN_SHARE, *OTHER_SHARES),
) -> Iterator[str]:
    """Lines of Markdown: the first of these jobs with the first margin, case by case; what all of
    them come to; the control and the law.
    """
    known = {record.key: record for record in recorded}
    cases = [CaseRuns(case, known) for case in CASES]
    healed = [runs for runs in cases if not runs.case.is_control]
    summaries = []
    for name in jobs:
        job, complete = JOBS[name], [runs for runs in healed if runs.has(JOBS[name])]
        seed = job[0][0] if len({pair[0] for pair in job}) == 1 else None
        margins = [("all seeds", None), *([] if seed is None else [("its seed", seed)])]
        for (where, over), share in product(margins, shares if complete else ()):
            ended = [_Ended.of(runs, job, runs.margin(share, over)) for runs in complete]
            if not summaries:
                yield "| case | margin | right over seeds | over runs | named | looks | steps |"
                yield "|---|---|---|---|---|---|---|"
                yield from (case.row() for case in ended)
                yield ""
            summaries.append(f"- {name}, {share:.0%} of the gap over {where}: {_summary(ended)}")
    yield from summaries
    for runs in cases:
        job = JOBS[next(iter(JOBS))]
        if runs.case.is_control and runs.has(job):
            yield f"- {runs.case.name}: {runs.judged(STEPS, job, runs.margin())!r}"
    yield from _law([runs for runs in healed if len(runs.pairs) > 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A search that ended, next to both truths."""

    name: str
    margin: float
    search: Search
    halved: Search
    over_seeds: Truth
    over_runs: Truth

    @classmethod
    def of(cls, runs: CaseRuns, job: Job, margin: float) -> _Ended:
        return cls(
            name=runs.case.name,
            margin=margin,
            search=runs.search(job, margin),
            halved=runs.search(job, margin, is_blind=True),
            over_seeds=runs.over_seeds(),
            over_runs=runs.over_runs(job),
        )

    def agrees(self, truth: Truth) -> bool:
        """Whether the named step is within a fifth of the right one."""
        step = self.search.step
        return step is not None and abs(step - truth.right_step(self.margin)) <= STEPS // 5

    def estimates(self, truth: Truth) -> bool:
        """Whether the estimated step is within a fifth of the right one."""
        return abs(self.search.estimate - truth.right_step(self.margin)) <= STEPS // 5

    def wrong_passes(self, truth: Truth) -> int:
        """The looks that pass at a switch whose mean gap is not below the margin."""
        passes = [look.step for look in self.search.looks if look.verdict == PASS]
        return sum(truth.gap(step).mean >= self.margin for step in passes)

    def row(self) -> str:
        step = self.search.step
        cells = [
            self.name,
            f"{self.margin:.4f}",
            _right(self.over_seeds, self.margin),
            _right(self.over_runs, self.margin) if self.over_runs.units else "",
            "open" if step is None else str(step),
            ", ".join(f"{look.step} {look.verdict}" for look in self.search.looks),
            f"{self.search.steps_spent:,.0f}",
        ]
        return f"| {' | '.join(cells)} |"


def _right(truth: Truth, margin: float) -> str:
    possible = ", ".join(map(str, truth.possible_steps(margin)))
    return f"{truth.right_step(margin)} ({possible})"


def _summary(ended: Sequence[_Ended]) -> str:
    """How these searches end, and what they cost next to two fixed plans."""
    is_open = sum(case.search.step is None for case in ended)
    passes = sum(look.verdict == PASS for case in ended for look in case.search.looks)
    spent, halved = (
        sum(search.steps_spent for search in searches)
        for searches in zip(*((case.search, case.halved) for case in ended), strict=True)
    )
    whole = sum(cost_of(case.search.setup, step) for case in ended for step in SWITCHES)
    truths: dict[str, Callable[[_Ended], Truth]] = {
        "over seeds": lambda case: case.over_seeds,
        "over runs": lambda case: case.over_runs,
    }
    if not all(case.over_runs.units for case in ended):
        del truths["over runs"]
    agreement = "; ".join(
        f"{name} {sum(case.agrees(take(case)) for case in ended)} of {len(ended)} named within a "
        f"fifth, {sum(case.estimates(take(case)) for case in ended)} estimated so, "
        f"{sum(case.wrong_passes(take(case)) for case in ended)} of {passes} passes wrong"
        for name, take in truths.items()
    )
    return (
        f"{is_open} open; {agreement}; {spent:,.0f} steps, {halved:,.0f} by halving alone, "
        f"{whole:,.0f} for every fifth"
    )


def _law(cases: Sequence[CaseRuns]) -> Iterator[str]:
    """The gaps over all seeds, and where a later switch has a larger one beyond noise, or a smaller
    one.
    """
    for runs in cases:
        truth, neighbours = runs.over_seeds(), [*pairwise((*SWITCHES, STEPS))]
        larger = {(step, earlier): truth.larger(step, earlier) for earlier, step in neighbours}
        gaps = ", ".join(str(truth.gap(step)) for step in (*SWITCHES, STEPS))
        held = sum(gap.low > 0 for gap in larger.values())
        broken = [f"{earlier} to {step}" for (step, earlier), gap in larger.items() if gap.high < 0]
        yield (
            f"- {runs.case.name}, {truth.units} seeds: {gaps}; larger at {held} of {len(larger)} "
            f"later switches beyond noise{', SMALLER ' + ', '.join(broken) if broken else ''}"
        )


def _latest(passes: Callable[[int], bool]) -> int:
    """The latest switch up to which all pass; 0 where the first does not."""
    return max(takewhile(passes, SWITCHES), default=0)


def _interval(gaps: Losses) -> Gap:
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return Gap(mean=mean, low=-np.inf, high=np.inf)
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(gaps) - 1) * stats.sem(gaps))
    return Gap(mean=mean, low=mean - half, high=mean + half)
