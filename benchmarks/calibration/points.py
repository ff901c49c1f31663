"""P1 to P4: few points, thinned logs, real logs of three precisions, and the law of worsening on
thinned logs.
"""

import csv
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from benchmarks.marks import PUBLIC_RUNS, MarkedFigure, share
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_ses
from parity.judging.gap.interval import t_quantile
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_runs

RERUNS = Path(__file__).parents[2] / "tests" / "data" / "nanogpt_reruns.npz"
GB200 = PUBLIC_RUNS / "torchtitan_gb200"
STRIDES = (1, 5, 10, 20, 25)
STEPS = 1750


def thinned(run: Curve, stride: int, rounding: str | None) -> Curve:
    """Every `stride`-th step of a run, counted back from its last."""
    at = slice((len(run.steps) - 1) % stride, None, stride)
    return curve_from_arrays(run.steps[at], run.loss[at], label=run.label, rounding=rounding)  # type: ignore[arg-type]


def word(verdict: Verdict) -> str:
    """The verdict, with the point of training that it speaks of where that is not the end."""
    if "AS_OF" not in verdict.codes or (
        verdict.verdict == "inconclusive" and verdict.codes[0] != "AS_OF"
    ):
        return verdict.verdict
    return f"{'pass' if verdict.verdict == 'inconclusive' else verdict.verdict} as of"


def p1(quick: bool) -> Iterator[MarkedFigure]:
    """Coverage of an AR(1) mean by the within-pair error of few points, and the median half-width
    over that of a known error.
    """
    count = 2000 if quick else 20_000
    for n, rho in itertools.product(
        (8, 12, 15, 20, 30, 50, 100, 150, 200), (0.0, 0.3, 0.6, 0.8, 0.9)
    ):
        noise = np.random.default_rng((n, int(100 * rho))).normal(size=(count, n + 200))
        rows = lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]
        values, df = mean_ses(rows)
        halves = np.array([t_quantile(0.95, freedom) for freedom in df]) * values
        hits = float(np.mean(np.abs(rows.mean(axis=1)) <= halves))
        true_half = 1.96 * float(rows.mean(axis=1).std())
        marked = (n >= 12 and rho <= 0.8) or n >= 20
        yield MarkedFigure(
            what=f"n={n} rho={rho}: coverage, half-width",
            value=f"{share(hits)}, {float(np.median(halves)) / true_half:.2f} x",
            mark=">= 93 %" if marked else "printed",
            ok=not marked or hits >= 0.93 - 0.01 * quick,
        )


def p2(quick: bool) -> Iterator[MarkedFigure]:
    """Seven public reruns, all 42 ordered pairs, thinned; finished as stated, and with nothing
    stated (as of).
    """
    runs = read_runs(str(RERUNS))
    for rounding, schedule, margin in itertools.product(
        ("nearest", None), ("decayed", "unstated"), ("1%", "0.5%")
    ):
        policy = policy_from_mapping({"margin": margin, "schedule": schedule})
        for stride in STRIDES[:: 2 if quick else 1]:
            arms = [thinned(run, stride, rounding) for run in runs]
            verdicts = [
                judge([a], {"c": [b]}, policy, planned_steps=STEPS)[0]
                for a, b in itertools.permutations(arms, 2)
            ]
            states = Counter(word(verdict) for verdict in verdicts)
            halves = [
                100 * verdict.gap.half_width(0.95) / verdict.measurements.statistics.baseline.level
                for verdict in verdicts
            ]
            passed = (states["pass"] + states["pass as of"]) / len(verdicts)
            least = {
                ("nearest", "decayed"): 0.99,
                (None, "decayed"): 0.97,
                ("nearest", "unstated"): 0.97,
                (None, "unstated"): 0.70,
            }
            ok = not states["fail"] + states["fail as of"] and (
                margin != "1%" or passed >= least[rounding, schedule]
            )
            what = f"every {stride}, {rounding or 'rounding unstated'}, {schedule}, {margin}"
            yield MarkedFigure(
                what=what,
                value=f"{dict(states)}, h {np.median(halves):.3f} %",
                mark="no fail",
                ok=ok,
            )


