"""Assignments: which parts of a model keep the candidate's arithmetic, which switches are tried
first, what a step costs, and exports.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.structure import frozen
from training.gemm_time import GB300, rate

# Assignments: which parts of a model keep the candidate's arithmetic, and which go back to
# something safer.
#
# A space has n switches, each with the override of a job file that takes its part back: places
# (blocks, projections, GEMMs in bf16 or FP8), an ingredient (`switches` without a recipe), or the
# last part of a run (`from_step`). An assignment has one bit for each switch:
#
#     1  the candidate's arithmetic      0  the switch's override holds           "11...1" is the
#        candidate itself
#
# The assumption that can fail: with all switches at 0 the run computes what the baseline does, or
# something safer, so its gap counts as
# 0. The switches of a space must cover everything that the candidate changes.

Assignment = str
MOST_SWITCHES = 12
"""4,096 assignments, each of which is rated after every result."""


@frozen
class Switch:
    """One part that can go back, and the override of a job file that does it. ValueError for one
    that reaches too far.
    """

    name: str
    override: Mapping[str, Any]

    def __post_init__(self) -> None:
        if "recipe" in self.override and not self.override.get("projections"):
            raise ValueError(
                f"the override of switch {self.name!r} has a recipe and no projections, expected "
                "their names: "
                "without them it quantizes attention under layer_policy mlp_only"
            )
        if "recipe" not in self.override and not self.override.get("switches"):
            raise ValueError(
                f"the override of switch {self.name!r} is {dict(self.override)}, expected a recipe "
                "or switches"
            )


@frozen
class Space:
    """All assignments of up to 12 switches."""

    switches: tuple[Switch, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.switches]
        if not 1 <= len(names) <= MOST_SWITCHES or len(set(names)) < len(names):
            raise ValueError(
                f"{len(names)} switches, expected 1 to {MOST_SWITCHES} with different names; put "
                "neighbouring parts together"
            )

    @property
    def size(self) -> int:
        """The number of switches."""
        return len(self.switches)

    @property
    def candidate(self) -> Assignment:
        """The assignment that takes nothing back."""
        return "1" * self.size

    def taken_back(self, assignment: Assignment) -> list[Switch]:
        """The switches that an assignment takes back. ValueError for one that does not have one bit
        for each switch.
        """
        if len(assignment) != self.size or set(assignment) - {"0", "1"}:
            raise ValueError(f"the assignment is {assignment!r}, expected {self.size} times 0 or 1")
        return [switch for switch, bit in zip(self.switches, assignment, strict=True) if bit == "0"]

    def overrides(self, assignment: Assignment) -> list[dict[str, Any]]:
        """The overrides of a job file, in the order in which they must stand: later ones win, so
        ingredients come before recipes.
        """
        held = [each.override for each in self.taken_back(assignment)]
        return [
            dict(each)
            for each in sorted(
                held, key=lambda override: ("recipe" in override, "from_step" in override)
            )
        ]


def all_assignments(size: int) -> tuple[Assignment, ...]:
    """The 2^size assignments in the order of their numbers: assignment i is i in binary."""
    return tuple(f"{number:0{size}b}" for number in range(2**size))


def without(size: int, at: int) -> Assignment:
    """The candidate with one switch taken back."""
    return "1" * at + "0" + "1" * (size - at - 1)


def alone(size: int, at: int) -> Assignment:
    """The candidate's arithmetic in one switch alone."""
    return "0" * at + "1" + "0" * (size - at - 1)


# Which switches a search tries first: what an analysis named, then the rest of the model in ranges
# of blocks.
#
#     cell   a GEMM of a projection in a block that the candidate changes
#     box    blocks x projections x GEMMs: what one override reaches
#
# The clusters that the analysis named become boxes of their own. The other cells are cut into as
# many ranges of blocks as the limit of switches allows, and each range into boxes. The boxes share
# no cell and together have every cell, so that an assignment with all switches at 0 restores
# everything, and a switch that stays at 1 is not taken back by another one.
#
# Can fail: an analysis ranks causes at one checkpoint. A cause that it did not name is inside a
# switch of the rest, which is then taken back as a whole.

