"""Gaps from the ranges of chunks, against a slow count over every step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.database.metrics.coverage import Range, coverage


def _ranges(chunks):
    return [Range(first_step=chunk[0], last_step=chunk[-1], count=len(chunk)) for chunk in chunks]


@given(
    first=st.integers(0, 50),
    stride=st.integers(1, 20),
    kept=st.lists(st.booleans(), min_size=3, max_size=60),
    cuts=st.sets(st.integers(1, 59)),
)
def test_whole_chunks_that_are_lost_are_gaps(first, stride, kept, cuts):
    """A run logs every n-th step in chunks; some chunks are lost. The twin counts the steps that
    are not there.
    """
    steps = np.arange(first, first + stride * len(kept), stride)
    pieces = [
        piece.tolist()
        for piece in np.split(steps, sorted(cut for cut in cuts if cut < len(kept)))
        if len(piece)
    ]
    chunks = [piece for piece, keep in zip(pieces, kept, strict=False) if keep]
    if sum(len(chunk) > 1 for chunk in chunks) <= len(chunks) / 2:
        return  # too little is left to tell the stride
    covered = coverage(_ranges(chunks))
    there = {step for chunk in chunks for step in chunk}
    absent = [
        step
        for step in steps.tolist()
        if chunks[0][0] <= step <= chunks[-1][-1] and step not in there
    ]
    assert covered.stride == stride
    assert covered.recorded == len(there)
    assert covered.missing == len(absent)
    assert [
        step for gap in covered.gaps for step in range(gap.first_step, gap.last_step + 1, stride)
    ] == absent


def test_a_hole_inside_a_chunk_is_placed_between_its_ends():
    covered = coverage(_ranges([list(range(100)), [100, 101, 105, 106, 107]]))
    assert (covered.stride, covered.missing) == (1, 3)
    assert [(gap.first_step, gap.last_step, gap.missing) for gap in covered.gaps] == [(100, 107, 3)]


def test_nothing_and_one_step():
    assert coverage([]).first_step is None
    assert coverage(_ranges([[7]])).stride is None


def test_a_range_is_cut_where_a_newer_attempt_began():
    one = Range(first_step=0, last_step=40, count=5)
    assert one.part_below(25, 10) == Range(first_step=0, last_step=20, count=3)
    assert one.part_below(20, 10) == Range(first_step=0, last_step=10, count=2)
    assert one.part_below(0, 10) is None
    assert one.part_below(41, 10) == one
