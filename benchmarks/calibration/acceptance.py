"""The acceptance protocol A1 to A13 on synthetic curves of known truth and on seven public reruns,
and F6: those reruns with borrowed run-to-run noise.

The synthetic reruns have the spread of the noisiest known group: run sd 0.0040 nats at a loss of
3.34, pair sd 0.0038, 1,530 steps.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from benchmarks.calibration import borrowed_noise, unseen_families
from benchmarks.marks import MarkedFigure, share
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.interval import t_quantile
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.secondary.token_tax import fit_law, token_tax
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_runs

LEVEL, RUN_SD, PAIR_SD, BATCH_SD, STEPS = 3.34, 0.0040, 0.0038, 0.08, 1530
# shares of the loss: 1.5 times the run sd of the noisiest known group, as the judge assumes of
# stochastic rounding
STOCHASTIC_SD = 0.0018
DATA = Path(__file__).parents[2] / "tests" / "data"
MARGINS = ("1.0%", "0.5%", "0.25%")
POLICY = {
    margin: policy_from_mapping({"margin": margin, "schedule": "decayed"}) for margin in MARGINS
}


def ar1(rng: np.random.Generator, count: int, n: int, rho: float) -> np.ndarray:
    """(count, n) AR(1) series of unit variance."""
    x = rng.normal(0.0, math.sqrt(1 - rho**2), (count, n))
    x[:, 0] = rng.normal(size=count)
    return lfilter([1.0], [1.0, -rho], x, axis=1)


def synthetic_law(n: int, level: float = LEVEL) -> np.ndarray:
    """A power law that ends near `level`."""
    return level - 8.0 * n**-0.5 + 8.0 * (np.arange(n) + 1.0) ** -0.5


def rerun(
    rng: np.random.Generator,
    batch: np.ndarray,
    run_sd: float = RUN_SD,
    gap: float = 0.0,
    recipe: str = "fp8",
) -> Curve:
    """A synthetic rerun on given batch noise: own offset, own step noise, a constant gap."""
    n = len(batch)
    loss = (
        synthetic_law(n)
        + batch
        + run_sd * rng.normal()
        + rng.normal(0, PAIR_SD / math.sqrt(2), n)
        + gap
    )
    return curve_from_arrays(np.arange(n), loss, recipe=recipe)


def public_reruns() -> list[Curve]:
    """The seven shared reruns, which round to nearest."""
    return [
        dataclasses.replace(run, rounding="nearest")
        for run in read_runs(str(DATA / "nanogpt_reruns.npz"))
    ]


def one(
    base: Sequence[Curve], cand: Sequence[Curve], policy: Policy, planned: int = STEPS
) -> Verdict:
    """Judge one candidate."""
    return judge(base, {"candidate": cand}, policy, planned_steps=planned)[0]


def covers(verdict: Verdict, truth: float = 0.0) -> bool:
    """Whether the 95 % interval holds the true gap."""
    lo, hi = verdict.gap.bounds(0.95)
    return lo <= truth <= hi


def group(count: int, seed: int, n: int = STEPS) -> list[Curve]:
    """Reruns of one configuration."""
    rng = np.random.default_rng(seed)
    batch = rng.normal(0, BATCH_SD, n)
    return [rerun(rng, batch) for _ in range(count)]


def a1(quick: bool) -> Iterator[MarkedFigure]:
    """Coverage of a known mean by the within-pair error alone."""
    count = 400 if quick else 2000
    slack = 0.015 if quick else 0.0
    cases = [(n, rho, 0.93) for n in (500, 2000) for rho in (0.0, 0.3, 0.6, 0.9)]
    cases += [(2000, 0.97, 0.92), (200, 0.0, 0.93), (200, 0.6, 0.93), (200, 0.9, 0.93)]
    for n, rho, low in cases:
        series = ar1(np.random.default_rng((n, int(100 * rho))), count, n, rho)
        errors = [mean_se(row) for row in series]
        hits = np.mean(
            [
                abs(row.mean()) <= t_quantile(0.95, se.df) * se.value
                for row, se in zip(series, errors, strict=True)
            ]
        )
        high = 0.985 if n >= 500 and rho <= 0.9 else 1.0
        yield MarkedFigure(
            what=f"coverage n={n} rho={rho}",
            value=share(hits),
            mark=f"{share(low)} to {share(high)}",
            ok=low - slack <= hits <= high + slack,
        )


def pair_table(runs: list[Curve], planned: int) -> Iterator[tuple[str, Counter[str], float, int]]:
    """All ordered pairs judged at each margin: states, coverage, pairs."""
    for margin in MARGINS:
        states: Counter[str] = Counter()
        hits = total = 0
        for base, cand in itertools.permutations(runs, 2):
            verdict = one([base], [cand], POLICY[margin], planned)
            states[verdict.verdict] += 1
            hits += covers(verdict)
            total += 1
        yield margin, states, hits / total, total


def a2(quick: bool) -> Iterator[MarkedFigure]:
    """Reruns, one against one."""
    for margin, states, hits, total in pair_table(public_reruns(), 1750):
        ok = (
            hits * total >= 38
            and (margin == "0.25%" or states["fail"] == 0)
            and (margin != "1.0%" or states["pass"] == 42)
        )
        yield MarkedFigure(
            what=f"public reruns, {margin}",
            value=f"{dict(states)}, covers 0 {share(hits)}",
            mark="no fail, 38 of 42 cover",
            ok=ok,
        )
    for margin, states, hits, total in pair_table(group(16 if quick else 38, seed=20), STEPS):
        low = {"1.0%": 0.99, "0.5%": 0.75, "0.25%": 0.0}[margin]
        allowed = 0.005 * total if margin == "0.25%" else 0
        ok = (
            hits >= 0.90 - 0.03 * quick
            and states["fail"] <= allowed
            and states["pass"] >= low * total
        )
        yield MarkedFigure(
            what=f"simulated reruns, {margin}",
            value=f"{dict(states)}, covers 0 {share(hits)}",
            mark=f"pass >= {share(low)}, cover >= 90 %",
            ok=ok,
        )


def a3(quick: bool) -> Iterator[MarkedFigure]:
    """Reruns, three against three."""
    runs, rng = group(38, seed=30), np.random.default_rng(31)
    count = 300 if quick else 2000
    hits, fails = 0, 0
    for _ in range(count):
        chosen = [runs[i] for i in rng.choice(38, 6, replace=False)]
        verdict = one(chosen[:3], chosen[3:], POLICY["0.5%"])
        hits += covers(verdict)
        fails += verdict.verdict == "fail"
    yield MarkedFigure(
        what="3 against 3, coverage",
        value=share(hits / count),
        mark=">= 90 %",
        ok=hits / count >= 0.90,
    )
    yield MarkedFigure(
        what="3 against 3, fails at 0.5 %", value=str(fails), mark="0", ok=fails == 0
    )


def a4(quick: bool) -> Iterator[MarkedFigure]:
    """Injected gaps: chance of pass and fail."""
    rng = np.random.default_rng(40)
    for runs, margin, factor in itertools.product((1, 3), MARGINS, (0.5, 1.0, 1.5, 2.0)):
        count = 100 if quick else 1000 if runs == 1 else 500
        rel = float(margin[:-1]) / 100
        states: Counter[str] = Counter()
        for _ in range(count):
            batch = rng.normal(0, BATCH_SD, STEPS)
            base = [rerun(rng, batch) for _ in range(runs)]
            level = float(np.mean([run.loss[-STEPS // 5 :].mean() for run in base]))
            cand = [rerun(rng, batch, gap=factor * rel * level) for _ in range(runs)]
            states[one(base, cand, POLICY[margin]).verdict] += 1
        passed, failed = states["pass"] / count, states["fail"] / count
        ok, mark = True, "reported"
        if factor == 1.0:
            ok, mark = max(passed, failed) <= (0.10 if quick else 0.06), "pass and fail <= 6 %"
        elif margin == "1.0%" and factor == 2.0:
            ok, mark = failed >= 0.99, "fail >= 99 %"
        elif margin == "1.0%" and factor == 1.5:
            ok, mark = passed == 0, "no pass"
        elif margin == "1.0%" and factor == 0.5:
            low = (0.75 if runs == 1 else 0.97) - 0.05 * quick
            ok, mark = passed >= low, f"pass >= {share(low)}"
        yield MarkedFigure(
            what=f"K={runs} margin {margin} gap {factor:g}x",
            value=f"pass {share(passed)}, fail {share(failed)}",
            mark=mark,
            ok=ok,
        )


def a5(quick: bool) -> Iterator[MarkedFigure]:
    """What a test without the between-run term would say."""
    sets = (
        ("public", public_reruns(), 1750),
        ("simulated", group(12 if quick else 30, seed=50), STEPS),
    )
    for name, runs, planned in sets:
        rejected = naive = total = 0
        for base, cand in itertools.permutations(runs, 2):
            verdict = one([base], [cand], POLICY["1.0%"], planned)
            rejected += not covers(verdict)
            naive += (
                abs(verdict.gap.mean)
                > t_quantile(0.95, verdict.gap.within.df) * verdict.gap.within.value
            )
            total += 1
        value = f"{share(rejected / total)}, without the between-run term {share(naive / total)}"
        yield MarkedFigure(
            what=f"{name} reruns called different",
            value=value,
            mark="< 15 %, > 70 %",
            ok=rejected / total < 0.15 and naive / total > 0.70,
        )


def a7(quick: bool) -> Iterator[MarkedFigure]:
    """Pairs cut before their plan ends."""
    runs = public_reruns()[: 4 if quick else 7]
    unstated = policy_from_mapping({"margin": "1.0%"})
    for cut in (0.10, 0.25, 0.50, 0.75):
        end = int(1750 * cut)
        short = [
            curve_from_arrays(run.steps[:end], run.loss[:end], rounding="nearest") for run in runs
        ]
        passes = 0
        for base, cand in itertools.permutations(short, 2):
            passes += sum(
                judge([base], {"c": [cand]}, unstated, planned_steps=plan)[0].verdict == "pass"
                for plan in (1750, None)
            )
        yield MarkedFigure(
            what=f"cut to {share(cut)} of the plan, passes",
            value=str(passes),
            mark="0",
            ok=passes == 0,
        )


def a11(quick: bool) -> Iterator[MarkedFigure]:
    """Token tax on a known law: bias and spread."""
    for n, tax in itertools.product((2000, 10_000), (0.0, 0.05, 0.15, 0.36)):
        estimates = []
        for seed in range(10 if quick else 40):
            rng = np.random.default_rng((110, seed))
            t = np.arange(1.0, n + 1.0)
            batch = rng.normal(0, BATCH_SD, n)
            base, cand = (
                2.0 + 8.0 * (t / scale) ** -0.35 + batch + rng.normal(0, PAIR_SD, n)
                for scale in (1.0, 1.0 + tax)
            )
            law = fit_law(np.arange(n), base)
            window = np.arange(int(0.8 * n), n)
            gap = float((cand - base)[window].mean())
            estimates.append(token_tax(law, window, 0, gap, gap, gap, constant_rate=True).estimate)
        bias, sd = float(np.mean(estimates)) - tax, float(np.std(estimates))
        value = f"{100 * np.mean(estimates):.1f} +- {100 * sd:.1f} %"
        yield MarkedFigure(
            what=f"n={n} true tax {share(tax)}",
            value=value,
            mark="bias <= 2, sd <= 4 points",
            ok=abs(bias) <= 0.02 and sd <= 0.04,
        )


def a12(quick: bool) -> Iterator[MarkedFigure]:
    """A candidate that rounds stochastically."""
    count = 100 if quick else 400
    rng = np.random.default_rng(120)
    for tau_b, runs in itertools.product((STOCHASTIC_SD, 0.0028, 0.0050, 0.0100), (1, 2, 3, 5)):
        wrong: Counter[float] = Counter()
        states: dict[float, Counter[str]] = {factor: Counter() for factor in (0.0, 0.5, 1.0, 2.0)}
        hits = 0
        for factor, counted in states.items():
            for _ in range(count):
                batch = rng.normal(0, BATCH_SD, STEPS)
                base = [
                    rerun(rng, batch, 0.0007 * LEVEL, recipe="fp8_current") for _ in range(runs)
                ]
                gap = factor * 0.01 * LEVEL
                cand = [rerun(rng, batch, tau_b * LEVEL, gap, "nvfp4") for _ in range(runs)]
                verdict = one(base, cand, POLICY["1.0%"])
                counted[verdict.verdict] += 1
                hits += covers(verdict, gap)
                wrong[factor] += (factor <= 0.5 and verdict.verdict == "fail") or (
                    factor >= 1.0 and verdict.verdict == "pass"
                )
        power = ", ".join(
            f"{factor:g}x P{100 * counts['pass'] / count:.0f} F{100 * counts['fail'] / count:.0f}"
            for factor, counts in states.items()
        )
        coverage, worst = hits / (4 * count), max(wrong.values()) / count
        has_mark = tau_b == STOCHASTIC_SD
        ok = not has_mark or (
            coverage >= 0.93 - 0.02 * quick and worst <= (0.10 if quick else 0.06)
        )
        yield MarkedFigure(
            what=f"tau_B {100 * tau_b:.2f} % K={runs}",
            value=f"coverage {share(coverage)}, wrong side {share(worst)}; {power}",
            mark="coverage >= 93 %, wrong <= 6 %" if has_mark else "reported",
            ok=ok,
        )


def a13(quick: bool) -> Iterator[MarkedFigure]:
    """Runs listed eight times."""
    runs = public_reruns()[: 4 if quick else 7]
    changed = 0
    for base, cand in itertools.permutations(runs, 2):
        for margin in MARGINS:
            single, often = (
                one([base], [cand], POLICY[margin], 1750),
                one([base] * 8, [cand] * 8, POLICY[margin], 1750),
            )
            changed += (single.verdict, single.gap) != (often.verdict, often.gap)
    yield MarkedFigure(
        what="each run listed 8 times, verdicts or intervals changed",
        value=str(changed),
        mark="0",
        ok=changed == 0,
    )


def f6(_quick: bool) -> Iterator[MarkedFigure]:
    """The public reruns, one against one, with the run-to-run noise of a family that is half as
    noisy as they are, and with that of no family.
    """
    for family in (borrowed_noise.TRACK3, borrowed_noise.RECORDS, unseen_families.ANY_DECODER):
        named = {"baseline": family, "candidate": family}
        for margin in MARGINS:
            states: Counter[str] = Counter()
            hits = 0
            for base, cand in itertools.permutations(public_reruns(), 2):
                (verdict,) = judge(
                    [base],
                    {"candidate": [cand]},
                    POLICY[margin],
                    assume_complete=True,
                    baseline_name="baseline",
                    noise_table=borrowed_noise.public_noise_table(),
                    families=named,
                )
                states[verdict.verdict] += 1
                hits += covers(verdict)
            value = f"{dict(states)}, covers 0 {share(hits / 42)}"
            yield MarkedFigure(
                what=f"public reruns, {family.rpartition('/')[2]}, {margin}",
                value=value,
                mark="no fail",
                ok=states["fail"] == 0,
            )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    "A1": a1,
    "A2": a2,
    "A3": a3,
    "A4": a4,
    "A5": a5,
    "A7": a7,
    "A11": a11,
    "A12": a12,
    "A13": a13,
    "F6": f6,
}
