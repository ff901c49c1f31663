"""Which units are guilty? Group tests by halving, with familywise control.

H(C): no unit of the cluster C has an effect. The clusters form a binary tree over the ordered units; its root is all of them.
p(C)     = min(1, 2 min(p of `without C`, p of `alone C`)): switched off together, and left on alone
adjusted = p(C) * units / |C|,  never below that of the cluster above;  C is guilty if it and all clusters above have adjusted <= alpha

The chance that any cluster without an effect is named is at most alpha, however the tests depend on each other. A cluster is only tested
if the one above it is guilty, so few of the tree's clusters need forks. Both directions are tested because opposite effects of two units
cancel in `without`, and because a unit may harm only where the others are gone.

A cluster for which the plan has no steps left is not tested: it is neither guilty nor innocent, and the cluster above it is named if
no other part of that one is guilty.

Can fail: a cluster whose effects cancel in both directions hides its units; a small effect next to a large one can need more forks than the
plan has, and then the smallest guilty cluster, not one unit, is the answer.

Source: Meinshausen, Hierarchical testing of variable importance, Biometrika 95 (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Cluster = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A cluster that was tested: its own p-value, the adjusted one, and whether it is guilty."""

    cluster: Cluster
    p: float
    adjusted: float
    guilty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Guilt:
    """Every test in its order, the smallest guilty clusters (no tested part of them is guilty by itself), and the parts of guilty clusters
    that were not tested."""

    tested: tuple[Tested, ...]
    named: tuple[Cluster, ...]
    untested: tuple[Cluster, ...] = ()


def halves(cluster: Cluster) -> tuple[Cluster, ...]:
    """The two halves of a cluster of neighbouring units; none for a single unit."""
    middle = (len(cluster) + 1) // 2
    return (cluster[:middle], cluster[middle:]) if len(cluster) > 1 else ()


def both_ways(without: float, alone: float) -> float:
    """The p-value of a cluster from its two tests (Bonferroni)."""
    return min(1.0, 2.0 * min(without, alone))


def find_guilty(units: Sequence[str], p_of: Callable[[Cluster], float | None], alpha: float = 0.05) -> Guilt:
    """Test clusters from the root down; `p_of` is called for a cluster only when it is needed, and returns None if it cannot be tested.

    The order of the units sets the tree, and must not depend on the values that `p_of` uses. Raises ValueError without units.
    """
    if not units or len(set(units)) != len(units):
        raise ValueError(f"units are {list(units)[:4]}, expected at least one, each once")
    tested: list[Tested] = []
    named: list[Cluster] = []
    untested: list[Cluster] = []

    def test(cluster: Cluster, above: float) -> bool:
        p = p_of(cluster)
        if p is None:
            untested.append(cluster)
            return False
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"the p-value of a cluster of {len(cluster)} units is {p}, expected 0 to 1")
        adjusted = min(1.0, max(above, p * len(units) / len(cluster)))
        guilty = adjusted <= alpha
        tested.append(Tested(cluster=cluster, p=p, adjusted=adjusted, guilty=guilty))
        if guilty:
            below = [test(half, adjusted) for half in halves(cluster)]
            if not any(below):
                named.append(cluster)
        return guilty

    test(tuple(units), 0.0)
    return Guilt(tested=tuple(tested), named=tuple(named), untested=tuple(untested))


def clusters(units: Cluster) -> Iterator[Cluster]:
    """All clusters of the tree, each before its halves: 2 units - 1 of them."""
    yield units
    for half in halves(units):
        yield from clusters(half)
