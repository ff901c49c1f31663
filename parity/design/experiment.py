"""An experiment that is planned: its arms, its size, its cost, what may be spent on it, and what an
earlier run says about it.
"""

import math
import re
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Rounding, usable
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.curves.step_noise import step_noise
from parity.judging.live.run_noise import LiveArm
from parity.judging.policy import Amount
from parity.readers import read_with_config
from parity.readers.columns import ReadError
from parity.readers.trackers.run import FAMILY
from parity.recipes import check_recipe
from parity.wording import count

# An experiment that is planned: its arms, its size, and what it costs.

# of the difference of two runs at one step, where nothing better is known
PAIR_SD = Amount(value=0.0011, unit="relative")
DEFAULT_STOP, MAX_STOP = 0.5, 0.9  # shares of the steps; later a full replicate is better
MAX_LEVEL = 1e6  # nats; losses above it count as infinite
# the names of the arms, as `--family ARM=NAME` has them
BASELINE, CANDIDATE = "baseline", "candidate"

_POSITIVE = (
    "level",
    "planned_steps",
    "baseline_runs",
    "candidate_runs",
    "pair_sd",
    "step_seconds",
    "devices",
    "candidates",
    "log_every",
)


@frozen
class Design:
    """What is planned: runs per arm, steps of a run, the loss expected in the window, recipes and
    rounding (see `parity.recipes`).

    `level` is in nats; None where it is not known, and then everything is a share of the loss.
    `pair_sd` is in nats; the loss is logged every `log_every` steps. Each arm has `short_reruns`
    reruns that stop after the share `stop_at` of the steps; `controls` are reruns of the baseline
    that exist already. So many `candidates` like this one share the baseline and the error.
    """

    planned_steps: int
    level: float | None = None
    baseline_runs: int = 1
    candidate_runs: int = 1
    short_reruns: int = 0
    stop_at: float = DEFAULT_STOP
    controls: int = 0
    baseline_recipe: str | None = None
    candidate_recipe: str | None = None
    baseline_rounding: Rounding | None = None
    candidate_rounding: Rounding | None = None
    pair_sd: float | None = None
    autocorrelation: float = 0.0
    step_seconds: float | None = None
    devices: int = 1
    candidates: int = 1
    log_every: int = 1

    @property
    def arms(self) -> tuple[LiveArm, LiveArm]:
        """Baseline and candidate before any of their runs has trained."""
        return (
            LiveArm(
                recipe=self.baseline_recipe,
                rounding=self.baseline_rounding,
                runs=self.baseline_runs,
            ),
            LiveArm(
                recipe=self.candidate_recipe,
                rounding=self.candidate_rounding,
                runs=self.candidate_runs,
            ),
        )

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; expected more than 0")
            if value == math.inf:
                raise ValueError(f"{name} is {value}; expected a finite number")
        self._check_reruns()
        if self.level is not None and self.level > MAX_LEVEL:
            raise ValueError(f"level is {self.level:g}; expected nats, at most {MAX_LEVEL:,.0f}")
        if self.pair_sd is not None and self.pair_sd > (
            MAX_LEVEL if self.level is None else self.level
        ):
            most = f"{MAX_LEVEL:,.0f}" if self.level is None else f"the loss, {self.level:g}"
            raise ValueError(f"pair_sd is {self.pair_sd:g}; expected nats, at most {most}")
        if not 0.0 <= self.autocorrelation < 1.0:
            raise ValueError(f"autocorrelation is {self.autocorrelation}; expected 0 to below 1")
        for name in ("baseline_recipe", "candidate_recipe"):
            check_recipe(getattr(self, name), name)
        for name in ("baseline_rounding", "candidate_rounding"):
            if getattr(self, name) not in (None, *get_args(Rounding)):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; expected {' or '.join(get_args(Rounding))}"
                )

    def _check_reruns(self) -> None:
        if not 0 <= self.short_reruns <= MAX_SHORT_RERUNS:
            raise ValueError(
                f"short_reruns is {self.short_reruns}; expected 0 to {MAX_SHORT_RERUNS} per arm"
            )
        if not MIN_STOP <= self.stop_at <= MAX_STOP:
            raise ValueError(
                f"stop_at is {self.stop_at:g}; expected a share of the steps from {MIN_STOP:g} to "
                f"{MAX_STOP:g}"
            )
        if self.controls < 0:
            raise ValueError(f"controls is {self.controls}; expected 0 or more")


