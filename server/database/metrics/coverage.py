"""Which steps of a run have arrived and which are missing, from the ranges of its chunks only.

Trainers log every step or every n-th one, so a gap is a distance larger than the most common
distance of logged steps (stride). Only the first step, the last step and the count of each chunk
are read; a hole inside a chunk is placed between that chunk's ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from parity.frozen import frozen

GAPS_LISTED = 100


@frozen
class Range:
    """A range of recorded steps: the first, the last and their number."""

    first_step: int
    last_step: int
    count: int

    def part_below(self, end: float, stride: int) -> Range | None:
        """The part below `end`, assuming equal distances; None if it is empty."""
        if self.last_step < end:
            return self
        if self.first_step >= end:
            return None
        steps = (int(end) - 1 - self.first_step) // stride
        return Range(
            first_step=self.first_step,
            last_step=self.first_step + steps * stride,
            count=min(self.count, steps + 1),
        )


@frozen
class Gap:
    """`missing` steps did not arrive; all of them lie between `first_step` and `last_step`."""

    first_step: int
    last_step: int
    missing: int


@frozen
class Coverage:
    """The steps of a run that have arrived. `stride` is null below two steps; at most the first 100
    gaps are listed.
    """

    recorded: int
    first_step: int | None
    last_step: int | None
    stride: int | None
    missing: int
    gaps: list[Gap]


def coverage(ranges: Sequence[Range]) -> Coverage:
    """The coverage of ascending ranges that do not overlap."""
    if not ranges:
        return Coverage(
            recorded=0, first_step=None, last_step=None, stride=None, missing=0, gaps=[]
        )
    stride = stride_of(ranges)
    gaps = _gaps(ranges, stride) if stride else []
    return Coverage(
        recorded=sum(one.count for one in ranges),
        first_step=ranges[0].first_step,
        last_step=ranges[-1].last_step,
        stride=stride,
        missing=sum(gap.missing for gap in gaps),
        gaps=gaps[:GAPS_LISTED],
    )


def stride_of(ranges: Sequence[Range]) -> int | None:
    """The most common distance between neighbouring steps, the smaller of two; None below two
    steps.
    """
    votes: Counter[int] = Counter()
    for one in ranges:
        span = one.last_step - one.first_step
        if one.count > 1 and span % (one.count - 1) == 0:
            votes[span // (one.count - 1)] += one.count - 1
    for one, following in pairwise(ranges):
        votes[following.first_step - one.last_step] += 1
    if not votes and ranges[0].count > 1:
        # a single range without a regular stride has no most common distance; then every step is
        # expected
        return 1
    return min(votes, key=lambda distance: (-votes[distance], distance), default=None)


def _gaps(ranges: Sequence[Range], stride: int) -> list[Gap]:
    gaps = []
    for one, following in zip_longest(ranges, ranges[1:]):
        inside = (one.last_step - one.first_step) // stride + 1 - one.count
        if inside > 0:
            gaps.append(Gap(first_step=one.first_step, last_step=one.last_step, missing=inside))
        missing = (following.first_step - one.last_step - 1) // stride if following else 0
        if missing > 0:
            gaps.append(
                Gap(
                    first_step=one.last_step + stride,
                    last_step=one.last_step + missing * stride,
                    missing=missing,
                )
            )
    return gaps
