"""A world in which the gap of every assignment is known: fitted to the runs and forks of
`experiments.assignments`.

A switch of the world is one of the eight measured switches, drawn without repetition: its gap
alone, its effect in forks, and its scores, times a factor of its own (30 %). Pairs of switches
interact as measured on average, with a spread. So forks and scores are as wrong about the gaps of
full runs as they were measured to be. Step times differ by switch (50 %), and the margin is drawn
so that the largest gap that passes with 95 % power is 20 to 70 % of the candidate's gap.

    run           level + gap + run-to-run noise of the arm          fork    level + effect in forks
                  + fork noise
    confirmation  4 fresh runs of each arm, and the judge's own interval

The assumption that can fail: eight switches of one model are few to draw worlds from; all worlds
resemble it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.assignments import (
    BASELINE,
    EVERYTHING,
    MORE_BASELINES,
    PART,
    REPLICATES,
    STEPS,
    SWITCHES,
    ends,
    grid,
    records,
)
from parity.design.experiment import Design
from parity.judging.curve import FloatArray
from parity.judging.interval import interval
from parity.judging.policy import Amount, Policy
from parity.judging.run_floor import prior_for, run_floor, run_term
from parity.judging.window import StandardError
from parity_lab.assignments import Assignment, all_assignments, alone
from parity_lab.belief import Evaluation, Result, confirmation
from parity_lab.search import Setting

SIZE = len(SWITCHES)
FORK_STEPS = 60
FORK_WINDOW = slice(1, FORK_STEPS // PART)  # of a fork of 60 steps, the last 40
PAIRS, CONFIRMATIONS, PARENTS = 4, 2, 2
SCORES = ("SNR", "SNIP-like", "AutoQuantize-like")
_SPREAD, _TIMES = 0.3, 0.5
# prior standard deviation of an interaction as a share of the whole, for the regression
_PAIR = 0.15
_PAIR_SD = 0.0011  # of the loss: a pair's step-to-step spread
_LEVEL = 1.83


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNoise:
    """Standard deviations in nats: of forks, and of full runs of the baseline and of other
    assignments.
    """

    fork: float
    baseline: float
    candidate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was measured: of each switch its gap, its effect in forks and its scores; interactions
    relative to both switches; noise.
    """

    gaps: FloatArray
    forks: FloatArray
    scores: Mapping[str, FloatArray]
    pairs: tuple[float, float]
    fork_pairs: tuple[float, float]
    noise: RunNoise


