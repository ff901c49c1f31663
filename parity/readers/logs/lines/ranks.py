"""One series for all ranks of a run, which must print the same losses."""

from collections.abc import Mapping

from parity.readers.columns.names import LOSS
from parity.readers.columns.track import Series
from parity.readers.errors import ReadError

RankSeries = Mapping[str, Series]
"""What one rank printed, by quantity."""


def agreed_series(ranks: Mapping[str, RankSeries], source: str) -> RankSeries:
    """The series of the rank that printed most, where every other rank printed the same losses at
    the steps that it shares.
    """
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1][LOSS]))
    first, most = ordered[0]
    printed = _printed(most) if len(ordered) > 1 else set()
    for name, rank in ordered[1:]:
        if different := sorted(_printed(rank) - printed):
            raise ReadError(
                f"{source}: ranks {first or 'without a prefix'} and {name or 'without a prefix'} "
                f"print different losses (step {different[0][0]:,}); expected one rank, or equal "
                "losses; keep one rank's lines in the file"
            )
    return most


def _printed(rank: RankSeries) -> set[tuple[int, str]]:
    """Steps with their losses as text, so that NaN equals NaN."""
    return {(step, repr(loss)) for step, loss in rank[LOSS]}
