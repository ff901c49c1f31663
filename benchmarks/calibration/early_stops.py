"""F10: run-to-run noise from reruns that were stopped early, on the runs of
experiments/run_floor.jsonl.

A pair is drawn from runs of one cell and recipe, without replacement: two runs, one per arm, whose
true gap is 0, and N others per arm that stop early. No within-pair error; losses as shares of the
loss. A full rerun costs 1, one that stops early its share of the steps.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.marks import MarkedFigure, share
from parity.judging.curves.curve import FloatArray
from parity.judging.curves.early_stop_noise import EarlySpread, helmert_squares, prefix_window
from parity.judging.curves.step_noise import StandardError
from parity.judging.curves.window import make_window
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import Prior, arm_noise, run_term

RECORD = Path(__file__).parents[2] / "experiments" / "run_floor.jsonl"
PARTS = 40  # the parts of a run whose mean losses are recorded
STOPS = (0.4, 0.5, 0.6)
PAIRS = 200
RERUNS = (1, 2, 3)
ASSUMED = {"fp8_current": 0.0008, "nvfp4": 0.0030}
NO_WITHIN = StandardError(value=0.0, df=12.0)


def recorded() -> dict[tuple[str, str], FloatArray]:
    """The means of 40 parts of each run (runs, 40) by cell and recipe, nats."""
    runs: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for line in RECORD.read_text().splitlines():
        record = json.loads(line)
        runs[record["cell"], record["recipe"]].append(record["part_means"])
    return {key: np.array(parts) for key, parts in runs.items()}


def prefix_means(parts: FloatArray, stop: float) -> FloatArray:
    """Means (runs,) of the judge's window before a stop at that share of the steps."""
    first, last = prefix_window(make_window(PARTS, 0, 0.2, "declared"), round(stop * PARTS) - 1)
    means: FloatArray = parts[:, first : last + 1].mean(axis=1)
    return means


def late_means(parts: FloatArray) -> FloatArray:
    """Means (runs,) of the last 20 %."""
    means: FloatArray = parts[:, -PARTS // 5 :].mean(axis=1)
    return means


def ratio(parts: FloatArray, stop: float) -> float:
    """Spread before the stop over that at the end, both as shares of the loss."""
    early, late = prefix_means(parts, stop), late_means(parts)
    return float((early / early.mean()).std(ddof=1) / (late / late.mean()).std(ddof=1))


def pair(late: FloatArray, early: FloatArray, prior: Prior, stop: float) -> Interval:
    """The judge's interval from late means (K_A + K_B,) of the full runs, baseline first, and early
    means (2, 1 + N), a full run first.
    """
    arms = np.split(late / late.mean(), 2)
    noises = []
    for arm, prefix in zip(arms, early, strict=True):
        x = prefix / prefix[0]
        reruns = len(x) - 1
        squares = helmert_squares(x[:1], [0], x[1:], [0] * reruns) if reruns else 0.0
        spread = (
            EarlySpread(squares=squares, runs=reruns, stop=stop, first=0, last=0)
            if reruns
            else None
        )
        noises.append(arm_noise(prior, arm, [0] * len(arm), None, spread))
    return interval(
        float(arms[1].mean() - arms[0].mean()), NO_WITHIN, run_term(noises[0], noises[1])
    )


def draws(parts: FloatArray, size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Endless draws of `size` different runs (size, 40) of a group."""
    while True:
        yield parts[rng.permutation(len(parts))[:size]]


def judged(
    cells: dict[tuple[str, str], FloatArray],
    runs: int,
    reruns: int,
    stop: float,
    prior_df: float = 4.0,
) -> tuple[float, float]:
    """Coverage and mean half-width of pairs with `runs` full runs per arm and `reruns` that stop
    early.
    """
    size = 2 * (runs + reruns)
    usable = {key: parts for key, parts in cells.items() if len(parts) >= size}
    rng = np.random.default_rng(9)
    sources = {key: draws(parts, size, rng) for key, parts in usable.items()}
    hits, widths = 0, []
    for number in range(PAIRS):
        key = list(usable)[number % len(usable)]
        chosen = next(sources[key])
        full = chosen[: 2 * runs]
        early = np.array(
            [
                prefix_means(np.vstack([full[side * runs], chosen[2 * runs + side :: 2]]), stop)
                for side in (0, 1)
            ]
        )
        joined = pair(
            late_means(full), early, Prior(tau=ASSUMED[key[1]], df=prior_df, basis="assumed"), stop
        )
        low, high = joined.bounds(0.95)
        hits += low <= 0.0 <= high
        widths.append(joined.half_width(0.95))
    return hits / PAIRS, float(np.mean(widths))


def f10(_quick: bool) -> Iterator[MarkedFigure]:
    """Early-stopped reruns: their ratio to the end, and coverage and width of pairs next to full
    replicates of equal cost.
    """
    cells = recorded()
    for stop in STOPS:
        logs = [(len(parts) - 1, math.log(ratio(parts, stop))) for parts in cells.values()]
        centre = sum(df * log for df, log in logs) / sum(df for df, _ in logs)
        spread = float(np.std([log for _, log in logs], ddof=1))
        yield MarkedFigure(
            what=f"ratio, stopped at {100 * stop:.0f} %, {len(logs)} groups",
            value=f"centre {math.exp(centre):.2f}, sd of log {spread:.2f} with that of sampling",
            mark="reported",
            ok=True,
        )
    most = max(map(len, cells.values()))
    for reruns in RERUNS:
        if 2 * (1 + reruns) > most:
            continue
        enough = {key: parts for key, parts in cells.items() if len(parts) >= 2 * (1 + reruns)}
        for full in range(1, 2 + min(reruns, 2)):
            coverage, width = judged(enough, full, 0, 1.0)
            yield MarkedFigure(
                what=f"{full} full runs per arm ({len(enough)} groups)",
                value=f"coverage {share(coverage)}, half-width {100 * width:.3f} %",
                mark="reported",
                ok=True,
            )
        for stop in STOPS:
            coverage, width = judged(enough, 1, reruns, stop)
            yield MarkedFigure(
                what=f"1 run and {reruns} stopped at {100 * stop:.0f} % per arm, cost "
                f"{1 + reruns * stop:.1f} runs",
                value=f"coverage {share(coverage)}, half-width {100 * width:.3f} %",
                mark="90 to 98 %",
                ok=0.90 <= coverage <= 0.98,
            )
            alone, wide = judged(enough, 1, reruns, stop, prior_df=1e-6)
            yield MarkedFigure(
                what="the same without a prior",
                value=f"coverage {share(alone)}, half-width {100 * wide:.3f} %",
                mark="reported",
                ok=True,
            )


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {"F10": f10}