def run_steps(design: Design) -> int:
    """Steps of all runs together, without those of controls."""
    early = (
        (1 + design.candidates) * design.short_reruns * round(design.stop_at * design.planned_steps)
    )
    return (
        full_run_steps(
            design.baseline_runs, design.candidate_runs, design.planned_steps, design.candidates
        )
        + early
    )


def full_run_steps(baseline_runs: int, candidate_runs: int, steps: int, candidates: int) -> int:
    """Steps of full runs alone: of the baseline, and of each candidate."""
    return (baseline_runs + candidates * candidate_runs) * steps


def gpu_hours(design: Design) -> float | None:
    """Device hours of all runs; None without a step time."""
    if design.step_seconds is None:
        return None
    return hours_of(run_steps(design), design.step_seconds, design.devices)


def hours_of(steps: float, step_seconds: float, devices: int) -> float:
    """Device hours of a number of run-steps."""
    return steps * step_seconds * devices / 3600.0


def device_hours(hours: float) -> str:
    """Device hours in words, three digits below a hundred."""
    if hours >= 100:
        return f"{hours:,.0f} device hours"
    return f"{hours:.3g} device hours"


def runs_words(design: Design) -> str:
    """The runs in words, "1 baseline run and 2 candidate runs of 10,000 steps", and the reruns that
    stop early.
    """
    each = f" of each of {design.candidates} candidates" if design.candidates > 1 else ""
    if each:
        own = f"{count(design.candidate_runs, 'run')}{each}"
    else:
        own = count(design.candidate_runs, "candidate run")
    runs = f"{count(design.baseline_runs, 'baseline run')} and {own}"
    early = f" with {early_words(design)}" if design.short_reruns else ""
    return f"{runs}{', each' if each else ''} of {count(design.planned_steps, 'step')}{early}"


def early_words(design: Design) -> str:
    """The reruns that stop early, "3 reruns per arm that stop at 50 %"."""
    verb = "stops" if design.short_reruns == 1 else "stop"
    return (
        f"{count(design.short_reruns, 'rerun')} per arm that {verb} at {100 * design.stop_at:g} %"
    )


def cost_words(design: Design) -> str:
    """What the runs cost in words, in run-steps and where the step time is known in device
    hours.
    """
    hours = gpu_hours(design)
    return f"{run_steps(design):,} run-steps" + (
        f", {device_hours(hours)}" if hours is not None else ""
    )


# What may be spent on an experiment: device hours, or steps of all runs together.

_NUMBER = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*(hours?|h|steps?)\s*", re.IGNORECASE | re.ASCII)
MAX_STEPS, MAX_HOURS = 1e15, 1e12
# 40.000: forty, or in many countries forty thousand
_THREE_DECIMALS = re.compile(r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}")
_EXPECTED = (
    'expected device hours such as "200 hours", or steps of all runs together such as "40000 steps"'
)


class BudgetError(ValueError):
    """A budget that cannot be planned with; the message begins with "budget" and says what was
    expected.
    """


@frozen
class Budget:
    """An amount, in device hours or in run-steps."""

    amount: float
    unit: Literal["hours", "steps"]

    def __str__(self) -> str:
        if self.unit == "hours":
            return device_hours(self.amount)
        return count(math.floor(self.amount), "run-step")

    def run_steps(self, design: Design) -> float:
        """How many steps it pays for, of all runs together. Raises BudgetError where hours lack a
        step time, or not even a pair fits.
        """
        pair = (1 + design.candidates) * design.planned_steps
        if self.unit == "steps":
            steps, cost = self.amount, count(pair, "step")
        elif design.step_seconds is None:
            raise BudgetError(
                f"budget is {self}, but the duration of a step is unknown; state --step-seconds, "
                "or the budget in steps"
            )
        else:
            hour = hours_of(1.0, design.step_seconds, design.devices)
            steps, cost = self.amount / hour, device_hours(pair * hour)
        if steps < pair:
            raise BudgetError(
                f"budget is {self}, but one pair of runs of {count(design.planned_steps, 'step')} "
                f"takes {cost}; expected at least that"
            )
        return steps


