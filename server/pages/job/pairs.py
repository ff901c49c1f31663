"""Every two candidates of a job against each other: a matrix, and one pair of it in full."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from parity.frozen import frozen

FEW_PAIRS = 6  # as many stand in a list, more in a matrix


@frozen
class Pair:
    """A candidate `row` against another, `column`: the gap between them with its interval, nats;
    above zero, `row` is worse.
    """

    row: str
    column: str
    gap: float
    lo: float
    hi: float

    @property
    def state(self) -> Literal["worse", "better", "alike"]:
        """What the interval says of `row`."""
        if self.lo > 0.0:
            return "worse"
        return "better" if self.hi < 0.0 else "alike"

    @property
    def sign(self) -> str:
        """The mark of a cell."""
        return {"worse": "\u25b2", "better": "\u25bc", "alike": "\u00b7"}[self.state]


@frozen
class PairTable:
    """All pairs of candidates: `rows` are names with the pairs to the candidates before them, None
    where the judge has not compared the two. `chosen` is the pair that is shown in full.
    """

    names: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Pair | None]]]
    pairs: Sequence[Pair]
    chosen: Pair | None

    @property
    def is_matrix(self) -> bool:
        """Whether there are more pairs than a list shows well."""
        return len(self.pairs) > FEW_PAIRS


def pair_table(
    verdicts: Sequence[Mapping[str, Any]], names: Sequence[str], first: str = "", second: str = ""
) -> PairTable | None:
    """The pairs of judged candidates in the order of `names`; None without any. `first` and
    `second` choose one, by default the two whose gap is the largest.
    """
    place = {name: number for number, name in enumerate(names)}
    found: dict[tuple[str, str], Pair] = {}
    for verdict in verdicts:
        name = verdict["candidate"]["name"]
        for peer in verdict["other_candidates"]:
            pair = Pair(
                row=name,
                column=peer["name"],
                gap=float(peer["gap"]),
                lo=float(peer["lo"]),
                hi=float(peer["hi"]),
            )
            if place[pair.row] < place[pair.column]:
                pair = turned(pair)
            found[pair.row, pair.column] = pair
    if not found:
        return None
    rows = [
        (name, [found.get((name, other)) for other in names[:number]])
        for number, name in enumerate(names)
    ]
    return PairTable(
        names=names,
        rows=rows[1:],
        pairs=[pair for _, cells in rows for pair in cells if pair],
        chosen=_chosen(found, first, second),
    )


def turned(pair: Pair) -> Pair:
    """The same two with their places changed."""
    return Pair(row=pair.column, column=pair.row, gap=-pair.gap, lo=-pair.hi, hi=-pair.lo)


def _chosen(found: Mapping[tuple[str, str], Pair], first: str, second: str) -> Pair | None:
    if (first, second) in found:
        return found[first, second]
    if (second, first) in found:
        return turned(found[second, first])
    if first or second:
        return None
    finite = [pair for pair in found.values() if math.isfinite(pair.gap)]
    return max(finite, key=lambda pair: abs(pair.gap), default=None)