Cell = tuple[int, str, str]
"""A block, a projection and a GEMM."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "attention": ("query", "key", "value", "out"),
    "mlp": ("gate", "up", "down"),
}
GEMMS = ("fprop", "dgrad", "wgrad")
_PROJECTIONS = (*GROUPS["attention"], *GROUPS["mlp"])


@frozen
class Box:
    """Blocks, projections and GEMMs, each with each."""

    blocks: tuple[int, ...]
    projections: tuple[str, ...]
    gemms: tuple[str, ...]

    def cells(self) -> Iterator[Cell]:
        """Every cell of it."""
        return itertools.product(self.blocks, self.projections, self.gemms)

    @property
    def ranges(self) -> list[str]:
        """Its blocks as a job file writes them, such as `0-1` and `3`."""
        words: list[str] = []
        for _, group in itertools.groupby(
            enumerate(self.blocks), key=lambda each: each[1] - each[0]
        ):
            blocks = [block for _, block in group]
            words.append(str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]}-{blocks[-1]}")
        return words

    @property
    def name(self) -> str:
        """Such as `1.down.wgrad` or `0-1.mlp`; all three GEMMs are left out."""
        group = next(
            (name for name, members in GROUPS.items() if members == self.projections),
            "+".join(self.projections),
        )
        parts = [",".join(self.ranges), group]
        return ".".join(parts if self.gemms == GEMMS else [*parts, "+".join(self.gemms)])


def proposals(
    changed: Collection[Cell], named: Sequence[Collection[Cell]], most: int = MOST_SWITCHES
) -> list[Box]:
    """At most `most` boxes that have every changed cell once: those of the named clusters first.
    Empty if they need more.
    """
    cells = set(changed)
    first: list[Box] = []
    for cluster in named:
        own = cells & set(cluster)
        first += boxes(own)
        cells -= own
    blocks = sorted({block for block, _, _ in cells})
    for ranges in range(max(1, len(blocks)), 0, -1):
        parts = [set(blocks[start:end]) for start, end in ranges_of(len(blocks), ranges)]
        rest = [box for part in parts for box in boxes(cell for cell in cells if cell[0] in part)]
        if len(first) + len(rest) <= most:
            return [*first, *rest]
    return []


def ranges_of(blocks: int, ranges: int) -> Iterator[tuple[int, int]]:
    """The first block of each of the `ranges`, of nearly the same size, and the block after its
    last one.
    """
    return itertools.pairwise(round(at * blocks / ranges) for at in range(ranges + 1))


def boxes(cells: Iterable[Cell]) -> list[Box]:
    """Boxes that have each of these cells once, in the order of blocks."""
    by_block: dict[int, set[tuple[str, str]]] = {}
    for block, projection, gemm in cells:
        by_block.setdefault(block, set()).add((projection, gemm))
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for block in sorted(by_block):
        for part in _products(by_block[block]):
            alike.setdefault(part, []).append(block)
    return [
        Box(blocks=tuple(blocks), projections=projections, gemms=gemms)
        for (projections, gemms), blocks in alike.items()
    ]


def _products(pairs: Collection[tuple[str, str]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The pairs of projection and GEMM of one block as products: by GEMM, or by projection if that
    gives fewer.
    """
    by_projection = _grouped(_PROJECTIONS, GEMMS, pairs)
    by_gemm = _grouped(GEMMS, _PROJECTIONS, {(gemm, projection) for projection, gemm in pairs})
    if len(by_gemm) <= len(by_projection):
        return [(projections, tuple(gemms)) for projections, gemms in by_gemm.items()]
    return [(tuple(projections), gemms) for gemms, projections in by_projection.items()]


