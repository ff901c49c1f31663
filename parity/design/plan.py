"""Can this experiment decide? Chance of pass, inconclusive and fail before any GPU is spent, and the cheapest design that decides.

gap_hat ~ N(true gap, V), V = tau_A^2/K_A + tau_B^2/K_B + SE_within^2, half-width h = t(df) SE with the df that K_A and K_B will give
pass = P(gap_hat + h < margin), fail = P(gap_hat - h > margin), the rest inconclusive; a design decides where it passes a gap of 0 and
fails a gap of 2 margins with 80 % probability each; where the policy forbids a pass whatever the gap (too few points in the window, one
logged point a step, or assumed noise that it rejects), the chance of a pass is 0
cheapest = fewest run-steps (K_A + K_B) x steps, then the narrowest interval; a run is never made shorter than planned, because a shorter
run answers another question, and a longer one shrinks only SE_within

Can fail: tau is what is assumed here; h is taken at the tau that is assumed, its own spread is left out (it is inside the t quantile).
SE_within = pair_sd sqrt((1 + rho)/(1 - rho)/n), pair_sd 0.0038 nats of 3.34 (0.11 % of the loss) where nothing better is known.
"""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import get_args

from scipy.special import ndtr

from parity.judging.criteria import Amount, Criteria
from parity.judging.curve import Rounding
from parity.judging.interval import Interval, interval
from parity.judging.margin import determine_margin
from parity.judging.noise import StandardError
from parity.judging.reasons import MIN_POINTS_TO_FAIL
from parity.judging.run_floor import Prior, RunFloor, prior_for, run_term
from parity.judging.window_statistics import MIN_MEASURED_DF
from parity.recipes import check_recipe
from parity.wording import count

