"""An experiment that is planned: its arms, its size, and what it costs."""

import math
from typing import get_args

from parity.frozen import frozen
from parity.judging.curves.curve import Rounding
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.live.run_noise import LiveArm
from parity.judging.policy import Amount
from parity.recipes import check_recipe
from parity.wording import count

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
    candidates = f" of each of {design.candidates} candidates" if design.candidates > 1 else ""
    if candidates:
        candidate_runs = f"{count(design.candidate_runs, 'run')}{candidates}"
    else:
        candidate_runs = count(design.candidate_runs, "candidate run")
    runs = f"{count(design.baseline_runs, 'baseline run')} and {candidate_runs}"
    early = f" with {early_words(design)}" if design.short_reruns else ""
    return f"{runs}{', each' if candidates else ''} of {count(design.planned_steps, 'step')}{early}"


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