def _grouped(
    names: Sequence[str], others: Sequence[str], pairs: Collection[tuple[str, str]]
) -> dict[tuple[str, ...], list[str]]:
    """The names that are paired with the same ones of the others, by these."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if own := tuple(other for other in others if (name, other) in pairs):
            groups.setdefault(own, []).append(name)
    return groups


# What other trainers need to be told to compute an assignment, or why they cannot.
#
# MaxText has one `quantization` for all layers. Transformer Engine takes a recipe for each module,
# by `te.autocast` around it; single GEMMs of a module can only be left in bf16, by the feature
# DisableFP8GEMM of its debug tools.

_RECIPES: Mapping[str, str] = {
    "nvfp4": "NVFP4BlockScaling()",
    "fp8_current": "Float8CurrentScaling()",
    "fp8_delayed": "DelayedScaling()",
    "mxfp8": "MXFP8BlockScaling()",
}


def export_lines(candidate: str, overrides: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines for MaxText and for Transformer Engine: a candidate's recipe, and the overrides of the
    assignment.
    """
    if overrides:
        yield (
            "MaxText: cannot express this assignment; its `quantization` holds for every layer "
            "alike"
        )
    else:
        yield f"MaxText: the candidate's own `quantization` ({candidate})"
    yield from _transformer_engine(candidate, overrides)


