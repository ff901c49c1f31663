"""What is measured of a run and its goldens, each quantity when a line of the rule first asks."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from parity.frozen import frozen
from parity.golden.batches import BatchAgreement, late_agreement, shift
from parity.golden.common_steps import Common, common_steps
from parity.golden.excursions import Excursion, largest_excursion
from parity.golden.fork import first_difference, fork_row
from parity.golden.level import (
    EARLIER_FACTOR,
    PARTLY_SHARED_PCT,
    PARTLY_SHARED_Q,
    STANDARD_ERRORS,
    Level,
    earlier_levels,
    level,
)
from parity.golden.missing_steps import MissingSteps, missing_steps
from parity.golden.quantities import FirstRateDifference, NormRatio, norm_ratios, rate_difference
from parity.golden.reruns import RerunNoise, rerun_noise
from parity.judging.curves.curve import Curve, usable
from parity.recipes import rounds_to_nearest, width_of

Change = Literal["code", "container", "hardware", "resume"]
CHANGES: tuple[Change, ...] = get_args(Change)

MIN_STEPS = 8
# Before any update only rounding differs: 2^-9 nats is the rounding unit of a loss near 1 in bf16.
# Measured on container bumps: 99 % within .0012 nats without dropout, 95 % within .0047 with it.
# The factor counts for 8 and 4 bits, too, whose rounding unit is coarser: of 20 reruns of the
# project's trainer in fp8_delayed, which draws no random numbers, the farthest was .0022 off.
FIRST_NATS, RANDOM_FACTOR = 2.0**-9, 4.0
BITS = 16  # of bf16; recipes of fewer bits round coarsely
# A recipe that rounds stochastically has a level of its own in each run: 20 reruns of the project's
# trainer in nvfp4 were up to 0.83 % apart. Up to this a level is not blamed, until there are five
# goldens, which show the noise of the test: of three, 6 % of honest reruns are beyond the limit.
STOCHASTIC_PCT, ENOUGH_GOLDENS = 1.2, 5
# After a resume the optimizer's state is restored, too: the losses behind the first updates differ
# by rounding that has grown a little. In resumes of the project's trainer by at most .001 nats in
# bf16 and .0053 in nvfp4, whose random numbers were others, and by .009 and more where the
# optimizer's state or its count of steps was lost.
UPDATED_ROWS, UPDATED_FACTOR = 5, 4.0
IDENTICAL_UNITS = 1.5  # of the last printed digit (a convention)


@frozen
class ComparisonFacts:
    """What is stated of a comparison: the `recipe` of both runs, what `changed`, the step that was
    `saved` before a resume, whether dropout or other sampling is on (`random`), facts that must be
    equal (`golden_facts`, `run_facts`, by name), and the digests of the data.
    """

    recipe: str | None = None
    changed: Change | None = None
    saved: int | None = None
    random: bool = False
    golden_facts: Mapping[str, str] = field(default_factory=dict)
    run_facts: Mapping[str, str] = field(default_factory=dict)
    golden_data: str | None = None
    run_data: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots, for its cached properties
class ComparedRun:
    """A run against one golden or several reruns of it, of which the nearest counts."""

    goldens: Sequence[Curve]
    run: Curve
    stated: ComparisonFacts

    @functools.cached_property
    def whole(self) -> Sequence[Common]:
        """The steps that the run and each golden have in common."""
        return [common_steps(golden, self.run) for golden in self.goldens]

    @functools.cached_property
    def common_rows(self) -> int:
        """The number of common steps with the golden that has the fewest."""
        return min(len(common.steps) for common in self.whole)

    @functools.cached_property
    def first_row(self) -> int | None:
        """The first row that is judged: after a resume that behind the fork (None where nothing
        shows it), else 0.
        """
        if self.stated.changed != "resume":
            return 0
        return fork_row(self.whole[0], self.goldens[0], self.run, self.stated.saved)

    @functools.cached_property
    def judged(self) -> Sequence[Common]:
        """The rows that are judged, by golden."""
        if not self.first_row:
            return self.whole
        step = self.first_step
        return [common.rows(int(np.searchsorted(common.steps, step))) for common in self.whole]

    @functools.cached_property
    def first_step(self) -> int:
        """The first step that is judged; that behind the last where no row is left."""
        steps = self.whole[0].steps
        row = self.first_row or 0
        if row < len(steps):
            return int(steps[row])
        return int(steps[-1]) + 1 if len(steps) else 0

    @functools.cached_property
    def rows(self) -> int:
        """The number of rows that are judged, of the golden with the fewest."""
        return min(len(common.steps) for common in self.judged)

    @functools.cached_property
    def broken_step(self) -> int | None:
        """The first step at which the run's loss is not finite, not positive, or beyond all
        losses.
        """
        wrong = ~usable(self.run.loss) | (self.run.loss <= 0.0)
        return int(self.run.steps[np.argmax(wrong)]) if wrong.any() else None

    @functools.cached_property
    def missing_steps(self) -> int:
        """How many steps the run ends before its golden, beyond one stride; 0 where it does not."""
        golden = self.goldens[0]
        last = int(self.run.steps[-1]) if len(self.run.steps) else 0
        stride = max(golden.completeness.stride or 1, self.run.completeness.stride or 1)
        missing = int(golden.steps[-1]) - last
        return missing if missing >= stride else 0

    @functools.cached_property
    def missing_between(self) -> MissingSteps:
        """Which of the golden's steps the run lacks before its last one; after a resume only those
        behind it count.
        """
        steps, run = self.goldens[0].steps, self.run.steps
        if self.stated.changed == "resume" and len(run):
            saved = self.stated.saved
            steps = steps[steps >= (int(run[0]) if saved is None else saved + 1)]
        return missing_steps(steps[steps <= run[-1]] if len(run) else steps, run)

    @functools.cached_property
    def unjudged_steps(self) -> int:
        """How many steps the run logged behind the golden's last one."""
        return int((self.run.steps > self.goldens[0].steps[-1]).sum())

    @functools.cached_property
    def is_identical(self) -> bool:
        """One golden has the run's losses, up to 1.5 of the last printed digit; that digit must be
        finer than rounding.
        """
        return any(
            bool((np.abs(common.difference) <= self._tolerance(common)).all())
            for common in self.whole
        )

    @staticmethod
    def _tolerance(common: Common) -> float:
        """The difference in nats that printing explains."""
        allowed = IDENTICAL_UNITS * common.unit
        return allowed if allowed <= FIRST_NATS else 0.0

    @functools.cached_property
    def fact_differences(self) -> Mapping[str, tuple[str, str]]:
        """Facts that both recorded and that differ, by name: the golden's and the run's."""
        left, right = self.stated.golden_facts, self.stated.run_facts
        return {
            name: (left[name], right[name])
            for name in left
            if name in right and left[name] != right[name]
        }

    @functools.cached_property
    def rate(self) -> FirstRateDifference | None:
        """Where the learning rates differ."""
        return rate_difference(self.goldens[0], self.run, self.first_step)

    @functools.cached_property
    def norms(self) -> Sequence[NormRatio]:
        """The gradient norms against the golden's."""
        return norm_ratios(self.goldens[0], self.run, self.first_step)

    @functools.cached_property
    def reruns(self) -> RerunNoise:
        """What several goldens show of the noise of the test."""
        return rerun_noise(self.goldens)

    @functools.cached_property
    def agreement(self) -> BatchAgreement:
        """How far the run reads the batches of the golden with which it agrees most."""
        return min(map(late_agreement, self.judged), key=lambda measured: measured.q)

    @functools.cached_property
    def shift(self) -> int:
        """By how many rows the run is behind its golden."""
        return shift(self.judged[0])

    @functools.cached_property
    def first_nats(self) -> float:
        """The difference of the first losses that are judged, nats, from the nearest golden."""
        return float(min((common.difference[0] for common in self.judged), key=abs))

    @functools.cached_property
    def first_limit(self) -> float:
        """How far first losses may be apart, nats."""
        bits = width_of(self.stated.recipe or "") or BITS
        is_resumed = self.stated.changed == "resume"  # the same weights, rounded in the same way
        is_coarse = self.stated.random or (bits < BITS and not is_resumed)
        limit = FIRST_NATS * (RANDOM_FACTOR if is_coarse else 1.0)
        return max(limit, self.reruns.first_nats)

    @functools.cached_property
    def updated_nats(self) -> float:
        """The largest difference behind the first updates of a resume, rows 2 to 5, nats; 0 without
        a resume.
        """
        if self.stated.changed != "resume" or self.rows < 2:
            return 0.0
        rows = (common.difference[1:UPDATED_ROWS] for common in self.judged)
        return min((float(part[np.argmax(np.abs(part))]) for part in rows), key=abs)

    @functools.cached_property
    def updated_limit(self) -> float:
        """How far losses behind the first updates of a resume may be apart, nats."""
        return UPDATED_FACTOR * self.first_limit

    @functools.cached_property
    def spike(self) -> Excursion:
        """The largest excursion above the nearest golden."""
        return self._nearest_excursion(1.0)

    @functools.cached_property
    def dip(self) -> Excursion:
        """The largest excursion below the nearest golden."""
        return self._nearest_excursion(-1.0)

    def _nearest_excursion(self, sign: float) -> Excursion:
        found = (largest_excursion(common, sign) for common in self.judged)
        return min(found, key=lambda excursion: excursion.pct - excursion.limit_pct)

    @functools.cached_property
    def levels(self) -> Sequence[Level]:
        """The level at the end against each golden."""
        return [level(common, first_difference(common)) for common in self.judged]

    @functools.cached_property
    def gap_pct(self) -> float:
        """The level at the end against the goldens' mean, % of the loss."""
        return float(np.mean([one.pct for one in self.levels]))

    @functools.cached_property
    def explained_pct(self) -> float:
        """Up to which level, %, noise of their own explains it that the runs show or must have;
        five goldens show it all.
        """
        if len(self.goldens) >= ENOUGH_GOLDENS:
            return 0.0
        recipe = self.stated.recipe
        is_stochastic = recipe is not None and not rounds_to_nearest(recipe)
        return max(
            STOCHASTIC_PCT if is_stochastic else 0.0,
            PARTLY_SHARED_PCT if self.agreement.q > PARTLY_SHARED_Q else 0.0,
            min(one.parting_pct for one in self.levels),
        )

    @functools.cached_property
    def gap_limit(self) -> float:
        """How far levels may be apart, % of the loss."""
        error = min(one.se_pct for one in self.levels)
        return max(self.reruns.limit_pct, STANDARD_ERRORS * error)

    @functools.cached_property
    def earlier_level(self) -> Level | None:
        """The level of the second to the fourth fifth that is farthest from the nearest golden's,
        by its limit; None for few rows.
        """
        by_golden = zip(*map(earlier_levels, self.judged), strict=False)
        nearest = [min(levels, key=lambda one: abs(one.pct)) for levels in by_golden]
        return max(nearest, key=lambda one: abs(one.pct) / self.earlier_limit(one), default=None)

    def earlier_limit(self, earlier: Level) -> float:
        """How far a level before the end may be from the golden's, % of the loss."""
        return max(
            EARLIER_FACTOR * self.gap_limit,
            EARLIER_FACTOR * STANDARD_ERRORS * earlier.se_pct,
            self.explained_pct,
            earlier.parting_pct,
        )
