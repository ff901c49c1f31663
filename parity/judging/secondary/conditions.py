"""Did two arms train under the same conditions, so that their step times can be compared? Else one
clear reason.

Compared are only runs of one recorded device class, under an engine whose times mean something,
with equal tokens per step, that trained at the same time: the arms' spans of wall-clock time
overlap for at least half of the shorter one. Two spans are compared as they are where an arm has
one run; where both arms have two or more, from the first start to the last end, so that runs in
turns count, because then the spread between runs holds what changed from one to the next. For the
same reason single runs must have trained on one machine.

`unix_seconds` (T,) is when each step ended, Unix time; a server derives it from the attempts, a
file has it as a column.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.context import DEVICE_CLASS, EMULATED, ENGINE, HOST, values_of
from parity.judging.curves.curve import Curve

UNIX_SECONDS = "unix_seconds"
TOKENS = "tokens"
MIN_OVERLAP = 0.5
SAME_TOKENS = 1e-3

Span = tuple[float, float]


@frozen
class NotComparable:
    """Why the step times of two arms say nothing about their recipes: part of a sentence, without a
    full stop.
    """

    reason: str


def common_conditions(
    baseline: Sequence[Curve], candidate: Sequence[Curve]
) -> Span | NotComparable:
    """The time (Unix seconds) whose steps can be compared, all of it where both arms have several
    runs; or why none can be.
    """
    runs = (*baseline, *candidate)
    if reason := _other_machine(
        runs, several=min(len(baseline), len(candidate)) > 1
    ) or _other_work(baseline[0], candidate[0]):
        return NotComparable(reason=reason)
    spans = [_span(run) for run in runs]
    known = [span for span in spans if span is not None]
    if len(known) < len(runs):
        return NotComparable(reason="when the runs trained is not recorded")
    base, cand = _hull(known[: len(baseline)]), _hull(known[len(baseline) :])
    begin, end = max(base[0], cand[0]), min(base[1], cand[1])
    shorter = min(base[1] - base[0], cand[1] - cand[0])
    if end - begin < MIN_OVERLAP * shorter or end <= begin:
        return NotComparable(
            reason="the arms trained at different times, so the load of the machine may have "
            "changed"
        )
    if min(len(baseline), len(candidate)) > 1:
        return -np.inf, np.inf
    return begin, end


def _other_machine(runs: Sequence[Curve], *, several: bool) -> str | None:
    contexts = [run.context for run in runs]
    if EMULATED in values_of(contexts, ENGINE):
        return "engine emulated computes the codes of a format, not its speed"
    if not all(context.get(DEVICE_CLASS) for context in contexts):
        return "the device class of the runs is not recorded"
    classes = values_of(contexts, DEVICE_CLASS)
    if len(classes) > 1:
        return f"the runs trained on different device classes ({', '.join(sorted(classes))})"
    hosts = values_of(contexts, HOST)
    if len(hosts) > 1 and not several:
        return (
            f"the runs trained on different machines ({', '.join(sorted(hosts))}), with only one "
            "run of an arm"
        )
    return None


def _other_work(baseline: Curve, candidate: Curve) -> str | None:
    """Whether the arms processed other numbers of tokens, where both recorded them."""
    if not (TOKENS in baseline.columns and TOKENS in candidate.columns):
        return None
    _, left, right = np.intersect1d(
        baseline.steps, candidate.steps, assume_unique=True, return_indices=True
    )
    ours, theirs = baseline.columns[TOKENS][left], candidate.columns[TOKENS][right]
    both = np.isfinite(ours) & np.isfinite(theirs)
    if not both.any() or abs(ours[both][-1] - theirs[both][-1]) <= SAME_TOKENS * abs(
        ours[both][-1]
    ):
        return None
    return (
        f"the arms processed different numbers of tokens ({ours[both][-1]:,.0f} and "
        f"{theirs[both][-1]:,.0f} at the same step)"
    )


def _span(run: Curve) -> Span | None:
    at = run.columns.get(UNIX_SECONDS, np.empty(0))
    at = at[np.isfinite(at)]
    if len(at) > 1:
        return float(at.min()), float(at.max())
    return None


def _hull(spans: Sequence[Span]) -> Span:
    return min(begin for begin, _ in spans), max(end for _, end in spans)