def _transformer_engine(candidate: str, overrides: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    places: dict[tuple[str, str, str], set[str]] = {}
    for each in overrides:
        if each.get("switches") or "recipe" not in each:
            yield (
                "Transformer Engine: cannot express this assignment; its recipes have no switch "
                "for a part of a model"
            )
            return
        where = (
            ", ".join(map(str, each.get("blocks", ()))) or "all",
            ", ".join(each.get("projections", ())),
            each["recipe"],
        )
        places.setdefault(where, set()).update(each.get("gemms") or GEMMS)
    unknown = next(
        (
            name
            for name in (candidate, *(recipe for *_, recipe in places))
            if name != "bf16" and name not in _RECIPES
        ),
        None,
    )
    if unknown is not None:
        yield f"Transformer Engine: cannot express this assignment; it has no recipe {unknown}"
        return
    split = next(
        (
            where
            for where, gemms in places.items()
            if len(gemms) < len(GEMMS) and where[2] != "bf16"
        ),
        None,
    )
    if split is not None:
        yield (
            "Transformer Engine: cannot express this assignment; one module has one recipe, and "
            f"GEMMs of {split[1]} would take two"
        )
        return
    yield f"Transformer Engine: te.autocast(recipe={_RECIPES.get(candidate, candidate)}), and in"
    for (blocks, projections, recipe), gemms in places.items():
        if len(gemms) < len(GEMMS):
            what = (
                f"DisableFP8GEMM with gemms: [{', '.join(gemm for gemm in GEMMS if gemm in gemms)}]"
            )
        else:
            if recipe == "bf16":
                what = "te.autocast(enabled=False)"
            else:
                what = f"te.autocast(recipe={_RECIPES[recipe]})"
        yield f"  blocks {blocks}, {projections}: {what}"


# What a step of each assignment takes, relative to the baseline: modelled from FLOPs, or from
# measured step times.
#
# modelled   T(p) = other + sum over GEMMs and parts of the run of FLOPs / throughput of the format
#            there
# measured   T(p) = T(baseline) - sum over the switches at 1 of the seconds that each gains
#
# `other` is everything that is no GEMM of these layers. It is set so that the candidate's recipe
# everywhere is `end_to_end` times as fast as FP8 everywhere. Defaults: GEMMs at 1 : 2 : 6 in bf16 :
# FP8 : FP4, the dense peaks of a GB300 (1 : 2 : 4 on a GB200), and 1.73, the highest speed of NVFP4
# over FP8 training that NVIDIA reports (Llama 3.1 405B on GB300; 1.31 to 1.44 for its other three
# measurements).
#
# Can fail: the time of quantization itself is part of `other` and equal for all assignments, so
# ingredients cost nothing here, and small GEMMs do not reach peak ratios. Where step times of a few
# assignments are known, use those.
#
# Source: NVIDIA developer blog, "Train models faster with JAX and MaxText using NVFP4 on NVIDIA
# Blackwell"; peaks: arXiv 2509.25149.

END_TO_END = 1.73


@frozen
class Shape:
    """What is computed: weights of each quantized projection of a block (inputs times outputs),
    blocks, and steps of a run.
    """

    weights: Mapping[str, int]
    n_layers: int
    steps: int
    recipe: str
    throughput: Mapping[str, float] = field(default_factory=lambda: GB300)
    end_to_end: float = END_TO_END


def modelled_times(space: Space, shape: Shape) -> NDArray[np.float64]:
    """The time (2^n,) of a step of each assignment, as a share of that of FP8 everywhere.
    ValueError for an unknown recipe.
    """
    places = [
        (block, name, gemm)
        for block in range(shape.n_layers)
        for name in shape.weights
        for gemm in GEMMS
    ]
    whole = sum(shape.weights[name] for _, name, _ in places)
    slow, fast = (
        whole / rate("fp8_current", shape.throughput),
        whole / rate(shape.recipe, shape.throughput),
    )
    if not 1.0 < shape.end_to_end <= slow / fast:
        raise ValueError(
            f"end_to_end is {shape.end_to_end:g}, expected more than 1 and at most "
            f"{slow / fast:g}, the GEMMs' own ratio"
        )
    other = (slow - shape.end_to_end * fast) / (shape.end_to_end - 1.0)
    # places that the same switches reach, and their weights
    alike: dict[tuple[bool, ...], tuple[Cell, int]] = {}
    for place in places:
        reached = tuple(
            _reaches(switch.override, place, shape.n_layers) for switch in space.switches
        )
        first, weight = alike.get(reached, (place, 0))
        alike[reached] = first, weight + shape.weights[place[1]]
    gemms = (
        sum(weight * _time(shape, place, overrides) for place, weight in alike.values())
        for overrides in map(space.overrides, all_assignments(space.size))
    )
    return (np.fromiter(gemms, np.float64) + other) / (slow + other)


def measured_times(
    space: Space, baseline_seconds: float, gains: Mapping[str, float]
) -> NDArray[np.float64]:
    """The time (2^n,) of a step of each assignment as a share of the baseline's, where each switch
    at 1 gains these seconds a step.
    """
    names = [switch.name for switch in space.switches]
    if set(gains) != set(names):
        raise ValueError(
            f"seconds gained are known of {sorted(gains)}, expected {sorted(names)}; time one step "
            "of each"
        )
    own = np.array([gains[name] for name in names])
    bits = np.array(
        [[int(bit) for bit in assignment] for assignment in all_assignments(space.size)]
    )
    times: NDArray[np.float64] = 1.0 - bits @ own / baseline_seconds
    if not (times > 0.0).all():
        raise ValueError(
            f"the seconds gained add up to {own.sum():g}, expected less than the baseline's step, "
            f"{baseline_seconds:g}"
        )
    return times


def _time(shape: Shape, place: Cell, overrides: Sequence[Mapping[str, Any]]) -> float:
    """1 / throughput of one GEMM, averaged over the steps; the last override that reaches a step
    has its format.
    """
    starts = sorted({0, *(int(each.get("from_step", 0)) for each in overrides)})
    total = 0.0
    for start, end in zip(starts, [*starts[1:], shape.steps], strict=True):
        recipe = shape.recipe
        for each in overrides:
            if (
                "recipe" in each
                and each.get("from_step", 0) <= start
                and _reaches(each, place, shape.n_layers)
            ):
                recipe = each["recipe"]
        total += (end - start) / shape.steps / rate(recipe, shape.throughput)
    return total


def _reaches(override: Mapping[str, Any], place: Cell, n_layers: int) -> bool:
    block, projection, gemm = place
    return (
        (
            "blocks" not in override
            or any(_covers(entry, block, n_layers) for entry in override["blocks"])
        )
        and ("projections" not in override or projection in override["projections"])
        and ("gemms" not in override or gemm in override["gemms"])
    )


def _covers(entry: int | str, block: int, n_layers: int) -> bool:
    """Whether an entry of `blocks` has this block: 3, "0-1", "first 2" or "last 2"."""
    words = str(entry).split()
    if words[0] == "first":
        return block < int(words[1])
    if words[0] == "last":
        return block >= n_layers - int(words[1])
    first, _, last = str(entry).partition("-")
    return int(first) <= block <= int(last or first)
