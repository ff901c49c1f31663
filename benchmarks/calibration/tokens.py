"""T1 and T2: how well a gap is converted into tokens, on a law of annealing and on public runs of
an 8B model.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.marks import PUBLIC_RUNS, MarkedFigure
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.gap.token_slope import NoSlope, TokenSlope
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

STEPS = 4000
FLOOR, SCALE, POWER, ANNEALING, MEMORY = 2.0, 4.0, 0.45, 0.4, 0.99
MEASURED_8B = 0.092  # more samples to the loss of 3.3 nats: NVFP4 against FP8, 60 runs


def cosine(steps: int) -> np.ndarray:
    """A cosine to a tenth, (steps,)."""
    return 0.55 + 0.45 * np.cos(np.pi * np.arange(steps) / steps)


def to_zero(steps: int) -> np.ndarray:
    """A constant rate and a linear decay to zero over the last fifth, (steps,)."""
    return np.minimum(1.0, (1.0 - np.arange(steps) / steps) / 0.2)


def constant(steps: int) -> np.ndarray:
    """A constant rate, (steps,)."""
    return np.ones(steps)


def law(rate: np.ndarray) -> np.ndarray:
    """Losses (n,) of a schedule of rates (n,): E + A S1^-p - C S2, S1 the sum of rates, S2 what the
    decay of the rate has gained.

    Form: Tissue, Wang and Wang 2024 (a scaling law with learning-rate annealing); the constants are
    ours.
    """
    gained, momentum, area = np.zeros(len(rate)), 0.0, 0.0
    for step in range(1, len(rate)):
        momentum = MEMORY * momentum + rate[step - 1] - rate[step]
        area += momentum
        gained[step] = area
    fast = np.cumsum(rate) + 50.0
    return FLOOR + SCALE * fast**-POWER - ANNEALING * gained * (1.0 - MEMORY) * fast**-POWER


def truth(schedule: Callable[[int], np.ndarray]) -> float:
    """The S of the law: its late loss at this length and a twentieth more, each with a schedule of
    its own.
    """
    late = [
        float(law(schedule(steps))[-steps // 5 :].mean()) for steps in (STEPS, STEPS * 21 // 20)
    ]
    return (late[0] - late[1]) / math.log(1.05)


def slope(schedule: Callable[[int], np.ndarray], share: float) -> TokenSlope | NoSlope:
    """What the judge says of a run without noise, next to a shorter one with this share of its
    steps.
    """
    runs = [
        curve_from_arrays(
            np.arange(1, n + 1), law(schedule(n)), columns={"learning_rate": schedule(n)}
        )
        for n in (STEPS, int(share * STEPS))
    ]
    policy = Policy(margin="5% tokens", schedule="decayed", baseline_run_noise="1e-6 nats")
    shorter = () if schedule is constant else runs[1:]
    verdict = judge(runs[:1], {"same": runs[:1]}, policy, planned_steps=STEPS, shorter=shorter)[0]
    return (
        verdict.measurements.statistics.token_slope
        if verdict.measurements.statistics
        else NoSlope(why="no window")
    )


def t1(_quick: bool) -> Iterator[MarkedFigure]:
    """The slope on a law of annealing, against that of runs a twentieth longer."""
    for schedule in (cosine, to_zero, constant):
        true = truth(schedule)
        for share in (0.25, 0.35, 0.5) if schedule is not constant else (0.5,):
            found = slope(schedule, share)
            error = found.nats / true - 1.0 if isinstance(found, TokenSlope) else math.nan
            name = (
                f"{schedule.__name__}, shorter run of {100 * share:.0f} %"
                if schedule is not constant
                else "constant rate, last half"
            )
            yield MarkedFigure(
                what=f"slope by {name}",
                value=f"{100 * error:+.1f} %",
                mark="-10 to 0 %",
                ok=-0.10 <= error <= 0.005,
            )


def t2(_quick: bool) -> Iterator[MarkedFigure]:
    """The token tax of 40 NVFP4 runs of an 8B model by the slope of the last half of 20 FP8 runs,
    against the samples that they took.
    """
    path = PUBLIC_RUNS / "llama31_8b_fp8_nvfp4" / "curves.csv"
    if not path.is_file():
        return
    losses: dict[tuple[str, int], list[float]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            losses[row["precision"], int(row["samples"])].append(float(row["eval_loss_nats"]))
    samples = sorted(
        {at for precision, at in losses if precision == "FP8" and len(losses[precision, at]) >= 20}
    )
    mean = np.array([np.mean(losses["FP8", at]) for at in samples])
    late = np.array(samples) > samples[-1] / 2
    nats = 0.5 * np.polyfit((np.array(samples)[late] / samples[-1]) ** -0.5, mean[late], 1)[0]
    tax = math.expm1((np.mean(losses["NVFP4", samples[-1]]) - mean[-1]) / nats)
    yield MarkedFigure(
        what=f"8B, token tax by the last half ({int(late.sum())} evaluations)",
        value=f"{100 * tax:.1f} %",
        mark=f"{100 * MEASURED_8B:.1f} % +-1",
        ok=abs(tax - MEASURED_8B) <= 0.01,
    )


CHECKS: Mapping[str, Callable[[bool], Iterator[MarkedFigure]]] = {"T1": t1, "T2": t2}
