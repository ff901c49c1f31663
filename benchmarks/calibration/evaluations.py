"""Are the intervals of a comparison of evaluations right? Real runs split in two, real groups of
reruns, and clusters with a known spread.

Run: python -m benchmarks.calibration.evaluations [--runs curves.csv] [--groups groups.csv]. Each
line prints its mark and whether it holds.
- runs: 2,000 random splits of one precision's runs into two arms: the interval covers 0 in 93 to 97
  %
- groups: arms drawn with the spread of each public group of reruns: coverage at least 93 %, and the
  false alarms at a margin
- clusters: each system has an effect; coverage of the interval over runs and of the interval over
  clusters
"""

import argparse
import csv
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray, curve_from_arrays
from parity.judging.evaluations.clusters import clustered_gap
from parity.judging.evaluations.gap import gap_interval
from parity.judging.evaluations.group_means import difference
from parity.judging.evaluations.measured import MeasuredEvaluations, measure
from parity.judging.gap.interval import Interval
from parity.judging.noise.arm_noise import Prior, prior_for
from parity.judging.policy import Policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "public" / "llama31-8b" / "curves.csv"
SPLITS, DRAWS = 2_000, 4_000
LOW, HIGH = 0.93, 0.97


def read_runs(path: Path) -> dict[str, list[Curve]]:
    """Runs by precision; each run's system is in its context."""
    points: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            points[row["precision"], row["system"], row["run"]].append(
                (int(row["samples"]), float(row["eval_loss_nats"]))
            )
    arms: dict[str, list[Curve]] = defaultdict(list)
    for (precision, system, run), pairs in points.items():
        steps, loss = zip(*pairs, strict=True)
        arms[precision].append(
            curve_from_arrays(steps, loss, label=f"{system}/{run}", context={"system": system})
        )
    return arms


def measured(baseline: Sequence[Curve], candidate: Sequence[Curve]) -> MeasuredEvaluations:
    """Two arms at the last fifth of their steps, nothing stated but the recipe."""
    arms = [
        [dataclasses.replace(run, recipe="fp8") for run in arm] for arm in (baseline, candidate)
    ]
    return measure(
        *arms,
        Policy(margin="1%"),
        confidence=0.95,
        planned_steps=None,
        paired=False,
        cluster=None,
        at=(),
    )


def runs_gap(x: FloatArray, y: FloatArray, prior: Prior) -> Interval:
    """The gap of the runs' losses (n_x,) and (n_y,)."""
    seeds = np.zeros(len(x), np.int64), np.zeros(len(y), np.int64)
    return gap_interval((x[:, None], y[:, None]), (prior, prior), seeds, 0.0)


def splits(name: str, runs: Sequence[Curve], rng: np.random.Generator) -> bool:
    """Share of random halves of identical runs whose interval covers 0, at the end and with the
    bands at all points.
    """
    half, covered, bands, sizes = len(runs) // 2, 0, 0, []
    for _ in range(SPLITS):
        order = rng.permutation(len(runs))
        arms = [runs[i] for i in order[:half]], [runs[i] for i in order[half : 2 * half]]
        measurements = measured(*arms)
        assert measurements.over_runs is not None
        assert measurements.bands is not None
        lo, hi = measurements.over_runs.bounds(0.95)
        covered += lo <= 0.0 <= hi
        bands += bool(((measurements.bands.lo <= 0.0) & (measurements.bands.hi >= 0.0)).all())
        sizes.append((hi - lo) / 2.0)
    share = covered / SPLITS
    ok = LOW <= share <= HIGH and bands / SPLITS >= LOW
    print(
        f"{name} against {name}, {half} and {half} runs, {SPLITS:,} splits: covers 0 in "
        f"{share:.1%} (mark 93 to 97 %), all points at once in {bands / SPLITS:.1%}, half-width "
        f"{np.mean(sizes):.4f} nats, {_mark(ok)}"
    )
    return ok


