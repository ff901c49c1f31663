"""E2: held-out losses of public runs of one recipe, split at random into two arms of
1 to 5 runs and 1 to 12 evaluations.

The true gap of such arms is 0: their interval should cover 0 in 95 %, and lie wholly below 0 (a
pass at a true gap of one margin) or above it (a fail there) in at most 2.5 % each. Needs the tables
of public runs (`marks.PUBLIC_RUNS`) and is left out without them.
"""

import csv
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.marks import PUBLIC_RUNS, MarkedFigure, share
from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray, IntArray
from parity.judging.curves.schedule import log_slope
from parity.judging.evaluations.gap import gap_interval
from parity.judging.gap.interval import Interval
from parity.judging.noise.arm_noise import Prior, prior_for
from parity.judging.policy import Policy

RUNS, POINTS, DRAWS = (1, 2, 3, 5), (1, 3, 7, 12), 400


@frozen
class RunGroup:
    """The runs of one recipe: the table, its columns, the arm's name, which rows, and what an owner
    states of the schedule.
    """

    name: str
    table: str
    arm: tuple[str, str]
    recipe: str
    runs: tuple[str, ...] = ("run",)
    step: str = "step"
    loss: str = "loss"
    where: tuple[str, str] | None = None
    loaded: bool = False
    finished: bool = False


_8B = "llama31_8b_fp8_nvfp4/curves.csv"
_LORA, _FLUX, _GPT3 = (
    f"public_pairs/{name}.csv" for name in ("llama2_70b_lora", "flux1_mxfp8", "gpt3_175b")
)
_MI355X, _NANOGPT = (
    f"public_pairs/{name}.csv" for name in ("llama31_8b_mi355x", "nanogpt_fp8_down_projection")
)
_8B_COLUMNS = {"runs": ("system", "run"), "step": "samples", "loss": "eval_loss_nats"}
_GPT3_COLUMNS = {
    "runs": ("round", "system", "run"),
    "step": "samples",
    "where": ("batch", "2048"),
    "loaded": True,
}
GROUPS = (
    RunGroup(
        name="8B, batch 16, FP8", table=_8B, arm=("precision", "FP8"), recipe="fp8", **_8B_COLUMNS
    ),
    RunGroup(
        name="8B, batch 16, NVFP4",
        table=_8B,
        arm=("precision", "NVFP4"),
        recipe="nvfp4",
        **_8B_COLUMNS,
    ),
    RunGroup(
        name="8B, batch 32, FP8", table=_MI355X, arm=("arm", "FP8"), recipe="fp8", step="evaluation"
    ),
    RunGroup(
        name="8B, batch 32, MXFP4",
        table=_MI355X,
        arm=("arm", "MXFP4"),
        recipe="mxfp4",
        step="evaluation",
    ),
    RunGroup(
        name="70B LoRA, FP8",
        table=_LORA,
        arm=("arm", "FP8"),
        recipe="fp8",
        runs=("system", "run"),
        loaded=True,
    ),
    RunGroup(
        name="70B LoRA, NVFP4",
        table=_LORA,
        arm=("arm", "NVFP4"),
        recipe="nvfp4",
        runs=("system", "run"),
        loaded=True,
    ),
    RunGroup(
        name="flux, BF16",
        table=_FLUX,
        arm=("arm", "BF16"),
        recipe="bf16",
        runs=("system", "run"),
        step="samples",
    ),
    RunGroup(
        name="flux, MXFP8",
        table=_FLUX,
        arm=("arm", "MXFP8"),
        recipe="mxfp8",
        runs=("system", "run"),
        step="samples",
    ),
    RunGroup(name="175B, FP8", table=_GPT3, arm=("arm", "FP8"), recipe="fp8", **_GPT3_COLUMNS),
    RunGroup(
        name="175B, INT8", table=_GPT3, arm=("arm", "INT8"), recipe="other:int8", **_GPT3_COLUMNS
    ),
    RunGroup(
        name="nanogpt, BF16", table=_NANOGPT, arm=("arm", "bf16_down"), recipe="bf16", finished=True
    ),
    RunGroup(
        name="nanogpt, FP8", table=_NANOGPT, arm=("arm", "fp8_down"), recipe="fp8", finished=True
    ),
)


