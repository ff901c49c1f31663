"""What rules about files and records cost honest runs: simulated honest sets of many families, and
pairs made worse step by step.

    python -m benchmarks.calibration.left_out [--sets 420] [--worse 2000]

An honest set is a pair, or several seeds, of one recipe without a gap, logged as people log: every
step or each 50th, with few digits, with evaluations, restarts, spikes in both arms, large batches,
a late start, other initial weights. A sober reader passes it where the window has 12 points and the
plan, the end of the schedule and the order of the data are known. Worsening adds to a candidate's
losses what makes it worse; nothing of that may turn a verdict that is no pass into one.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

import parity
from benchmarks.marks import MarkedFigure
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict

ACCUSATIONS = {
    *(
        "ARMS_IDENTICAL",
        "ARM_AVERAGED",
        "BASELINE_INVALID",
        "CONFOUNDED",
        "DATA_ORDER_MISMATCH",
        "LEARNING_RATES_DIFFER",
        "LINES_UNREAD",
    ),
    *(
        "LOSSES_DIFFER",
        "LOSSES_NOT_LOGGED",
        "POINTS_IN_ONE_ARM",
        "RECIPE_CONTRADICTED",
        "ROLLED_BACK",
        "RUN_ABOVE_MARGIN",
        "SMOOTHED",
    ),
    *(
        "START_DIFFERS",
        "START_OFFSET",
        "STEPS_SCALED",
        "STEPS_SHIFTED",
        "TREATMENT_UNSHOWN",
        "UNSTABLE",
    ),
}
"""Codes that say that something is wrong with runs that are all right."""


@dataclass(frozen=True, kw_only=True)
class RunFamily:
    """How the runs of one set were trained and logged."""

    steps: int
    every: int
    level: float
    first: float
    schedule: str
    digits: int
    batch_sd: float
    pair_sd: float
    run_sd: float
    seeds: int
    spikes: int
    begins: float
    lost: float
    records_rate: bool


def family(rng: np.random.Generator) -> RunFamily:
    """One of some thousands of ways to train and to log."""
    every = int(rng.choice([1, 1, 2, 5, 10, 20, 50]))
    steps = int(rng.choice([300, 1000, 2000, 5000, 20_000, 50_000, 200_000]))
    level = float(rng.uniform(1.0, 11.0))
    batch = float(rng.uniform(0.01, 0.06)) * level
    return RunFamily(
        steps=max(steps, 100 * every),
        every=every,
        level=level,
        first=level + float(rng.uniform(0.3, 1.2)) * min(level, 6.0),
        schedule=str(rng.choice(["cosine", "linear", "wsd", "constant"])),
        digits=int(rng.choice([3, 4, 5, 7])),
        batch_sd=batch,
        pair_sd=batch * float(rng.uniform(0.02, 0.15)),
        run_sd=float(rng.uniform(0.0002, 0.0006)),
        seeds=int(rng.choice([1, 1, 1, 2, 3])),
        spikes=int(rng.choice([0, 0, 0, 2])),
        begins=float(rng.choice([0.0, 0.0, 0.0, 0.02])),
        lost=float(rng.choice([0.0, 0.0, 0.001])),
        records_rate=bool(rng.random() < 0.5),
    )


def rates(at: np.ndarray, kind: str) -> np.ndarray:
    """Learning rates at shares (n,) of the run."""
    warm = np.minimum(at / 0.02, 1.0)
    decay = {
        "cosine": 0.5 + 0.5 * np.cos(np.pi * at),
        "linear": 1.0 - at,
        "wsd": np.where(at < 0.8, 1.0, (1.0 - at) / 0.2),
        "constant": np.where(at < 0.9, 1.0, np.maximum(0.1, 1.0 - 9.0 * (at - 0.9))),
    }[kind]
    return 3e-4 * warm * np.maximum(decay, 1e-3)


def arm(
    rng: np.random.Generator,
    how: RunFamily,
    batches: list[np.ndarray],
    spikes: np.ndarray,
    gap: float = 0.0,
) -> list[Curve]:
    """The runs of one arm, one a seed."""
    at = np.arange(0, how.steps, how.every)
    share = (at + 1.0) / how.steps
    rate = rates(share, how.schedule)
    drop = 0.03 * how.level * (1.0 - rate / rate.max())
    law = how.level + (how.first - how.level) * (1.0 + share * 300.0) ** -0.6 - drop + drop[-1]
    runs = []
    for seed, batch in enumerate(batches):
        pair_noise = rng.normal(0.0, how.pair_sd / 2**0.5, len(at))
        loss = (
            law
            + batch
            + pair_noise
            + how.level * how.run_sd * rng.normal() * np.minimum(share / 0.1, 1.0)
            + gap * (at > 0)
        )
        loss = loss + spikes * how.batch_sd * rng.uniform(5.0, 12.0)
        keep = (share >= how.begins) & (rng.random(len(at)) >= how.lost)
        columns = {"learning_rate": rate[keep]} if how.records_rate else {}
        runs.append(
            curve_from_arrays(
                at[keep],
                loss[keep].round(how.digits),
                seed=seed if how.seeds > 1 else None,
                rounding="nearest",
                columns=columns,
            )
        )
    return runs


def judged(
    rng: np.random.Generator, how: RunFamily, gap: float = 0.0
) -> tuple[Verdict, list[Curve], list[Curve]]:
    """The verdict on one set, and its runs."""
    points = len(range(0, how.steps, how.every))
    batches = [rng.normal(0.0, how.batch_sd, points) for _ in range(how.seeds)]
    spikes = np.zeros(points)
    spikes[rng.integers(points // 4, points - 30, how.spikes)] = 1.0
    base, cand = arm(rng, how, batches, spikes), arm(rng, how, batches, spikes, gap)
    return verdict_on(how, base, cand), base, cand


def verdict_on(how: RunFamily, base: list[Curve], cand: list[Curve]) -> Verdict:
    """The verdict at 1 %, with the plan and the end of the schedule stated."""
    return parity.judge(
        base, {"candidate": cand}, Policy(margin="1%", schedule="decayed"), planned_steps=how.steps
    )[0]


def honest(sets: int) -> list[MarkedFigure]:
    """How honest sets are answered."""
    states: Counter[str] = Counter()
    accused: Counter[str] = Counter()
    deciding: Counter[str] = Counter()
    sober = passed = 0
    for number in range(sets):
        rng = np.random.default_rng((number, 65))
        how = family(rng)
        verdict, _, _ = judged(rng, how)
        states[verdict.verdict] += 1
        accused.update({*verdict.codes} & ACCUSATIONS)
        if verdict.verdict != "pass":
            deciding[verdict.codes[0]] += 1
        if how.steps / how.every / 5 >= 12 and how.digits > 3:
            sober += 1
            passed += verdict.verdict == "pass"
    total = sum(accused.values())
    return [
        MarkedFigure(
            what=f"{sets} honest sets",
            value=f"{dict(states)}, undecided by {dict(deciding)}",
            mark="no fail",
            ok=not states["fail"],
        ),
        MarkedFigure(
            what="accused",
            value=f"{total}: {dict(accused)}",
            mark="at most 1 %",
            ok=total <= 0.01 * sets,
        ),
        MarkedFigure(
            what="where a sober reader passes",
            value=f"{passed} of {sober} pass",
            mark="at least 87 %",
            ok=passed >= 0.87 * sober,
        ),
    ]


def worsened(rng: np.random.Generator, run: Curve, margin: float) -> Curve:
    """The run, worse in some way."""
    loss, n = run.loss.copy(), len(run.loss)
    kind = int(rng.integers(0, 6))
    if kind == 0:
        loss += np.abs(rng.normal(0.0, rng.choice([0.001, 0.01, 0.1]), n))
    elif kind == 1:
        loss[rng.integers(0, n) :] += rng.uniform(0.0, 3.0) * margin
    elif kind == 2:
        loss[rng.integers(0, n, max(1, n // 50))] += rng.uniform(1.0, 20.0) * margin
    elif kind == 3:
        loss += np.linspace(0.0, rng.uniform(0.0, 3.0) * margin, n)
    elif kind == 4:
        loss[rng.integers(0, n, 5)] = np.nan
    else:
        loss[-max(1, n // 100) :] += rng.uniform(1.0, 5.0) * margin
    return curve_from_arrays(
        run.steps,
        loss,
        seed=run.seed if run.seed_stated else None,
        rounding="nearest",
        columns=run.columns,
    )


def law_of_worsening(cases: int) -> list[MarkedFigure]:
    """Whether a candidate that is made worse gets a pass that it had not."""
    gained: list[str] = []
    for number in range(cases):
        rng = np.random.default_rng((number, 66))
        how = family(rng)
        if how.steps > 20_000:
            continue
        before, base, cand = judged(rng, how, gap=float(rng.uniform(0.0, 0.015)) * how.level)
        after = verdict_on(how, base, [worsened(rng, run, 0.01 * how.level) for run in cand])
        if after.verdict == "pass" and before.verdict != "pass":
            gained.append(f"{number}: {before.codes[0]}")
    return [
        MarkedFigure(
            what=f"{cases} candidates made worse",
            value=f"passes gained: {gained or 'none'}",
            mark="none",
            ok=not gained,
        )
    ]


def main(arguments: list[str]) -> int:
    """Print both tables; 1 where a mark is missed."""
    parser = argparse.ArgumentParser(
        description="What rules about files and records cost honest runs."
    )
    parser.add_argument("--sets", type=int, default=420)
    parser.add_argument("--worse", type=int, default=2000)
    options = parser.parse_args(arguments)
    lines = [*honest(options.sets), *law_of_worsening(options.worse)]
    for line in lines:
        print(f"{'ok  ' if line.ok else 'MISS'}  {line.what}: {line.value} (mark: {line.mark})")
    return int(not all(line.ok for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