def parse_budget(text: str) -> Budget:
    """Read "200 hours" or "40,000 steps". Raises BudgetError for anything else: steps are whole,
    commas part groups of three digits, and a point before exactly three could do that too.
    """
    match = _AMOUNT.fullmatch(text)
    try:
        amount = float(match[1].replace(",", "")) if match else math.nan
    except ValueError:
        match, amount = None, math.nan
    if match is None:
        raise BudgetError(f"budget is {text!r}; {_EXPECTED}")
    if _THREE_DECIMALS.fullmatch(match[1]):
        readings = f'"{amount:g} {match[2]}" or "{round(1000 * amount):,} {match[2]}"'
        raise BudgetError(
            f"budget is {text!r}, which can be read as {readings}; write the one that you mean; "
            f"{_EXPECTED}"
        )
    if not match[2].lower().startswith("s"):
        if not 0.0 < amount <= MAX_HOURS:
            raise BudgetError(
                f"budget is {text!r}, which is not a number above 0 and at most {MAX_HOURS:g}; "
                f"{_EXPECTED}"
            )
        return Budget(amount=amount, unit="hours")
    if not 1.0 <= amount <= MAX_STEPS or "." in match[1] or not amount.is_integer():
        raise BudgetError(
            f"budget is {text!r}, which is not a whole number of steps from 1 to {MAX_STEPS:g}; "
            f"{_EXPECTED}"
        )
    return Budget(amount=amount, unit="steps")


# What an earlier run says about a planned experiment: loss near its end, recipe, rounding, family
# of reruns, time per step, log interval.
#
# level         mean of the finite losses over the last fifth of the run's points
# pair_sd       the larger of 0.11 % of the level and 0.15 of the run's own batch noise there
# step_seconds  as the run's config states it, else the median of the logged times per step
# log_every     the most common interval between logged losses
#
# One run does not show what its batch noise leaves in the difference of a pair. It was 0.025 to
# 0.055 of it in 9 of 12 public pairs with one data order (torchtitan_gb200,
# llama31_8b_160b_train_tail, rtx6000_277m), 0.21 to 0.24 in the other three, and 0.11 to 0.15 in
# the emulated pairs of examples/curves.
#
# Can fail: a run that was shorter, or longer, than the planned one ends at another loss; a pair
# whose data order differs keeps all of its batch noise.

LAST_SHARE = 0.2
_SHARED = 0.15  # what a pair keeps of a run's batch noise


@frozen
class Likeness:
    """What a run states, None for what it does not; `level` and `pair_sd` in nats, `words` for the
    report.
    """

    level: float
    pair_sd: float
    recipe: str | None
    rounding: Rounding | None
    family: str | None
    step_seconds: float | None
    log_every: int
    words: str


def likeness(name: str, columns: Mapping[str, str]) -> Likeness:
    """What the run in a file or a tracker states. Raises ReadError where it cannot be read, or has
    no finite loss near its end.
    """
    curve, facts = read_with_config(name, columns=columns)
    late = curve.loss[-max(1, round(LAST_SHARE * len(curve.loss))) :]
    finite = late[usable(late)]
    if not len(finite):
        raise ReadError(
            f"{name}: the last fifth of the run has no finite loss; expected a run that converged"
        )
    logged = curve.columns.get("step_seconds", np.empty(0))
    logged = logged[np.isfinite(logged) & (logged > 0.0)]
    seconds = facts.step_seconds
    if seconds is None and len(logged):
        seconds = float(np.median(logged))
    level, family = float(finite.mean()), curve.context.get(FAMILY)
    pair_sd = min(max(PAIR_SD.nats(level), _SHARED * step_noise(finite)), abs(level))
    known = {
        "loss": f"{level:.4g}",
        "recipe": curve.recipe,
        "rounding": curve.rounding,
        "family": family,
    }
    stride = curve.completeness.stride or 1
    known["logged every"] = f"{stride:,} steps" if stride > 1 else None
    known["seconds per step"] = None if seconds is None else f"{seconds:.4g}"
    stated = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
    return Likeness(
        level=level,
        pair_sd=pair_sd,
        recipe=curve.recipe,
        rounding=curve.rounding,
        family=family,
        step_seconds=seconds,
        log_every=stride,
        words=f"From {curve.label or name}: {stated}.",
    )
