"""What the searches of `experiments.heal` name, next to what all recorded runs say.

search   `parity_lab.healing` with the judge's verdicts on the runs of JOB_SEED, as a job has them
truth    for each switch the gap of the late window, nats, paired by seed: its mean over all seeds,
         and Student's 95 % interval over seeds. The right step is the latest one up to which every
         mean gap is below the margin; 0, the safe recipe from the start, where there is none
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

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
from parity_lab.healing import Found, HealingSetup, Look, cost_of, found, next_switch, steps_spent
from training.spec import RunSpec, labels_of
from training.trainer import optimizer

MOST_REPLICATES = 6
_LATE = round((1.0 - WINDOW_FRACTION) * STEPS)
# seen after the first runs of seed 0: with MARGIN_SHARE few switches pass
OTHER_SHARES = (0.6, 0.8)
_CONFIDENCE = 0.95
_NAME = "candidate"
Losses = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap, nats: its mean over seeds, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


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
    def steps_spent(self) -> float:
        """What it cost, in steps of training."""
        return steps_spent(self.setup, self.looks)


class CaseRuns:
    """The recorded runs of one case."""

    def __init__(
        self,
        case: Case,
        recorded: Mapping[Key, HealRecord],
        *,
        replicates: int = REPLICATES,
        margin_share: float = MARGIN_SHARE,
    ) -> None:
        """`replicates`: runs of each arm that a search sees."""
        self.case = case
        self._recorded = recorded
        self._replicates = replicates
        self._margin_share = margin_share
        self._verdicts: dict[int, Verdict] = {}

    @property
    def seeds(self) -> list[int]:
        """The seeds of which every arm has its first run."""
        return [
            seed
            for seed in sorted({key[3] for key in self._recorded})
            if all(self._key(step, seed, 0) in self._recorded for step in self._arms)
        ]

    @property
    def is_complete(self) -> bool:
        """Whether the runs of the job are all there."""
        return all(
            self._key(step, JOB_SEED, replicate) in self._recorded
            for step in self._arms
            for replicate in range(self._replicates)
        )

    @property
    def margin(self) -> float:
        """The margin of the case, nats."""
        if self.case.is_control:
            return CONTROL_MARGIN * float(
                np.mean([self._late(None, seed, 0) for seed in self.seeds])
            )
        return self._margin_share * self.gap(STEPS).mean

    def gap(self, step: int) -> Gap:
        """The gap of the switch at a step; at STEPS that of the candidate."""
        gaps = self._gaps(step)
        return _interval(gaps)

    def larger(self, step: int, earlier: int) -> Gap:
        """How much larger the gap of a switch is than that of an earlier one."""
        return _interval(self._gaps(step) - self._gaps(earlier))

    def right_step(self) -> int:
        """The step that all runs name."""
        passing = takewhile(lambda step: self.gap(step).mean < self.margin, SWITCHES)
        return max(passing, default=0)

    def possible_steps(self) -> list[int]:
        """The right steps that the intervals of all runs leave open."""
        earliest = max(
            takewhile(lambda step: self.gap(step).high < self.margin, SWITCHES), default=0
        )
        latest = max(takewhile(lambda step: self.gap(step).low < self.margin, SWITCHES), default=0)
        return [step for step in (0, *SWITCHES) if earliest <= step <= latest]

    def judged(self, step: int) -> Verdict:
        """The judge's verdict on the switch at a step, as a look; at STEPS on the candidate."""
        if step not in self._verdicts:
            self._verdicts[step] = self._judge(step)
        return self._verdicts[step]

    def _judge(self, step: int) -> Verdict:
        baseline, arm = (
            [self._curve(which, replicate) for replicate in range(self._replicates)]
            for which in (None, step)
        )
        (verdict,) = judge(
            baseline,
            {_NAME: arm},
            Policy(margin=f"{self.margin} nats"),
            planned_steps=STEPS,
            layer_policy="all_linears",
            noise_table=emulated_noise_table().only({SMALL}),
            families=dict.fromkeys((BASELINE["recipe"], _NAME), SMALL),
            multiplicity=Multiplicity(candidates=len(SWITCHES)),
        )
        return verdict

    def search(self, *, is_blind: bool = False) -> Search:
        """The search on the runs of the job; a blind one does not know the candidate's gap, and
        halves what is left.
        """
        own = look_from(STEPS, self.judged(STEPS))
        known = own.gap is not None and own.high is not None and not is_blind
        setup = HealingSetup(
            recipe=self.case.to,
            gemms=self.case.gemms,
            parents=tuple(f"run {replicate}" for replicate in range(self._replicates)),
            steps=SWITCHES,
            run_steps=STEPS,
            gap=own.gap if known else None,
            half_width=(own.high or 0.0) - (own.gap or 0.0) if known else None,
            margin=self.margin,
            most_steps=float("inf"),
        )
        looks: list[Look] = []
        while (step := next_switch(setup, looks)) is not None:
            looks.append(look_from(step, self.judged(step)))
        return Search(setup=setup, looks=tuple(looks), found=found(setup, looks))

    @property
    def _arms(self) -> tuple[int | None, ...]:
        """The baseline, the candidate, and its switches."""
        return (None, STEPS) if self.case.is_control else (None, STEPS, *SWITCHES)

    def _spec(self, step: int | None, seed: int, replicate: int) -> RunSpec:
        """A run of the baseline (None), of the candidate (STEPS), or of a switch."""
        arm = BASELINE if step is None else self.case.candidate
        spec = run_of(self.case.size, arm, seed, replicate)
        return spec if step in (None, STEPS) else replace(spec, then=self.case.later(int(step)))

    def _key(self, step: int | None, seed: int, replicate: int) -> Key:
        return key_of(self.case.size, self._spec(step, seed, replicate))

    def _losses(self, step: int | None, seed: int, replicate: int) -> Losses:
        """(STEPS,) losses of a run, nats."""
        record = self._recorded[self._key(step, seed, replicate)]
        if not record.first:
            return np.asarray(record.losses)
        before = self._losses(STEPS, seed, replicate)[: record.first]
        return np.concatenate([before, np.asarray(record.losses)])

    def _late(self, step: int | None, seed: int, replicate: int) -> float:
        return float(self._losses(step, seed, replicate)[_LATE:].mean())

    def _gaps(self, step: int) -> Losses:
        """(seeds,) gaps, each the mean over the seed's runs."""
        return np.asarray([self._gap_of(step, seed) for seed in self.seeds])

    def _gap_of(self, step: int, seed: int) -> float:
        replicates = [
            replicate
            for replicate in range(MOST_REPLICATES)
            if all(self._key(arm, seed, replicate) in self._recorded for arm in self._arms)
        ]
        gaps = [self._late(step, seed, r) - self._late(None, seed, r) for r in replicates]
        return float(np.mean(gaps))

    def _curve(self, step: int | None, replicate: int) -> Curve:
        spec = self._spec(step, JOB_SEED, replicate)
        settings = optimizer.settings(spec.schedule)
        document = spec.document()
        steps = np.arange(STEPS)
        return curve_from_arrays(
            steps,
            self._losses(step, JOB_SEED, replicate),
            columns={
                "learning_rate": np.asarray(optimizer.learning_rate(settings, jnp.asarray(steps)))
            },
            label=f"{spec.label} {replicate}",
            seed=JOB_SEED,
            replicate=replicate,
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
    recorded: Sequence[HealRecord], shares: Sequence[float] = (MARGIN_SHARE, *OTHER_SHARES)
) -> Iterator[str]:
    """Lines of Markdown: a row for every case whose job is complete, and what they come to with
    margins of these shares of the candidate's gap.
    """
    known = {record.key: record for record in recorded}
    cases = [CaseRuns(case, known) for case in CASES]
    healed = [runs for runs in cases if runs.is_complete and not runs.case.is_control]
    yield (
        "| case | seeds | margin | gap after a switch at each fifth, and without one | right "
        "(possible) | named | looks | steps |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for runs in healed:
        yield _row(runs)
    yield ""
    for runs in cases:
        if runs.is_complete and runs.case.is_control:
            yield f"{runs.case.name}: {runs.judged(STEPS)!r}"
    for replicates in (REPLICATES, MOST_REPLICATES):
        for share in shares:
            some = [
                CaseRuns(runs.case, known, replicates=replicates, margin_share=share)
                for runs in healed
            ]
            if some and all(runs.is_complete for runs in some):
                yield f"{replicates} runs an arm, margin {share:.0%} of the gap: {_summary(some)}"
    yield from _law(healed)


def _row(runs: CaseRuns) -> str:
    answer = runs.search()
    gaps = [runs.gap(step) for step in (*SWITCHES, STEPS)]
    looks = ", ".join(f"{look.step} {look.verdict}" for look in answer.looks)
    cells = [
        runs.case.name,
        str(len(runs.seeds)),
        f"{runs.margin:.4f}",
        ", ".join(f"{gap.mean:.4f} ± {gap.high - gap.mean:.4f}" for gap in gaps),
        f"{runs.right_step()} ({', '.join(map(str, runs.possible_steps()))})",
        "open" if answer.step is None else str(answer.step),
        looks,
        f"{answer.steps_spent:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _summary(cases: Sequence[CaseRuns]) -> str:
    """How the searches of these cases end, and what they cost next to two fixed plans."""
    answers = [(runs, runs.search()) for runs in cases]
    named = [(runs, answer.step) for runs, answer in answers if answer.step is not None]
    fifth = STEPS // 5
    near = sum(abs(step - runs.right_step()) <= fifth for runs, step in named)
    looks = [(runs, look) for runs, answer in answers for look in answer.looks]
    passes = [(runs, look.step) for runs, look in looks if look.verdict == PASS]
    wrong = sum(runs.gap(step).mean >= runs.margin for runs, step in passes)
    spent = sum(answer.steps_spent for _, answer in answers)
    halved = sum(runs.search(is_blind=True).steps_spent for runs in cases)
    whole = sum(cost_of(answer.setup, step) for _, answer in answers for step in SWITCHES)
    return (
        f"{near} of {len(cases)} named within a fifth, {len(cases) - len(named)} open; {wrong} of "
        f"{len(passes)} passes beyond the margin; {spent:,.0f} steps, {halved:,.0f} by halving "
        f"alone, {whole:,.0f} for every fifth"
    )


def _law(cases: Sequence[CaseRuns]) -> Iterator[str]:
    """Where a later switch has the larger gap, and where that does not hold beyond noise."""
    neighbours = [
        (runs, earlier, later) for runs in cases for earlier, later in pairwise((*SWITCHES, STEPS))
    ]
    larger = {pair: pair[0].larger(pair[2], pair[1]) for pair in neighbours}
    proved = sum(gap.low > 0 for gap in larger.values())
    broken = [pair for pair, gap in larger.items() if gap.high < 0]
    yield f"later switch, larger gap: {proved} of {len(larger)} neighbours beyond noise"
    for runs, earlier, later in broken:
        yield f"NOT in {runs.case.name}, {earlier} to {later}: {larger[runs, earlier, later]}"


def _interval(gaps: Losses) -> Gap:
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return Gap(mean=mean, low=-np.inf, high=np.inf)
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(gaps) - 1) * stats.sem(gaps))
    return Gap(mean=mean, low=mean - half, high=mean + half)