GAPS_IN_MARGINS = (0.0, 0.5, 1.0, 2.0)
WANTED_POWER = 0.80
PAIR_SD = Amount(value=0.0011, unit="relative")
WITHIN_DF = 12.0
MAX_RUNS = 16
STEP_FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is planned: runs per arm, steps of a run, the loss expected in the window, recipes and rounding (see `parity.recipes`)."""

    level: float
    planned_steps: int
    baseline_runs: int = 1
    candidate_runs: int = 1
    baseline_recipe: str | None = None
    candidate_recipe: str | None = None
    baseline_rounding: Rounding | None = None
    candidate_rounding: Rounding | None = None
    pair_sd: float | None = None
    autocorrelation: float = 0.0
    step_seconds: float | None = None
    devices: int = 1

    def __post_init__(self) -> None:
        for name in ("level", "planned_steps", "baseline_runs", "candidate_runs", "devices"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        if not 0.0 <= self.autocorrelation < 1.0:
            raise ValueError(f"autocorrelation is {self.autocorrelation}; expected 0 to below 1")
        for name in ("baseline_recipe", "candidate_recipe"):
            check_recipe(getattr(self, name), name)
        for name in ("baseline_rounding", "candidate_rounding"):
            if getattr(self, name) not in (None, *get_args(Rounding)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {' or '.join(get_args(Rounding))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Chances at one true gap (nats, and in margins)."""

    gap: float
    gap_in_margins: float
    pass_chance: float
    inconclusive_chance: float
    fail_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a design can decide: half-width and margin in nats, chances at four true gaps, and the largest gap that passes half the time."""

    design: Design
    margin: float
    half_width: float
    largest_gap_that_passes: float
    power: tuple[Power, ...]
    decides: bool
    gpu_hours: float | None
    cheapest: Design | None
    advice: str
    note: str
    within_se: float
    run_se: float


def plan(design: Design, criteria: Criteria) -> Plan:
    """Power of a design under a policy, and the cheapest (K_A, K_B, steps) that decides. Raises ValueError for a bad design or margin."""
    margin = _margin(design, criteria)
    gap = _interval(design, criteria)
    half = gap.half_width(criteria.confidence)
    power = tuple(_allowed(_power(factor, margin, half, gap.se), design, criteria) for factor in GAPS_IN_MARGINS)
    decides = _decides(design, criteria, margin, gap)
    cheapest = cheapest_design(design, criteria, margin)
    return Plan(
        design=design,
        margin=margin,
        half_width=half,
        largest_gap_that_passes=margin - half,
        power=power,
        decides=decides,
        gpu_hours=gpu_hours(design),
        cheapest=cheapest,
        advice=_advice(design, cheapest, criteria, power[0], margin, half, decides=decides),
        note=_note(gap),
        within_se=gap.within.value,
        run_se=math.sqrt(gap.run.variance),
    )


def cheapest_design(design: Design, criteria: Criteria, margin: float) -> Design | None:
    """The design with the fewest run-steps in all (then the narrowest interval) that decides; None up to 16 runs an arm."""
    best: tuple[int, float, Design] | None = None
    for steps in _lengths(design, criteria):
        for base, cand in itertools.product(range(1, MAX_RUNS + 1), repeat=2):
            cost = (base + cand) * steps
            if best is not None and cost > best[0]:
                continue
            tried = dataclasses.replace(design, baseline_runs=base, candidate_runs=cand, planned_steps=steps)
            gap = _interval(tried, criteria)
            half = gap.half_width(criteria.confidence)
            if _decides(tried, criteria, margin, gap) and (best is None or (cost, half) < best[:2]):
                best = (cost, half, tried)
    return best[2] if best else None


def _lengths(design: Design, criteria: Criteria) -> list[int]:
    """Steps to try: the planned ones, multiples of them, and the fewest whose window holds enough points; none below the plan."""
    least = math.ceil(criteria.min_points / criteria.window_fraction)
    return sorted({max(least, design.planned_steps), *(math.ceil(factor * design.planned_steps) for factor in STEP_FACTORS)})


def gpu_hours(design: Design) -> float | None:
    """Device hours of all runs; None without a step time."""
    if design.step_seconds is None:
        return None
    return (design.baseline_runs + design.candidate_runs) * design.planned_steps * design.step_seconds * design.devices / 3600.0


def device_hours(hours: float) -> str:
    """Device hours in words, three digits below a hundred."""
    return f"{hours:,.0f} device hours" if hours >= 100 else f"{hours:.3g} device hours"


def _margin(design: Design, criteria: Criteria) -> float:
    floor = _floor(design.baseline_runs, _priors(design, criteria)[0])
    margin = determine_margin(criteria, design.level, floor)
    if margin is None:
        raise ValueError("the noise-floor margin can't be planned with: it is measured by the runs; state a margin in % or nats")
    return margin.nats


def _priors(design: Design, criteria: Criteria) -> tuple[Prior, Prior]:
    return (
        prior_for(design.baseline_recipe, criteria.baseline_run_floor, criteria, design.level, design.baseline_rounding),
        prior_for(design.candidate_recipe, criteria.candidate_run_floor, criteria, design.level, design.candidate_rounding),
    )


def _floor(runs: int, prior: Prior) -> RunFloor:
    """The run floor as it will be if the reruns spread as assumed."""
    return RunFloor(tau=prior.tau, df=prior.df + runs - 1, source="prior", prior=prior, measured=None, measured_df=runs - 1, runs=runs)


def _points(design: Design, criteria: Criteria) -> int:
    """Points in the window where every step is logged."""
    return max(1, round(criteria.window_fraction * design.planned_steps))


def _interval(design: Design, criteria: Criteria) -> Interval:
    """The gap's interval around 0 that the design will give."""
    base, cand = _priors(design, criteria)
    spread = PAIR_SD.nats(design.level) if design.pair_sd is None else design.pair_sd
    rho = design.autocorrelation
    within = spread * math.sqrt((1.0 + rho) / (1.0 - rho) / _points(design, criteria))
    term = run_term(_floor(design.baseline_runs, base), _floor(design.candidate_runs, cand))
    return interval(0.0, StandardError(value=within, df=WITHIN_DF), term)


