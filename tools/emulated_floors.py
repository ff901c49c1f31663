"""Write parity/judging/floors/emulated.csv from our own reruns: `python -m tools.emulated_floors`.

experiments/demo_floor.jsonl: runs of examples/demo.yaml by recipe, seed and replicate, in the family DEMO as two kinds of groups:

    replicates of one recipe and seed      sd of their late means, on K - 1 degrees of freedom
    one gap a seed, S seeds                sd^2 = sum_s w_s (g_s - g)^2/(S - 1), g = sum w_s g_s/sum w_s, on S - 1
        fp8_current against mxfp8          w_s = 1/(1/K_fp8 + 1/K_mxfp8): both round to nearest, so sd is that of one run
        nvfp4 against all of these         w_s = K_nvfp4: sd is that of one run and of the others' mean, too large rather than too small

g_s is a difference of means over the replicates of a seed, whose deviations the first kind has: no run counts twice. All of DEMO that
round alike, pooled, are one group of the family SMALL.
experiments/run_floor.jsonl: runs of other sizes and lengths; each set-up whose rate decayed is a group of SMALL.
Late means are over the judge's window, the last fifth of the steps. Can fail: a gap that depends on the seed widens the second kind.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.judging.criteria import WINDOW_FRACTION
from parity.judging.floors.emulated import DEMO, SMALL, TABLE
from parity.judging.floors.groups import COLUMNS, RerunGroup, read_floors
from parity.recipes import rounds_to_nearest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CONSTANT = "constant"  # in the name of a set-up of run_floor.jsonl whose rate never decayed
_REPLICATES = "replicate: the rounding's random numbers, and a nudge of the initial weights"
_SEEDS = "seed: initial weights and batches, the same in both arms of a pair"
_OF_THE_DEMO, _OF_OTHERS = "experiments/demo_floor.jsonl", "experiments/run_floor.jsonl"
_ABOUT = {"unit": "nats", "start": "scratch", "schedule": "finished", "licence": "Apache-2.0"}
Late = dict[str, dict[int, list[float]]]  # late means by recipe and seed


def emulated_csv(demo: str, others: str) -> str:
    """The table in its documented shape, from the texts of both records."""
    rows = [*_of_the_demo(demo)]
    return _csv([*rows, *_pooled(rows), *_of_other_sizes(others)])


def _csv(rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _of_the_demo(records: str) -> Iterator[Mapping[str, str]]:
    late: Late = {}
    for run in map(json.loads, records.splitlines()):
        losses = run["losses"]
        mean = float(np.mean(losses[-round(WINDOW_FRACTION * len(losses)) :]))
        late.setdefault(run["recipe"], {}).setdefault(run["seed"], []).append(mean)
    for recipe, seeds in sorted(late.items()):
        for seed, means in sorted(seeds.items()):
            if len(means) > 1:
                name = f"{recipe} seed {seed}"
                yield _row(DEMO, name, recipe, len(means), float(np.mean(means)), float(np.std(means, ddof=1)), _REPLICATES, _OF_THE_DEMO)
    first, second, third = (late.get(recipe, {}) for recipe in ("fp8_current", "mxfp8", "nvfp4"))
    if seeds_of_two := sorted(set(first) & set(second)):
        gaps = [np.mean(first[seed]) - np.mean(second[seed]) for seed in seeds_of_two]
        weights = [1.0 / (1.0 / len(first[seed]) + 1.0 / len(second[seed])) for seed in seeds_of_two]
        level = float(np.mean([np.mean(first[seed]) for seed in seeds_of_two]))
        yield from _over_seeds("fp8_current against mxfp8", "fp8_current", gaps, weights, level)
    if seeds_of_all := sorted(set(third) & set(seeds_of_two)):
        gaps = [np.mean(third[seed]) - np.mean(first[seed] + second[seed]) for seed in seeds_of_all]
        level = float(np.mean([np.mean(third[seed]) for seed in seeds_of_all]))
        yield from _over_seeds("nvfp4 against both", "nvfp4", gaps, [float(len(third[seed])) for seed in seeds_of_all], level)


def _over_seeds(pair: str, recipe: str, gaps: Sequence[np.floating], weights: Sequence[float], level: float) -> Iterator[Mapping[str, str]]:
    if len(gaps) > 1:
        mean = np.average(gaps, weights=weights)
        sd = math.sqrt(float(np.dot(weights, (np.array(gaps) - mean) ** 2)) / (len(gaps) - 1))
        yield _row(DEMO, f"{pair}, {len(gaps)} seeds", recipe, len(gaps), level, sd, _SEEDS, _OF_THE_DEMO)


def _pooled(rows: Sequence[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """The demo's set-up as one group of SMALL for each class of rounding."""
    family = read_floors(_csv(rows)).families[DEMO] if rows else None
    for recipe in ("fp8_current", "nvfp4"):
        own: list[RerunGroup] = [group for group in family.groups if group.rounding == _rounding(recipe)] if family else []
        df = sum(group.df for group in own)
        if df:
            level = sum(group.df * group.mean_loss for group in own) / df
            share = math.sqrt(sum(group.df * group.share**2 for group in own) / df)
            yield _row(SMALL, f"0.3M x 1000, {recipe}", recipe, df + 1, level, share * level, "replicate and seed", _OF_THE_DEMO)


def _of_other_sizes(records: str) -> Iterator[Mapping[str, str]]:
    cells: dict[tuple[str, str], list[float]] = {}
    for run in map(json.loads, records.splitlines()):
        parts = run["part_means"]
        if CONSTANT not in run["cell"]:
            cells.setdefault((run["cell"], run["recipe"]), []).append(float(np.mean(parts[-round(WINDOW_FRACTION * len(parts)) :])))
    for (cell, recipe), means in sorted(cells.items()):
        level, sd = float(np.mean(means)), float(np.std(means, ddof=1))
        yield _row(SMALL, f"{cell}, {recipe}", recipe, len(means), level, sd, _REPLICATES, _OF_OTHERS)


def _row(family: str, group: str, recipe: str, runs: int, level: float, sd: float, varies: str, source: str) -> Mapping[str, str]:
    numbers = {"runs": str(runs), "mean_loss": f"{level:.6f}", "sd": f"{sd:.7f}"}
    return {"family": family, "group": group, **numbers, **_ABOUT, "rounding": _rounding(recipe), "varies": varies, "source": source}


def _rounding(recipe: str) -> str:
    return "nearest" if rounds_to_nearest(recipe) else "stochastic"


if __name__ == "__main__":
    texts = ((EXPERIMENTS / name).read_text(encoding="utf-8") for name in ("demo_floor.jsonl", "run_floor.jsonl"))
    TABLE.write_text(emulated_csv(*texts), encoding="utf-8")