def fit() -> Fit:
    """The fit to what assignments.jsonl holds."""
    # no searches' runs
    runs = [
        line
        for line in records()
        if line["kind"] == "run" and line["replicate"] < REPLICATES + MORE_BASELINES
    ]
    means = {
        assignment: [line["late_mean"] for line in runs if line["assignment"] == assignment]
        for assignment in {line["assignment"] for line in runs}
    }
    spread = {
        assignment: (sum((np.array(own) - np.mean(own)) ** 2), len(own) - 1)
        for assignment, own in means.items()
    }
    baseline = float(np.sqrt(spread[BASELINE][0] / spread[BASELINE][1]))
    others = [value for assignment, value in spread.items() if assignment != BASELINE]
    candidate = float(np.sqrt(sum(each[0] for each in others) / sum(each[1] for each in others)))
    forks = np.array(
        [
            [_fork_effect(assignment, parent) for parent in _parents()]
            for assignment in (*grid(), *ends())
        ]
    )
    fork_noise = float(
        np.sqrt(
            ((forks - forks.mean(1, keepdims=True)) ** 2).sum()
            / (forks.shape[0] * (forks.shape[1] - 1))
            / 2
        )
    )
    noise = RunNoise(fork=fork_noise, baseline=baseline, candidate=candidate)
    gap = float(np.mean(means[EVERYTHING]) - np.mean(means[BASELINE]))
    full = _smoothed(
        {assignment: np.array(own) for assignment, own in means.items()}, gap, candidate
    )
    effects_in_forks = dict(zip((*grid(), *ends()), forks, strict=True))
    in_forks = _smoothed(effects_in_forks, float(effects_in_forks[EVERYTHING].mean()), fork_noise)
    gaps, effects = _alone(full), _alone(in_forks)
    return Fit(
        gaps=gaps,
        forks=effects,
        scores=_scores(),
        pairs=_pairs(full, gaps),
        fork_pairs=_pairs(in_forks, effects),
        noise=noise,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A world: gaps and effects in forks of every assignment (2^8,), step times (2^8,), scores (8,)
    by method, and the setting of a search.
    """

    gaps: FloatArray
    forks: FloatArray
    scores: Mapping[str, FloatArray]
    setting: Setting
    noise: RunNoise
    policy: Policy

    @property
    def best_time(self) -> float:
        """The step time of the fastest assignment that passes with 95 % power."""
        return float(self.setting.times[self.gaps <= self.setting.target].min())


class World:
    """Answers evaluations of a truth; each has random numbers of its own, so the order does not
    matter.
    """

    def __init__(self, truth: Truth, number: int) -> None:
        self.truth = truth
        self._number = number
        self.steps = 0

    def __call__(self, evaluation: Evaluation) -> Result:
        """The result of an evaluation, and its cost added to `steps`."""
        truth, at = self.truth, int(evaluation.assignment, 2)
        kind = ("fork", "run", "confirmation").index(evaluation.kind)
        draw = np.random.default_rng(
            [self._number, kind, at, evaluation.number, int(evaluation.parent or 0)]
        )
        self.steps += {"fork": FORK_STEPS, "run": STEPS, "confirmation": 2 * PAIRS * STEPS}[
            evaluation.kind
        ]
        if evaluation.kind == "fork":
            return Result(
                evaluation=evaluation,
                value=_LEVEL + truth.forks[at] + truth.noise.fork * draw.standard_normal(),
            )
        if evaluation.kind == "run":
            return Result(
                evaluation=evaluation,
                value=_LEVEL + truth.gaps[at] + self._sd(at) * draw.standard_normal(),
            )
        arms = [
            _LEVEL + gap + sd * draw.standard_normal(PAIRS)
            for gap, sd in ((0.0, self._sd(0)), (truth.gaps[at], self._sd(at)))
        ]
        return judged(evaluation, arms[0], arms[1], truth.policy, truth.setting.confirmation.margin)

    def _sd(self, at: int) -> float:
        return self.truth.noise.candidate if at else self.truth.noise.baseline


def judged(
    evaluation: Evaluation,
    baseline: FloatArray,
    candidate: FloatArray,
    policy: Policy,
    margin: float,
) -> Result:
    """A confirmation by the judge's interval of the late means (runs,) of both arms;
    `policy.confidence` is that of one confirmation.
    """
    level = float(baseline.mean())
    declared = (policy.baseline_run_noise, policy.candidate_run_noise)
    recipes = ("fp8_current", "nvfp4")
    floors = [
        run_floor(prior_for(recipe, amount, policy, level), means, [0] * len(means))
        for recipe, amount, means in zip(recipes, declared, (baseline, candidate), strict=True)
    ]
    within = StandardError(
        value=_PAIR_SD * level / np.sqrt(policy.window_fraction * STEPS), df=12.0
    )
    own = interval(float(candidate.mean() - baseline.mean()), within, run_term(*floors))
    return Result(
        evaluation=evaluation,
        value=own.mean,
        se=own.se,
        passed=bool(own.bounds(policy.confidence)[1] < margin),
    )


def setting_of(
    times: FloatArray, given: Sequence[Result], noise: RunNoise, share: float
) -> tuple[Setting, Policy]:
    """A search whose target is this share of the candidate's gap in the given runs, and the policy
    of each of its confirmations.
    """
    level, gap = (
        float(np.mean([each.value for each in given if each.evaluation.assignment == assignment]))
        for assignment in (BASELINE, EVERYTHING)
    )
    design = Design(
        planned_steps=STEPS,
        level=level,
        baseline_runs=PAIRS,
        candidate_runs=PAIRS,
        baseline_recipe="fp8_current",
        candidate_recipe="nvfp4",
    )
    policy = Policy(
        # replaced below, because what a confirmation costs of a margin does not depend on it
        margin=Amount(value=0.02, unit="relative"),
        min_points=100,
        baseline_run_noise=Amount(value=noise.baseline, unit="nats"),
        candidate_run_noise=Amount(value=noise.candidate, unit="nats"),
    )
    wide = confirmation(design, policy, 0.1, CONFIRMATIONS)
    target = share * (gap - level)
    own = confirmation(design, policy, target + 0.1 - wide.largest_gap(), CONFIRMATIONS)
    setting = Setting(
        size=SIZE,
        times=times,
        given=tuple(given),
        parents=tuple(str(number) for number in range(PARENTS)),
        baseline_sd=noise.baseline,
        candidate_sd=noise.candidate,
        confirmation=own,
        target=target,
    )
    return setting, Policy(**{**_fields(policy), "confidence": own.confidence})


def truth(measured: Fit, number: int) -> Truth:
    """World `number`: a pure function of the fit and its number."""
    draw = np.random.default_rng([1, number])
    switches = draw.permutation(SIZE)
    factors = np.exp(_SPREAD * draw.standard_normal(SIZE))
    gaps = _drawn(draw, measured.gaps[switches] * factors, measured.pairs)
    forks = _drawn(draw, measured.forks[switches] * factors, measured.fork_pairs)
    scores = {name: values[switches] * factors for name, values in measured.scores.items()}
    costs = np.exp(_TIMES * draw.standard_normal(SIZE))
    bits = np.array([[int(bit) for bit in assignment] for assignment in all_assignments(SIZE)])
    times = 1.0 - (1.0 - 1.0 / 1.73) * bits @ costs / costs.sum()
    noise = measured.noise
    runs = [
        (assignment, at, _LEVEL + gap + sd * draw.standard_normal())
        for assignment, gap, sd in (
            (BASELINE, 0.0, noise.baseline),
            (EVERYTHING, gaps[-1], noise.candidate),
        )
        for at in range(PAIRS)
    ]
    given = [
        Result(
            evaluation=Evaluation(kind="run", assignment=assignment, number=1000 + at), value=value
        )
        for assignment, at, value in runs
    ]
    setting, policy = setting_of(times, given, noise, float(draw.uniform(0.2, 0.7)))
    return Truth(gaps=gaps, forks=forks, scores=scores, setting=setting, noise=noise, policy=policy)


def _drawn(draw: np.random.Generator, own: FloatArray, pairs: tuple[float, float]) -> FloatArray:
    """Values (2^8,) of every assignment: the switches' own, and an interaction of each pair."""
    bits = np.array(
        [[int(bit) for bit in assignment] for assignment in all_assignments(SIZE)], float
    )
    mean, sd = pairs
    size = np.sqrt(np.abs(np.outer(own, own)))
    mixed = np.triu((mean + sd * draw.standard_normal(size.shape)) * size, 1)
    values: FloatArray = bits @ own + np.einsum("pi,ij,pj->p", bits, mixed, bits)
    return values


def _alone(values: FloatArray) -> FloatArray:
    return np.array([values[int(alone(SIZE, at), 2)] for at in range(SIZE)])


def _smoothed(values: Mapping[Assignment, FloatArray], whole: float, sd: float) -> FloatArray:
    """Values (2^8,) of all assignments against the baseline: switches and pairs of switches, by
    ridge regression on what was measured.
    """

    def row(assignment: Assignment) -> list[float]:
        bits = [float(bit) for bit in assignment]
        return [
            *bits,
            *(first * second for at, first in enumerate(bits) for second in bits[at + 1 :]),
        ]

    rows = np.array([[*row(assignment), 1.0] for assignment, own in values.items() for _ in own])
    observed = np.concatenate([*values.values()])
    level = float(np.mean(values[BASELINE]))
    prior = np.array(
        [whole**2] * SIZE + [(_PAIR * whole) ** 2] * (SIZE * (SIZE - 1) // 2) + [whole**2]
    )
    normal = rows.T @ rows / sd**2 + np.diag(1.0 / prior)
    unknowns = np.linalg.solve(normal, rows.T @ (observed - level) / sd**2)
    result: FloatArray = (
        np.array([row(assignment) for assignment in all_assignments(SIZE)]) @ unknowns[:-1]
    )
    return result


def _pairs(values: FloatArray, own: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation over pairs of the interaction divided by the geometric mean of
    both switches' values.
    """
    ratios = []
    for first in range(SIZE):
        for second in range(first + 1, SIZE):
            both = values[int(alone(SIZE, first), 2) | int(alone(SIZE, second), 2)]
            ratios.append((both - own[first] - own[second], np.sqrt(abs(own[first] * own[second]))))
    interactions, sizes = np.array(ratios).T
    mean = float(interactions.sum() / sizes.sum())
    return mean, float(np.sqrt(((interactions - mean * sizes) ** 2).sum() / (sizes**2).sum()))


def _parents() -> list[int]:
    """The parents whose forks of all assignments are on record."""
    forks = [
        line
        for line in records()
        if line["kind"] == "fork" and not line["draw"] and line["origin"] == BASELINE
    ]
    assignments = {*grid(), *ends()}
    return [
        at
        for at in range(100)
        if {line["assignment"] for line in forks if line["replicate"] == at} >= assignments
    ]


def fork_loss(parts: Sequence[float]) -> float:
    """The loss of a fork of 60 steps: the mean over the last 40."""
    return float(np.mean(parts[FORK_WINDOW]))


def _fork_effect(assignment: Assignment, parent: int) -> float:
    own = {
        line["assignment"]: fork_loss(line["parts"])
        for line in records()
        if line["kind"] == "fork"
        and line["origin"] == BASELINE
        and line["replicate"] == parent
        and not line["draw"]
    }
    return own[assignment] - own[BASELINE]


def _scores() -> Mapping[str, FloatArray]:
    """Scores (8,) of the switches by method, from fixed weights at the baseline's checkpoint: the
    higher, the more harm is expected.
    """
    values = next(
        line["values"]
        for line in records()
        if line["kind"] == "scores" and line["origin"] == BASELINE
    )
    rows = np.array([values[alone(SIZE, at)] for at in range(SIZE)])
    loss = np.maximum(rows[:, 0] - values[BASELINE][0], 0.0)
    error = np.sqrt(rows[:, 4] / rows[:, 1])  # of the gradient, relative to FP8's
    return {
        "SNR": error,
        "SNIP-like": loss / loss.sum() + error / error.sum(),
        "AutoQuantize-like": loss,
    }


def _fields(policy: Policy) -> dict[str, object]:
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}
