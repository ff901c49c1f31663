"""The table parity/judging/noise/emulated.csv, made from our own reruns.

experiments/demo_floor.jsonl: runs of examples/demo.yaml by recipe, seed and replicate. The family
DEMO has one group for each way of rounding, with the variance of one run that has a seed and a
replicate of its own:

    g_s = nvfp4 - (fp8_current + mxfp8)/2          gaps of seed s, of means over its K_s replicates
      each
          (fp8_current - mxfp8)/sqrt 2             both round to nearest, so that g_s has the
            variance of one run
    S = var_s g_s                                  over n seeds: what a seed does to a gap, and what
      the means leave of the replicates
    V = sum_s sum_k (x_sk - x_s)^2 / R             of the arms that round so, on R = sum_s (K_s - 1)
      degrees of freedom
    variance = S + c V                             c = mean_s (1 - 1/K_s): what averaging over
      replicates had taken away
    df = variance^2 / (S^2/(n - 1) + (c V)^2/R)    Satterthwaite (1946), rounded down

The gaps of nvfp4 contain the others' noise, too: too large rather than too small. Each group is one
of the family SMALL as well. experiments/run_floor.jsonl: runs of other sizes and lengths; each
set-up whose rate decayed is a group of SMALL, replicates of one seed. Late means are over the
judge's window, the last fifth of the steps. Can fail: a gap that depends on the seed is in DEMO's
rows only.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy import stats

from parity.frozen import frozen
from parity.judging.noise.emulated_table import DEMO, SMALL
from parity.judging.noise.emulated_table import TABLE as EMULATED
from parity.judging.noise.noise_table import COLUMNS
from parity.judging.policy import WINDOW_FRACTION
from parity.recipes import rounds_to_nearest
from tools.tables.generated import ROOT, GeneratedTable

EXPERIMENTS = ROOT / "experiments"
CONSTANT = "constant"  # in the name of a set-up of run_floor.jsonl whose rate never decayed
_REPLICATES = "replicate: the rounding's random numbers, and a nudge of the initial weights"
_SEEDS = "seed: initial weights and batches, the same in both arms of a pair; and replicate"
_DEMO_RECORD, _OTHERS_RECORD = "experiments/demo_floor.jsonl", "experiments/run_floor.jsonl"
_ABOUT = {"unit": "nats", "start": "scratch", "schedule": "finished", "licence": "Apache-2.0"}
Late = dict[str, dict[int, list[float]]]  # late means by recipe and seed


@frozen
class Spread:
    """Variance of one run (nats^2), its parts `seeds` (S) and `replicates` (V), the chance of such
    an S if seeds did nothing (F test).
    """

    variance: float
    df: int
    seeds: float
    replicates: float
    seeds_chance: float


def emulated_csv(demo: str, others: str) -> str:
    """The table in its documented shape, from the texts of both records."""
    rows = [*_demo_rows(demo)]
    small_rows = ({**row, "family": SMALL, "group": f"0.3M x 1000: {row['group']}"} for row in rows)
    return _csv([*rows, *small_rows, *_other_size_rows(others)])


def spreads(late: Late) -> dict[str, Spread]:
    """What the runs of the demo show, by a recipe that rounds so: fp8_current to the nearest
    number, nvfp4 stochastically.
    """
    first, second, third = (late.get(recipe, {}) for recipe in ("fp8_current", "mxfp8", "nvfp4"))
    paired = sorted(set(first) & set(second))
    common = sorted(set(third) & set(paired))
    near = [(np.mean(first[seed]) - np.mean(second[seed])) / math.sqrt(2.0) for seed in paired]
    far = [
        np.mean(third[seed]) - (np.mean(first[seed]) + np.mean(second[seed])) / 2.0
        for seed in common
    ]
    found = {
        "fp8_current": _spread(near, [arm[seed] for seed in paired for arm in (first, second)]),
        "nvfp4": _spread(far, [third[seed] for seed in common]),
    }
    return {recipe: spread for recipe, spread in found.items() if spread is not None}


def _spread(gaps: Sequence[np.floating], runs: Sequence[Sequence[float]]) -> Spread | None:
    """None where no seed has two runs of an arm, or there is one seed only."""
    left = sum(len(means) - 1 for means in runs)
    if len(gaps) < 2 or not left:
        return None
    seeds, replicates = (
        float(np.var(gaps, ddof=1)),
        sum(float(np.var(means)) * len(means) for means in runs) / left,
    )
    averaged = float(np.mean([1.0 / len(means) for means in runs]))
    taken = (1.0 - averaged) * replicates
    df = (seeds + taken) ** 2 / (seeds**2 / (len(gaps) - 1) + taken**2 / left)
    chance = float(stats.f.sf(seeds / (averaged * replicates), len(gaps) - 1, left))
    return Spread(
        variance=seeds + taken,
        df=math.floor(df),
        seeds=seeds,
        replicates=replicates,
        seeds_chance=chance,
    )


def late_means(demo: str) -> Late:
    """Means over the judge's window by recipe and seed, from the text of the demo's record."""
    late: Late = {}
    for run in map(json.loads, demo.splitlines()):
        losses = run["losses"]
        mean = float(np.mean(losses[-round(WINDOW_FRACTION * len(losses)) :]))
        late.setdefault(run["recipe"], {}).setdefault(run["seed"], []).append(mean)
    return late


def _csv(rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _demo_rows(records: str) -> Iterator[Mapping[str, str]]:
    late = late_means(records)
    for recipe, spread in spreads(late).items():
        level = float(np.mean([np.mean(means) for means in late[recipe].values()]))
        alike = [
            alike_recipe
            for alike_recipe in late
            if rounds_to_nearest(alike_recipe) == rounds_to_nearest(recipe)
        ]
        runs = sum(len(means) for alike_recipe in alike for means in late[alike_recipe].values())
        group = f"{runs} runs of {' and '.join(alike)}, counted by their degrees of freedom"
        yield _row(
            DEMO,
            group,
            recipe,
            spread.df + 1,
            level,
            math.sqrt(spread.variance),
            _SEEDS,
            _DEMO_RECORD,
        )


def _other_size_rows(records: str) -> Iterator[Mapping[str, str]]:
    cells: dict[tuple[str, str], list[float]] = {}
    for run in map(json.loads, records.splitlines()):
        parts = run["part_means"]
        if CONSTANT not in run["cell"]:
            cells.setdefault((run["cell"], run["recipe"]), []).append(
                float(np.mean(parts[-round(WINDOW_FRACTION * len(parts)) :]))
            )
    for (cell, recipe), means in sorted(cells.items()):
        level, sd = float(np.mean(means)), float(np.std(means, ddof=1))
        yield _row(
            SMALL, f"{cell}, {recipe}", recipe, len(means), level, sd, _REPLICATES, _OTHERS_RECORD
        )


def _row(
    family: str,
    group: str,
    recipe: str,
    runs: int,
    level: float,
    sd: float,
    varies: str,
    source: str,
) -> Mapping[str, str]:
    numbers = {"runs": str(runs), "mean_loss": f"{level:.6f}", "sd": f"{sd:.7f}"}
    return {
        "family": family,
        "group": group,
        **numbers,
        **_ABOUT,
        "rounding": _rounding(recipe),
        "varies": varies,
        "source": source,
    }


def _rounding(recipe: str) -> str:
    return "nearest" if rounds_to_nearest(recipe) else "stochastic"


def shipped_csv() -> str:
    """The table, from the records in the tree."""
    texts = (
        (EXPERIMENTS / name).read_text(encoding="utf-8")
        for name in ("demo_floor.jsonl", "run_floor.jsonl")
    )
    return emulated_csv(*texts)


TABLE = GeneratedTable(name="emulated_noise", files={EMULATED: shipped_csv})
