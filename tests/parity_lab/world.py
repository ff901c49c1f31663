"""A small world with known gaps, and the setting of a search in it."""

from dataclasses import dataclass

import numpy as np

from parity.design.experiment import Design
from parity.judging.policy import Amount, Policy
from parity_lab.assignments import all_assignments
from parity_lab.belief import Evaluation, Result, confirmation
from parity_lab.search import Setting

SD = 0.002
LEVEL = 2.0
POLICY = Policy(
    margin=Amount(value=0.03, unit="nats"),
    min_points=100,
    baseline_run_noise=Amount(value=SD, unit="nats"),
    candidate_run_noise=Amount(value=SD, unit="nats"),
)
DESIGN = Design(
    planned_steps=1000,
    level=LEVEL,
    baseline_runs=4,
    candidate_runs=4,
    baseline_recipe="fp8_current",
    candidate_recipe="nvfp4",
)

OWN = confirmation(DESIGN, POLICY, 0.03, 2)


@dataclass
class World:
    """Gaps by switch add up; forks see half of them. Every evaluation draws its own noise, whenever
    it is asked for.
    """

    own: tuple[float, ...]
    seed: int = 0
    blind: bool = False

    def gap(self, assignment):
        return sum(value for value, bit in zip(self.own, assignment, strict=True) if bit == "1")

    def __call__(self, evaluation):
        kind = ("fork", "run", "confirmation").index(evaluation.kind)
        draw = np.random.default_rng(
            [
                self.seed,
                kind,
                int(evaluation.assignment, 2),
                evaluation.number,
                int(evaluation.parent or 0),
            ]
        )
        gap = self.gap(evaluation.assignment)
        if kind == 0:
            value = (
                LEVEL
                + 0.1 * int(evaluation.parent)
                + (0.0 if self.blind else gap / 2)
                + SD / 5 * draw.standard_normal()
            )
            return Result(evaluation=evaluation, value=value)
        if kind == 1:
            return Result(evaluation=evaluation, value=LEVEL + gap + SD * draw.standard_normal())
        se = SD / np.sqrt(2.0)
        mean = gap + se * draw.standard_normal()
        return Result(evaluation=evaluation, value=mean, se=se, passed=bool(mean + 2.8 * se < 0.03))

    def setting(self, **changes):
        size = len(self.own)
        ends = [
            Evaluation(kind="run", assignment=bit * size, number=1000 + at)
            for bit in "01"
            for at in range(4)
        ]
        times = np.array(
            [
                1.0 - 0.4 * assignment.count("1") / size - 0.01 * int(assignment, 2) / 2**size
                for assignment in all_assignments(size)
            ]
        )
        values = {
            "size": size,
            "times": times,
            "given": tuple(map(self, ends)),
            "parents": ("0", "1"),
            "baseline_sd": SD,
            "candidate_sd": SD,
            "confirmation": OWN,
            "target": OWN.largest_gap(),
        }
        return Setting(**{**values, **changes})
