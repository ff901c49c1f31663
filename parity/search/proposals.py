"""Which switches a search tries first: what an analysis named, then the rest of the model in ranges of blocks.

    cell   a GEMM of a projection in a block that the candidate changes
    box    blocks x projections x GEMMs: what one override reaches

The clusters that the analysis named become boxes of their own. The other cells are cut into as many ranges of blocks as the limit of
switches allows, and each range into boxes. The boxes share no cell and together have every cell, so that a policy with all switches at
0 restores everything, and a switch that stays at 1 is not taken back by another one.

Can fail: an analysis ranks causes at one checkpoint. A cause that it did not name is inside a switch of the rest, which is then taken back
as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from parity.search.policies import MOST_SWITCHES

Cell = tuple[int, str, str]
"""A block, a projection and a GEMM."""
GROUPS: Mapping[str, tuple[str, ...]] = {"attention": ("query", "key", "value", "out"), "mlp": ("gate", "up", "down")}
GEMMS = ("fprop", "dgrad", "wgrad")
_PROJECTIONS = (*GROUPS["attention"], *GROUPS["mlp"])


@dataclass(frozen=True, slots=True, kw_only=True)
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
        for _, group in itertools.groupby(enumerate(self.blocks), key=lambda each: each[1] - each[0]):
            blocks = [block for _, block in group]
            words.append(str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]}-{blocks[-1]}")
        return words

    @property
    def name(self) -> str:
        """Such as `1.down.wgrad` or `0-1.mlp`; all three GEMMs are left out."""
        group = next((name for name, members in GROUPS.items() if members == self.projections), "+".join(self.projections))
        parts = [",".join(self.ranges), group]
        return ".".join(parts if self.gemms == GEMMS else [*parts, "+".join(self.gemms)])


def proposals(changed: Collection[Cell], named: Sequence[Collection[Cell]], most: int = MOST_SWITCHES) -> list[Box]:
    """At most `most` boxes that have every changed cell once: those of the named clusters first. Empty if they need more."""
    cells = set(changed)
    first: list[Box] = []
    for cluster in named:
        own = cells & set(cluster)
        first += boxes(own)
        cells -= own
    blocks = sorted({block for block, _, _ in cells})
    for ranges in range(max(1, len(blocks)), 0, -1):
        edges = [round(at * len(blocks) / ranges) for at in range(ranges + 1)]
        parts = [set(blocks[start:end]) for start, end in itertools.pairwise(edges)]
        rest = [box for part in parts for box in boxes(cell for cell in cells if cell[0] in part)]
        if len(first) + len(rest) <= most:
            return [*first, *rest]
    return []


def boxes(cells: Iterable[Cell]) -> list[Box]:
    """Boxes that have each of these cells once, in the order of blocks."""
    by_block: dict[int, set[tuple[str, str]]] = {}
    for block, projection, gemm in cells:
        by_block.setdefault(block, set()).add((projection, gemm))
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for block in sorted(by_block):
        for part in _products(by_block[block]):
            alike.setdefault(part, []).append(block)
    return [Box(blocks=tuple(blocks), projections=projections, gemms=gemms) for (projections, gemms), blocks in alike.items()]


def _products(pairs: Collection[tuple[str, str]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The pairs of projection and GEMM of one block as products: by GEMM, or by projection if that gives fewer."""
    by_projection: dict[tuple[str, ...], list[str]] = {}
    for projection in _PROJECTIONS:
        gemms = tuple(gemm for gemm in GEMMS if (projection, gemm) in pairs)
        if gemms:
            by_projection.setdefault(gemms, []).append(projection)
    by_gemm: dict[tuple[str, ...], list[str]] = {}
    for gemm in GEMMS:
        projections = tuple(projection for projection in _PROJECTIONS if (projection, gemm) in pairs)
        if projections:
            by_gemm.setdefault(projections, []).append(gemm)
    if len(by_gemm) <= len(by_projection):
        return [(projections, tuple(gemms)) for projections, gemms in by_gemm.items()]
    return [(tuple(projections), gemms) for gemms, projections in by_projection.items()]