def losses_of(group: RunGroup) -> tuple[IntArray, FloatArray]:
    """The common steps (n,) of a group's runs and their losses (K, n); runs that stop in their
    first half are left out.
    """
    by_run: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    with (PUBLIC_RUNS / group.table).open(newline="") as file:
        for row in csv.DictReader(file):
            if row[group.arm[0]] == group.arm[1] and (
                group.where is None or row[group.where[0]] == group.where[1]
            ):
                by_run[tuple(row[column] for column in group.runs)][int(row[group.step])] = float(
                    row[group.loss]
                )
    longest = max(max(run) for run in by_run.values())
    runs = [run for run in by_run.values() if 2 * max(run) >= longest]
    steps = sorted(set.intersection(*(set(run) for run in runs)))
    return np.array(steps), np.array([[run[step] for step in steps] for run in runs])


def gaps(
    group: RunGroup,
    steps: IntArray,
    losses: FloatArray,
    runs: int,
    points: int,
    rng: np.random.Generator,
) -> Iterator[Interval]:
    """Intervals of random pairs of arms, with this number of runs and their last evaluations."""
    slope = None if group.finished else log_slope(steps, losses.mean(axis=0), loaded=group.loaded)
    level = float(losses[:, -points:].mean())
    prior: Prior = prior_for(group.recipe, None, Policy(margin="1%"), level, slope=slope)
    seeds = np.zeros(runs, np.int64)
    for _ in range(DRAWS):
        order = rng.permutation(len(losses))[: 2 * runs]
        drawn = losses[order][:, -points:]
        yield gap_interval((drawn[:runs], drawn[runs:]), (prior, prior), (seeds, seeds), 0.0)


def e2(quick: bool) -> Iterator[MarkedFigure]:
    """Coverage, and wrong decisions at a true gap of one margin, by group; then over all groups."""
    everywhere: list[float] = []
    for group in GROUPS if PUBLIC_RUNS.is_dir() else ():
        steps, losses = losses_of(group)
        rng = np.random.default_rng(0)
        cells: list[tuple[float, float, float, float]] = []
        for runs, points in itertools.product(RUNS[: 2 if quick else None], POINTS):
            if 2 * runs <= len(losses) and points <= len(steps):
                made = list(gaps(group, steps, losses, runs, points, rng))
                ends = np.array([gap.bounds(0.95) for gap in made]) / float(
                    losses[:, -points:].mean()
                )
                cells.append(
                    (
                        float(np.mean((ends[:, 0] <= 0.0) & (ends[:, 1] >= 0.0))),
                        float(np.mean(ends[:, 1] < 0.0)),
                        float(np.mean(ends[:, 0] > 0.0)),
                        float(np.median(ends[:, 1] - ends[:, 0]) / 2.0),
                    )
                )
        covered, passed, failed, half = zip(*cells, strict=True)
        everywhere += covered
        yield MarkedFigure(
            what=f"{group.name}: {len(losses)} runs, {len(steps)} evaluations",
            value=f"covers {share(float(np.mean(covered)))}, worst {share(min(covered))}, h "
            f"{_span(half)} %; at the margin pass {share(max(passed))}, fail {share(max(failed))}",
            mark="worst >= 84 %, wrong <= 9 % (+- 2 %)",
            ok=min(covered) >= 0.82 and max(*passed, *failed) <= 0.11,
        )
    if everywhere:
        mean = float(np.mean(everywhere))
        yield MarkedFigure(
            what="all groups", value=f"covers {share(mean)}", mark="96 to 99 %", ok=mean >= 0.96
        )


def _span(values: Sequence[float]) -> str:
    return f"{100 * min(values):.2f} to {100 * max(values):.2f}"


def e3(_quick: bool) -> Iterator[MarkedFigure]:
    """Half-width of a finished pair that rounds to nearest, by the number of evaluations: no cliff
    at 12, 99 or 101.
    """
    prior = prior_for("bf16", None, Policy(margin="1%"), 1.0)
    seeds = np.zeros(1, np.int64)
    before = 0.38
    for points in (1, 7, 11, 12, 20, 99, 101, 199, 201):
        noise = np.random.default_rng(0).normal(0.0, 0.0005 / np.sqrt(2.0), (200, 2, points))
        made = [
            gap_interval(
                (1.0 + one[:1], 1.0 + one[1:]), (prior, prior), (seeds, seeds), 0.0
            ).half_width(0.95)
            for one in noise
        ]
        half = 100 * float(np.median(made))
        yield MarkedFigure(
            what=f"{points} evaluations",
            value=f"h {half:.3f} %",
            mark="within 10 % of the row before",
            ok=abs(half / before - 1.0) <= 0.1,
        )
        before = half


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {"E2": e2, "E3": e3}