def gb200_arms(name: str) -> Mapping[str, Curve]:
    """The arms of one of the GB200 tables."""
    rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
    with (GB200 / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["arm"]].append((int(row["step"]), float(row["loss"])))
    recipes = {"bf16": "bf16", "mxfp8": "mxfp8"}
    return {
        arm: curve_from_arrays(
            *zip(*values, strict=True), label=arm, recipe=recipes.get(arm, "nvfp4")
        )
        for arm, values in rows.items()
    }


def p3(_quick: bool) -> Iterator[MarkedFigure]:
    """The GB200 logs, nothing stated but the recipes and the plan; skipped where they are not at
    hand.
    """
    expected = {
        "llama31_8b_continued": {"mxfp8": {"pass as of"}, "nvfp4_mixed": {"fail as of"}},
        "llama3_8b_scratch_eager": {},
        "llama3_8b_scratch_graph": {"nvfp4": {"inconclusive"}},
        "deepseek_v3_16b": {},
    }
    for name, answers in expected.items() if GB200.exists() else ():
        arms = gb200_arms(name)
        plan = 382 if name.startswith("deepseek") else 763
        for arm in [arm for arm in arms if arm != "bf16"]:
            (verdict,) = judge(
                [arms["bf16"]],
                {arm: [arms[arm]]},
                policy_from_mapping({"margin": "1%"}),
                planned_steps=plan,
            )
            level = verdict.measurements.statistics.baseline.level
            mean, (lo, hi) = verdict.gap.mean, verdict.gap.bounds(0.95)
            allowed = answers.get(arm, {"inconclusive", "pass as of"})
            value = (
                f"{word(verdict)} {verdict.codes[0]} {100 * mean / level:+.2f} "
                f"({100 * lo / level:+.2f} to {100 * hi / level:+.2f})"
            )
            yield MarkedFigure(
                what=f"{name} {arm}",
                value=value,
                mark=" or ".join(sorted(allowed)),
                ok=word(verdict) in allowed,
            )


def p4(quick: bool) -> Iterator[MarkedFigure]:
    """The law of worsening on thinned logs: one wild point, a ramp or a step makes a candidate
    worse.
    """
    rng, runs = np.random.default_rng(0), read_runs(str(RERUNS))
    cases, fails, undone, gained = 600 if quick else 6000, 0, Counter[str](), Counter[str]()
    for _ in range(cases):
        base, cand = (
            thinned(runs[i], int(stride), "nearest")
            for i, stride in zip(rng.permutation(7)[:2], [rng.choice(STRIDES)] * 2, strict=True)
        )
        margin = 0.01 * float(base.loss[-len(base.loss) // 5 :].mean())
        n, policy = len(cand.loss), policy_from_mapping({"margin": "1%", "schedule": "decayed"})
        before = cand.loss + rng.uniform(0.0, 2.5) * margin
        kind, by, last = (
            rng.choice(["point", "ramp", "step"]),
            margin * math.exp(rng.uniform(-2.0, 5.0)),
            int(rng.integers(1, n // 3)),
        )
        shape = {"point": np.arange(n) == n - last, "step": np.arange(n) >= n - last}.get(kind)
        more = np.clip((np.arange(n) - n + last) / last, 0.0, 1.0) if shape is None else shape
        states = [
            judge(
                [base],
                {"c": [curve_from_arrays(cand.steps, loss, rounding="nearest")]},
                policy,
                planned_steps=STEPS,
            )[0].verdict
            for loss in (before, before + by * more)
        ]
        fails += states[0] == "fail"
        undone[kind] += states[0] == "fail" != states[1]
        gained[kind] += states[1] == "pass" != states[0]
    value = (
        f"{sum(gained.values())} passes gained, {sum(undone.values())} of {fails} fails undone "
        f"{dict(undone)}"
    )
    ok = not sum(gained.values()) and sum(undone.values()) <= 0.01 * fails
    yield MarkedFigure(what=f"{cases} worse candidates", value=value, mark="0; <= 1 %", ok=ok)


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {
    "P1": p1,
    "P2": p2,
    "P3": p3,
    "P4": p4,
}
