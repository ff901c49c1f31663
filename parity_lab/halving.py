"""Which units are guilty? Group tests by halving, with familywise control.

H(C): no GEMM of the cluster C has an effect. The clusters form a binary tree over the GEMMs in
order of falling weight; its root is all
of them, and each cluster is cut where its two halves weigh most nearly the same.
p(C)     = min(1, 3 min(p of `without C`, p of `alone C`, p of their sum)): what switching C off
         gains, what it costs alone, and both
           together, which has sqrt(2) times the signal of either where the effects of GEMMs add
looks    the halves of a cluster are tested with few forks first, and with more of them only if
         neither is guilty then:
         p(C) = min over looks of p / share of the look,  with shares that sum to 1 (Bonferroni)
adjusted = p(C) / weight of C,  never below that of the cluster above;  C is guilty if it and all
                                clusters above have adjusted <= alpha;
           both units of a cluster of two have its weight: one of them has an effect, so at most
           one is named wrongly (Shaffer)

The chance that any cluster without an effect is named is at most alpha, however the tests depend
on each other: the largest clusters without an effect do not overlap, so their weights sum to at
most 1. A cluster is only tested if the one above it is guilty, so few of the tree's clusters need
forks. A GEMM of large weight is soon tested by itself, at a larger share of the level. Off and
alone are also tested separately, because a GEMM may do harm only together with the others, or
only without them.

A cluster for which the plan has no steps left is not tested: it is neither guilty nor innocent,
and the cluster above it is named if no other part of that one is guilty.

Can fail: weights that are taken from the forks themselves; a cluster whose effects cancel hides
its GEMMs; a small effect next to a large one can need more forks than the plan has, and then the
smallest cause, not one GEMM, is the answer.

Source: Meinshausen, Hierarchical testing of variable importance, Biometrika 95 (2008); weights
and pairs as in Goeman and Finos, The inheritance procedure, Statistical Applications in Genetics
and Molecular Biology 11 (2012).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from parity.frozen import frozen

Cluster = tuple[str, ...]
LOOKS = (0.2, 0.8)
"""The share of the level that each look has: large effects need little of it."""
_PARTS = 1_000_000  # weights are whole numbers, so that every machine cuts the same tree
PValues = Callable[[tuple[Cluster, ...], int], Sequence[float] | None]
"""The p-values of the root, or of both halves of a cluster, at a look; None if they cannot be
tested (any further).
"""


@frozen
class ClusterTree:
    """Units by falling weight (whole numbers of at least 1)."""

    units: Cluster
    weights: tuple[int, ...]

    def weight(self, cluster: Cluster) -> float:
        """The weight of a cluster as a share of that of all GEMMs."""
        return sum(self._weights(cluster)) / sum(self.weights)

    def halves(self, cluster: Cluster) -> tuple[Cluster, ...]:
        """The two parts of a cluster that weigh most nearly the same; none for a single unit."""
        if len(cluster) == 1:
            return ()
        *left, whole = accumulate(self._weights(cluster))
        cut = 1 + min(range(len(left)), key=lambda at: abs(whole - 2 * left[at]))
        return cluster[:cut], cluster[cut:]

    def clusters(self) -> Iterator[Cluster]:
        """All clusters, each before its halves: 2 GEMMs - 1 of them."""
        waiting = [self.units]
        while waiting:
            cluster = waiting.pop()
            yield cluster
            waiting.extend(reversed(self.halves(cluster)))

    def _weights(self, cluster: Cluster) -> tuple[int, ...]:
        first = self.units.index(cluster[0])
        return self.weights[first : first + len(cluster)]


def tree_of(weights: Mapping[str, float]) -> ClusterTree:
    """The tree of GEMMs with these weights (any scale); units of equal weight stay in their order.

    Raises ValueError without units and for weights that are not above 0.
    """
    total = sum(weights.values())
    if not weights or not all(0 < weight <= total < float("inf") for weight in weights.values()):
        raise ValueError(
            f"weights are {dict(weights)}, expected at least one GEMM, each with a finite weight "
            "above 0"
        )
    parts = {unit: max(1, round(_PARTS * weight / total)) for unit, weight in weights.items()}
    units = tuple(sorted(parts, key=lambda unit: -parts[unit]))
    return ClusterTree(units=units, weights=tuple(parts[unit] for unit in units))


@frozen
class Tested:
    """A cluster that was tested: its own p-value, the adjusted one, and whether it is guilty."""

    cluster: Cluster
    p: float
    adjusted: float
    guilty: bool


@frozen
class Guilt:
    """Every test in its order, the smallest causes (no tested part of them is guilty by itself),
    and the parts of causes that were not tested.
    """

    tested: tuple[Tested, ...] = ()
    named: tuple[Cluster, ...] = ()
    untested: tuple[Cluster, ...] = ()


def any_way(*p: float) -> float:
    """The p-value of a hypothesis from several tests of it (Bonferroni)."""
    return min(1.0, len(p) * min(p))


def find_guilty(tree: ClusterTree, p_of: PValues, alpha: float) -> Guilt:
    """Test clusters from the root down; `p_of` is called for clusters only when they are needed.
    The root is tested at look 0 alone, at the whole level.

    The tree must not depend on the values that `p_of` uses. Raises ValueError for p-values outside
    0 to 1.
    """
    tested: list[Tested] = []
    named: list[Cluster] = []
    untested: list[Cluster] = []

    def decide(cluster: Cluster, p: float, above: float, weight: float) -> Tested:
        adjusted = min(1.0, max(above, p / weight))
        return Tested(cluster=cluster, p=p, adjusted=adjusted, guilty=adjusted <= alpha)

    def name_parts(guilty: Tested) -> None:
        """Name the smallest causes of a guilty one."""
        halves = tree.halves(guilty.cluster)
        decided: tuple[Tested, ...] = ()
        for look, share in enumerate(LOOKS) if halves else ():
            values = p_of(halves, look)
            if values is None:
                break
            before = [half.p for half in decided] or [1.0, 1.0]
            smallest = [
                min(old, _checked(new) / share) for old, new in zip(before, values, strict=True)
            ]
            decided = tuple(
                decide(
                    half,
                    p,
                    guilty.adjusted,
                    tree.weight(guilty.cluster if len(guilty.cluster) == 2 else half),
                )
                for half, p in zip(halves, smallest, strict=True)
            )
            if any(half.guilty for half in decided):
                break
        tested.extend(decided)
        untested.extend(() if decided else halves)
        below = [half for half in decided if half.guilty]
        for cause in below:
            name_parts(cause)
        if not below:
            named.append(guilty.cluster)

    values = p_of((tree.units,), 0)
    if values is None:
        return Guilt(untested=(tree.units,))
    root = decide(tree.units, _checked(values[0]), 0.0, 1.0)
    tested.append(root)
    if root.guilty:
        name_parts(root)
    return Guilt(tested=tuple(tested), named=tuple(named), untested=tuple(untested))


def _checked(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a p-value is {p}, expected 0 to 1")
    return p
