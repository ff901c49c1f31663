"""F11: do the reruns of examples/public move what is assumed of a run that nobody repeated?

The clean groups are runs of one system of GPT-3 175B (batch, round and system the same) and of
FLUX.1, as in examples/public. They are added to the public families in two places, and each family
is left out in turn: the level between finished families (`any-decoder`), as if they were finished,
and the least assumed noise of an unfinished run, which in the judge also grows with the slope of
the loss (not here). One run an arm, both rounding to nearest, no error within the pair.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.calibration.borrowed_noise import covered, pair
from benchmarks.marks import MarkedFigure, share
from parity.judging.gap.interval import t_quantile
from parity.judging.noise.any_decoder import evidence_families
from parity.judging.noise.noise_source import find_noise_source
from parity.judging.noise.noise_table import ANY_DECODER, NoiseTable
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import UNFINISHED_NOISE

SETS = Path(__file__).parents[2] / "examples" / "public"
CLEAN: Mapping[str, tuple[str, ...]] = {
    "gpt3-175b": ("arm", "batch", "round", "system"),
    "flux1-mxfp8": ("arm", "system"),
}
SPIKES = ("9xBM.GPU.B200.8",)  # a run of this system spikes at its end
# how these families' names begin
UNFINISHED = ("Llama3.1-8B-C4-1.4BT-FP8-", "Llama3.1-405B-C4-ckpt-retok-2.3BT-FP8")
PRIOR_DF = 4.0
Group = tuple[int, float]  # runs, standard deviation as a share of the loss
Cases = Mapping[str, Sequence[Group]]


def clean_groups(name: str) -> list[Group]:
    """The groups of a set: runs that share all columns but run and seed, at the last evaluation
    that all of them reached.
    """
    losses: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    with (SETS / name / "runs.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["system"] in SPIKES:
                continue
            losses[tuple(row[column] for column in CLEAN[name])][row["run"]][
                int(row["samples"])
            ] = float(row["loss"])
    groups = []
    for runs in losses.values():
        last = max(set.intersection(*(set(points) for points in runs.values())))
        values = np.array([points[last] for points in runs.values()])
        groups.append((len(values), float(values.std(ddof=1) / values.mean())))
    return groups


def pooled(groups: Sequence[Group]) -> float:
    """The pooled standard deviation of groups, a share of the loss."""
    return math.sqrt(
        sum((runs - 1) * sd**2 for runs, sd in groups) / sum(runs - 1 for runs, _ in groups)
    )


def left_out(*, with_clean: bool) -> Iterator[tuple[str, float, float]]:
    """Each finished family with the coverage and the half-width that the others give it; the clean
    sets count as if they were finished.
    """
    rows = list(public_noise_table().rows)
    if with_clean:
        pattern = dict(
            next(row for row in rows if row["family"].startswith("modded-nanogpt-medium"))
        )
        for name in CLEAN:
            rows += [
                pattern
                | {
                    "family": name,
                    "group": str(place),
                    "runs": str(runs),
                    "mean_loss": "1.0",
                    "sd": f"{sd:.9f}",
                }
                for place, (runs, sd) in enumerate(clean_groups(name))
            ]
    single = np.ones(1)
    for family in evidence_families(NoiseTable(tuple(rows))):
        noise_source = find_noise_source(
            NoiseTable(tuple(row for row in rows if row["family"] != family.name)),
            ANY_DECODER,
            "nearest",
        )
        half = pair(noise_source, (single, single))[0].half_width(0.95)
        runs = sum(group.runs for group in family.groups)
        yield (
            family.name,
            sum(group.runs * covered(math.sqrt(2.0) * group.share, half) for group in family.groups)
            / runs,
            half,
        )


def unfinished(*, with_clean: bool) -> Cases:
    """The groups of unfinished runs that round to nearest, by family."""
    found: dict[str, Sequence[Group]] = {
        name: [(group.runs, group.share) for group in family.groups]
        for name, family in public_noise_table().families.items()
        if name.startswith(UNFINISHED)
    }
    return {**found, **({name: clean_groups(name) for name in CLEAN} if with_clean else {})}


def coverage(groups: Sequence[Group], noise: float) -> float:
    """The mean over runs of the chance that one run against one is covered with this assumed
    noise.
    """
    half = t_quantile(0.95, PRIOR_DF) * math.sqrt(2.0) * noise
    return sum(runs * covered(math.sqrt(2.0) * sd, half) for runs, sd in groups) / sum(
        runs for runs, _ in groups
    )


def needed(cases: Cases) -> float:
    """The least assumed noise, in steps of 0.005 % of the loss, that covers 95 % on average over
    families.
    """
    noise = 0.0
    while (
        float(np.mean([coverage(groups, noise := noise + 0.00005) for groups in cases.values()]))
        < 0.95
    ):
        pass
    return noise


def f11(_quick: bool) -> Iterator[MarkedFigure]:
    """Both levels without and with the clean groups, each family left out in turn."""
    for name in CLEAN:
        groups = clean_groups(name)
        value = (
            f"{len(groups)} groups, {sum(runs for runs, _ in groups)} runs, pooled "
            f"{100 * pooled(groups):.3f} % of the loss"
        )
        yield MarkedFigure(what=f"clean groups, {name}", value=value, mark="reported", ok=True)
    for with_clean in (False, True):
        label = "with the clean groups" if with_clean else "without"
        found = list(left_out(with_clean=with_clean))
        others = [row for row in found if row[0] not in CLEAN]
        hits, half = (float(np.mean([row[place] for row in others])) for place in (1, 2))
        worst = min(others, key=lambda row: row[1])
        value = (
            f"coverage {share(hits)}, half-width {100 * half:.3f} %, worst {worst[0]} "
            f"{share(worst[1])}"
        )
        yield MarkedFigure(
            what=f"any-decoder {label}",
            value=value,
            mark="reported" if with_clean else ">= 93 %",
            ok=with_clean or hits >= 0.93,
        )
        cases = unfinished(with_clean=with_clean)
        noise_table, hit = [], []
        for name, groups in cases.items():
            noise_table.append(
                needed({other: case for other, case in cases.items() if other != name})
            )
            if name not in CLEAN:
                hit.append(coverage(groups, noise_table[-1]))
        today = float(
            np.mean(
                [
                    coverage(groups, UNFINISHED_NOISE)
                    for name, groups in cases.items()
                    if name not in CLEAN
                ]
            )
        )
        ends = f"{100 * min(noise_table):.3f} to {100 * max(noise_table):.3f} %"
        value = (
            f"would need {ends}, covers {share(float(np.mean(hit)))}; today's covers {share(today)}"
        )
        yield MarkedFigure(what=f"unfinished noise {label}", value=value, mark="reported", ok=True)


CHECKS: dict[str, Callable[[bool], Iterator[MarkedFigure]]] = {"F11": f11}