def small_splits(name: str, runs: Sequence[Curve], size: int, rng: np.random.Generator) -> None:
    """The same with few runs an arm: reported, and checked through the groups."""
    measurements = measured(runs, runs)
    covered = 0
    for _ in range(SPLITS):
        drawn = rng.permutation(measurements.baseline)[: 2 * size]
        lo, hi = runs_gap(drawn[:size], drawn[size:], measurements.priors[0]).bounds(0.95)
        covered += lo <= 0.0 <= hi
    print(f"{name} against {name}, {size} and {size} runs: covers 0 in {covered / SPLITS:.1%}")


def groups(path: Path, rng: np.random.Generator) -> bool:
    """Arms drawn with each group's spread, 2 to 8 runs an arm: coverage of 0, and passes at a gap
    of one margin (nominal 2.5 %).
    """
    with path.open() as file:
        spreads = [
            float(row["sd_nats"]) / float(row["mean_loss_nats"]) for row in csv.DictReader(file)
        ]
    reached, prior = True, prior_for("bf16", None, Policy(margin="1%"), 1.0)
    for runs in (2, 3, 5, 8):
        covered = passes = 0
        for draw in range(DRAWS):
            # the two arms of a comparison are two recipes, so their spreads are those of two groups
            x, y = (
                rng.normal(0.0, spreads[(draw * 7 + shift) % len(spreads)], runs)
                for shift in (0, 3)
            )
            lo, hi = runs_gap(1.0 + x, 1.0 + y, prior).bounds(0.95)
            covered += lo <= 0.0 <= hi
            passes += hi < 0.0  # a true gap of the margin shifts the interval and the margin alike
        ok = covered / DRAWS >= LOW and passes / DRAWS <= 0.035
        reached = reached and ok
        print(
            f"{len(spreads)} groups of reruns, {runs} runs an arm: covers 0 in "
            f"{covered / DRAWS:.1%} (mark at least 93 %), "
            f"passes at the margin {passes / DRAWS:.1%} (mark 3.5 %), {_mark(ok)}"
        )
    return reached


def clusters(rng: np.random.Generator) -> bool:
    """2 systems against 4, ten runs each, with a between-system spread of 0, 0.5, 1 and 2 times
    that of runs.
    """
    reached = True
    for between in (0.0, 0.5, 1.0, 2.0):
        inside = {"runs": 0, "clusters": 0}
        for _ in range(DRAWS):
            arms = [
                {f"{name}{j}": rng.normal(rng.normal(0.0, between), 1.0, 10) for j in range(size)}
                for name, size in (("a", 2), ("b", 4))
            ]
            over = clustered_gap(*arms)
            assert over is not None
            plain = difference(*(np.concatenate(list(arm.values())) for arm in arms))
            for name, estimate in (("runs", plain), ("clusters", over.estimate)):
                lo, hi = estimate.bounds(0.95)
                inside[name] += lo <= 0.0 <= hi
        share = {name: number / DRAWS for name, number in inside.items()}
        ok = share["clusters"] >= LOW
        reached = reached and ok
        print(
            f"2 against 4 systems of 10 runs, between systems {between:g} x between runs: "
            f"covers 0 over runs in {share['runs']:.1%}, over systems in {share['clusters']:.1%} "
            f"(mark at least 93 %), {_mark(ok)}"
        )
    return reached


def _mark(ok: bool) -> str:
    return "ok" if ok else "MISS"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=EXAMPLE)
    parser.add_argument("--groups", type=Path)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    results = []
    for precision, precision_runs in sorted(read_runs(options.runs).items()):
        results.append(splits(precision, precision_runs, generator))
        for few in (2, 3, 5):
            small_splits(precision, precision_runs, few, generator)
    if options.groups:
        results.append(groups(options.groups, generator))
    results.append(clusters(generator))
    sys.exit(0 if all(results) else 1)