def _power(factor: float, margin: float, half: float, se: float) -> Power:
    gap = factor * margin
    passes = float(ndtr((margin - half - gap) / se)) if se else float(gap + half < margin)
    fails = float(ndtr((gap - half - margin) / se)) if se else float(gap - half > margin)
    return Power(gap=gap, gap_in_margins=factor, pass_chance=passes, inconclusive_chance=max(0.0, 1.0 - passes - fails), fail_chance=fails)


def _allowed(power: Power, design: Design, criteria: Criteria) -> Power:
    """The chances without the verdicts that the policy rules out for this design; what is ruled out becomes inconclusive."""
    passes = 0.0 if _why_no_pass(design, criteria) else power.pass_chance
    fails = 0.0 if _points(design, criteria) < min(criteria.min_points, MIN_POINTS_TO_FAIL) else power.fail_chance
    return dataclasses.replace(power, pass_chance=passes, inconclusive_chance=max(0.0, 1.0 - passes - fails), fail_chance=fails)


def _why_no_pass(design: Design, criteria: Criteria) -> str | None:
    """Why the policy forbids a pass of this design whatever the gap, or None."""
    points = _points(design, criteria)
    if points < criteria.min_points:
        return f"its window holds {points:,} steps and {criteria.min_points:,} are needed"
    fewest, df = min(design.baseline_runs, design.candidate_runs), design.baseline_runs + design.candidate_runs - 2
    if criteria.assumed_noise == "reject" and (fewest < 2 or df < MIN_MEASURED_DF):
        return f"the policy rejects assumed run noise, and to measure it takes 2 runs per arm and {MIN_MEASURED_DF + 2} in all"
    return None


def _decides(design: Design, criteria: Criteria, margin: float, gap: Interval) -> bool:
    half = gap.half_width(criteria.confidence)
    equal, twice = (_allowed(_power(factor, margin, half, gap.se), design, criteria) for factor in (0.0, 2.0))
    return min(equal.pass_chance, twice.fail_chance) >= WANTED_POWER


def _advice(design: Design, cheapest: Design | None, criteria: Criteria, equal: Power, margin: float, half: float, *, decides: bool) -> str:
    """What the design can do and what would be cheaper or better; `equal` is its power at a gap of 0."""
    if decides:
        verdict = f"This design decides: the interval is {half:.4f} nats wide on each side, the margin {margin:.4f}."
        cheaper = cheapest is not None and _run_steps(cheapest) < _run_steps(design)
        return f"{verdict} A cheaper one decides too: {_words(cheapest)}." if cheaper and cheapest else verdict
    verdict = (
        f"This design passes a gap of 0 with a chance of only {100 * equal.pass_chance:.0f} %, and {100 * WANTED_POWER:.0f} % are needed "
        f"(interval -+{half:.4f}, margin {margin:.4f})."
    )
    if why := _why_no_pass(design, criteria):
        verdict = f"This design cannot pass: {why}."
    if cheapest is None:
        return f"{verdict} No design of up to {MAX_RUNS} runs per arm decides: state a wider margin, or measure and declare the run floors."
    return f"{verdict} The cheapest that decides: {_words(cheapest)}."


def _words(design: Design) -> str:
    hours = gpu_hours(design)
    cost = f", {device_hours(hours)}" if hours is not None else ""
    runs = f"{count(design.baseline_runs, 'baseline run')} and {count(design.candidate_runs, 'candidate run')}"
    return f"{runs} of {design.planned_steps:,} steps{cost}"


def _run_steps(design: Design) -> int:
    return (design.baseline_runs + design.candidate_runs) * design.planned_steps


def _note(gap: Interval) -> str:
    within, run = gap.within.value, math.sqrt(gap.run.variance)
    return f"More steps shrink only the within-pair error ({within:.4f} nats); the between-run error ({run:.4f} nats) needs runs."
