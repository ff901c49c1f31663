"""What a step of each policy takes, relative to the baseline: modelled from FLOPs, or from measured step times.

modelled   T(p) = other + sum over GEMMs and parts of the run of FLOPs / throughput of the format there
measured   T(p) = T(baseline) - sum over the switches at 1 of the seconds that each gains

`other` is everything that is no GEMM of these layers. It is set so that the candidate's recipe everywhere is `end_to_end` times as fast as
FP8 everywhere. Defaults: GEMMs at 1 : 2 : 6 in bf16 : FP8 : FP4, the dense peaks of a GB300 (1 : 2 : 4 on a GB200), and 1.73, the highest
speed of NVFP4 over FP8 training that NVIDIA reports (Llama 3.1 405B on GB300; 1.31 to 1.44 for its other three measurements).

Can fail: the time of quantization itself is part of `other` and equal for all policies, so ingredients cost nothing here, and small GEMMs
do not reach peak ratios. Where step times of a few policies are known, use those.

Source: NVIDIA developer blog, "Train models faster with JAX and MaxText using NVFP4 on NVIDIA Blackwell"; peaks: arXiv 2509.25149.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.search.policies import Space, all_policies

THROUGHPUT: Mapping[str, float] = {"bf16": 1.0, "fp8": 2.0, "fp4": 6.0}
END_TO_END = 1.73
GEMMS = ("fprop", "dgrad", "wgrad")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is computed: weights of each quantized projection of a block (inputs times outputs), blocks, and steps of a run."""

    weights: Mapping[str, int]
    n_layers: int
    steps: int
    recipe: str
    throughput: Mapping[str, float] = field(default_factory=lambda: THROUGHPUT)
    end_to_end: float = END_TO_END


def modelled_times(space: Space, shape: Shape) -> NDArray[np.float64]:
    """The time (2^n,) of a step of each policy, as a share of that of FP8 everywhere. ValueError for an unknown recipe."""
    places = [(block, name, gemm) for block in range(shape.n_layers) for name in shape.weights for gemm in GEMMS]
    whole = sum(shape.weights[name] for _, name, _ in places)
    slow, fast = whole / _throughput(shape, "fp8_current"), whole / _throughput(shape, shape.recipe)
    if not 1.0 < shape.end_to_end <= slow / fast:
        raise ValueError(f"end_to_end is {shape.end_to_end:g}, expected more than 1 and at most {slow / fast:g}, the GEMMs' own ratio")
    other = (slow - shape.end_to_end * fast) / (shape.end_to_end - 1.0)
    alike: dict[tuple[bool, ...], tuple[tuple[int, str, str], int]] = {}  # places that the same switches reach, and their weights
    for place in places:
        reached = tuple(_reaches(switch.override, place, shape.n_layers) for switch in space.switches)
        first, weight = alike.get(reached, (place, 0))
        alike[reached] = first, weight + shape.weights[place[1]]
    gemms = (
        sum(weight * _time(shape, place, overrides) for place, weight in alike.values())
        for overrides in map(space.overrides, all_policies(space.size))
    )
    return (np.fromiter(gemms, np.float64) + other) / (slow + other)


def measured_times(space: Space, baseline_seconds: float, gains: Mapping[str, float]) -> NDArray[np.float64]:
    """The time (2^n,) of a step of each policy as a share of the baseline's, where each switch at 1 gains these seconds a step."""
    names = [switch.name for switch in space.switches]
    if set(gains) != set(names):
        raise ValueError(f"seconds gained are known of {sorted(gains)}, expected {sorted(names)}; time one step of each")
    own = np.array([gains[name] for name in names])
    bits = np.array([[int(bit) for bit in policy] for policy in all_policies(space.size)])
    times: NDArray[np.float64] = 1.0 - bits @ own / baseline_seconds
    if not (times > 0.0).all():
        raise ValueError(f"the seconds gained add up to {own.sum():g}, expected less than the baseline's step, {baseline_seconds:g}")
    return times


def _time(shape: Shape, place: tuple[int, str, str], overrides: Sequence[Mapping[str, Any]]) -> float:
    """1 / throughput of one GEMM, averaged over the steps; the last override that reaches a step has its format."""
    starts = sorted({0, *(int(each.get("from_step", 0)) for each in overrides)})
    total = 0.0
    for start, end in zip(starts, [*starts[1:], shape.steps], strict=True):
        recipe = shape.recipe
        for each in overrides:
            if "recipe" in each and each.get("from_step", 0) <= start and _reaches(each, place, shape.n_layers):
                recipe = each["recipe"]
        total += (end - start) / shape.steps / _throughput(shape, recipe)
    return total


def _reaches(override: Mapping[str, Any], place: tuple[int, str, str], n_layers: int) -> bool:
    block, projection, gemm = place
    return (
        ("blocks" not in override or any(first <= block <= last for first, last in map(_range_of(n_layers), override["blocks"])))
        and ("projections" not in override or projection in override["projections"])
        and ("gemms" not in override or gemm in override["gemms"])
    )


def _range_of(n_layers: int) -> Any:
    """Reads one entry of `blocks`: 3, "0-1", "first 2" or "last 2"."""

    def read(entry: int | str) -> tuple[int, int]:
        words = str(entry).split()
        if words[0] in {"first", "last"}:
            count = int(words[1])
            return (0, count - 1) if words[0] == "first" else (n_layers - count, n_layers - 1)
        first, _, last = str(entry).partition("-")
        return int(first), int(last or first)

    return read


def _throughput(shape: Shape, recipe: str) -> float:
    family = "fp4" if "fp4" in recipe else "fp8" if "fp8" in recipe else recipe
    if family not in shape.throughput:
        raise ValueError(f"no throughput is known for recipe {recipe!r}, expected one of {', '.join(shape.throughput)}")
    return shape.throughput[family]
