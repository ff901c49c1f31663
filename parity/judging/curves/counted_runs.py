"""The runs of an arm that count: those that no test relates to a run before them."""

from collections.abc import Sequence
from weakref import ref

import numpy as np

from parity.judging.curves.curve import (
    FORKED_FROM,
    BoolArray,
    Curve,
    computed_once,
)
from parity.judging.curves.independence import LeftOut, dependence, is_mixture, starts_late
from parity.judging.curves.related_pairs import may_be_mixtures, may_be_related


def independent_runs(runs: Sequence[Curve]) -> tuple[tuple[Curve, ...], tuple[LeftOut, ...]]:
    """The runs of one arm that count, in their order, and those that don't."""
    if not runs:
        return (), ()
    related = _related(runs)
    mixed = may_be_mixtures(runs)
    kept: list[int] = []
    left_out: list[LeftOut] = []
    for number, run in enumerate(runs):
        before = [runs[other] for other in kept]
        doubt = next(
            (
                doubt
                for other in kept
                if related[other, number] and (doubt := dependence(runs[other], run)) is not None
            ),
            None,
        )
        if (
            doubt is None
            and kept
            and mixed[number]
            and is_mixture(run, [other for other in before if other.seed == run.seed])
        ):
            doubt = "copy", "a mixture of other runs"
        if doubt is None:
            kept.append(number)
        else:
            left_out.append(
                LeftOut(label=run.label or f"run {number + 1}", relation=doubt[0], why=doubt[1])
            )
    return tuple(runs[number] for number in kept), tuple(left_out)


def _related(runs: Sequence[Curve]) -> BoolArray:
    """(R, R): which later run needs the thorough test against which earlier one; asked once, though
    an arm is in several comparisons.
    """
    known, key = _known_relations(runs[0]), tuple(map(ref, runs))
    if key not in known:
        # by its own record
        itself = np.array(
            [
                FORKED_FROM in run.context or (len(run.steps) > 0 and starts_late(run))
                for run in runs
            ]
        )
        known[key] = may_be_related(runs, runs, before=True) | itself
    return known[key]


@computed_once
def _known_relations(_first: Curve) -> dict[tuple["ref[Curve]", ...], BoolArray]:
    return {}
