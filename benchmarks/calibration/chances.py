"""Do the chances that a verdict states of one more pair of runs come true? Simulated jobs are
judged, get one, and are judged again.

A run is a power law with batch noise that the pairs share, its own noise, and an offset N(0, tau)
whose tau is `factor` times what the judge assumes. True gaps are spread evenly over the margin and
4 standard errors on both sides of it. The stated chances are averaged in bins, and compared with
how often the interval lay there after the next pair of another seed; next to it is how often that
was the verdict, which other rules can change. Mark: within 7 percentage points in bins of 150 jobs
and more, where tau is what the judge assumes.

    python -m benchmarks.calibration.chances [--jobs 1500] [--factors 1.0]

Prints one line a setting and verdict: the bins with the mean chance, the share that came true, and
the jobs.
"""

import argparse
import dataclasses
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import ChancesDocument, VerdictDocument
from parity.judging.gap.chances import chances_of
from parity.judging.policy import FINISHED_NOISE, policy_from_mapping
from parity.judging.verdict.verdict import judge

STEPS = np.arange(1, 121)
LAW = 2.5 + 8.0 * STEPS**-0.5
LATE = float(LAW[-24:].mean())
MARGIN = 0.01 * LATE
BATCH_SD, OWN_SD = 0.05, 0.004
BINS = (0.0, 0.1, 0.35, 0.65, 0.9, 1.0)
LEAST_JOBS, MARK = 150, 0.07
POLICY = policy_from_mapping({"margin": "1%", "schedule": "decayed"})


def run_of(rng: np.random.Generator, seed: int, batch: np.ndarray, tau: float, gap: float) -> Curve:
    """One run of a seed whose batches are given."""
    loss = LAW + batch + rng.normal(0.0, OWN_SD, len(LAW)) + rng.normal(0.0, tau) + gap
    return curve_from_arrays(STEPS, loss, seed=seed, rounding="nearest", label=f"seed {seed}")


def document_of(baseline: Sequence[Curve], candidate: Sequence[Curve]) -> VerdictDocument:
    """The verdict on some pairs of runs."""
    return judge(baseline, {"candidate": candidate}, POLICY, planned_steps=len(STEPS))[0].document()


def lies(document: VerdictDocument) -> str:
    """Where the interval lies: below the margin (pass), above it (fail), or on both sides."""
    gap = document["gap"]
    if gap is None or gap["lo"] <= MARGIN <= gap["hi"]:
        return "undecided"
    return "pass" if gap["hi"] < MARGIN else "fail"


@dataclasses.dataclass(frozen=True)
class Sample:
    """The chances that a job states, where the interval lay after the next pair, and the verdict
    then.
    """

    chances: ChancesDocument
    interval: str
    verdict: str


def simulated(jobs: int, pairs: int, factor: float) -> list[Sample]:
    """The chances of each simulated job after `pairs` pairs of runs, with its interval and its
    verdict after one more.
    """
    rng = np.random.default_rng((pairs, round(100 * factor)))
    tau = factor * FINISHED_NOISE * LATE
    spread = tau * np.sqrt(2.0 / pairs)
    samples = []
    for _ in range(jobs):
        gap = MARGIN + rng.uniform(-4.0, 4.0) * spread
        arms: tuple[list[Curve], list[Curve]] = ([], [])
        for seed in range(pairs + 1):
            batch = rng.normal(0.0, BATCH_SD, len(STEPS))
            for arm, arm_gap in zip(arms, (0.0, gap), strict=True):
                arm.append(run_of(rng, seed, batch, tau, arm_gap))
        chances = chances_of(document_of(arms[0][:pairs], arms[1][:pairs]))
        if chances is not None:
            then = document_of(*arms)
            verdict = "undecided" if then["verdict"] == "inconclusive" else then["verdict"]
            samples.append(Sample(chances=chances, interval=lies(then), verdict=verdict))
    return samples


@dataclasses.dataclass(frozen=True)
class Bin:
    """Jobs whose stated chance is about the same: its mean, the shares of intervals and of verdicts
    that came true, and how many.
    """

    stated: float
    came_true: float
    verdicts: float
    jobs: int


def bins(samples: Sequence[Sample], outcome: str) -> list[Bin]:
    """The chances of one outcome against what happened, in bins of the stated chance."""
    stated = np.array([sample.chances[outcome] for sample in samples])  # type: ignore[literal-required]
    intervals, verdicts = (
        np.array([getattr(sample, which) == outcome for sample in samples])
        for which in ("interval", "verdict")
    )
    at = np.clip(np.searchsorted(BINS, stated, side="right") - 1, 0, len(BINS) - 2)
    inside = [at == place for place in range(len(BINS) - 1) if (at == place).any()]
    return [
        Bin(
            stated=float(stated[in_bin].mean()),
            came_true=float(intervals[in_bin].mean()),
            verdicts=float(verdicts[in_bin].mean()),
            jobs=int(in_bin.sum()),
        )
        for in_bin in inside
    ]


def _words(row: Bin) -> str:
    return (
        f"{100 * row.stated:.0f} % -> {100 * row.came_true:.0f} % ({100 * row.verdicts:.0f} %) of "
        f"{row.jobs}"
    )


def main() -> None:
    """Simulate, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1500, help="jobs of each setting")
    parser.add_argument(
        "--factors",
        type=float,
        nargs="+",
        default=[1.0, 0.6, 1.5],
        help="run-to-run noise over what the judge assumes",
    )
    options = parser.parse_args()
    for factor in options.factors:
        for pairs in (1, 2, 4):
            samples = simulated(options.jobs, pairs, factor)
            for verdict in ("pass", "fail", "undecided"):
                rows = bins(samples, verdict)
                off = max(
                    (abs(row.stated - row.came_true) for row in rows if row.jobs >= LEAST_JOBS),
                    default=0.0,
                )
                marked = "" if factor != 1.0 else f", {'holds' if off <= MARK else 'DOES NOT HOLD'}"
                print(
                    f"tau x {factor}, {pairs} pairs, {verdict}: off by {100 * off:.1f} points at "
                    f"most{marked}"
                )
                print("  " + "; ".join(_words(row) for row in rows))


if __name__ == "__main__":
    main()
