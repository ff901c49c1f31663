"""Candidate against candidate, as advice: is one candidate's extra (a Hadamard transform, more
blocks in bf16) worth its step time?
"""

from collections.abc import Sequence

from parity.judging.curves.curve import Curve
from parity.judging.curves.data_order import SAME_ORDER
from parity.judging.curves.window import Window
from parity.judging.document_types import (
    PeerDocument,
)
from parity.judging.measurements import Compared, measure
from parity.judging.multiplicity import pairs_confidence
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy
from parity.judging.secondary.conditions import NotComparable
from parity.judging.secondary.speed import throughput
from parity.wording import interval_words, level_percent, signed


def compare_peers(
    names: tuple[str, str],
    first: Sequence[Curve],
    second: Sequence[Curve],
    policy: Policy,
    window: Window,
    noise_families: NoiseFamilies,
    candidates: int = 2,
) -> PeerDocument:
    """Compare the second candidate with the first, with the same window, noises and run-to-run
    noise as a verdict.

    The intervals of all pairs of `candidates` hold together at the policy's confidence, whatever
    the number of looks.
    """
    measurements = measure(Compared(*names), first, second, policy, window, noise_families)
    measured = throughput(*measurements.arms.both_runs, policy.confidence)
    ratio = None if measured is None or isinstance(measured, NotComparable) else measured["ratio"]
    paired = (
        policy.pairing == "unpaired"
        or measurements.r_pair is None
        or measurements.r_pair >= SAME_ORDER
        or measurements.same_data_recorded
    )
    if ratio:
        faster = f", step speed {ratio['value']:.3f} x ({ratio['lo']:.3f} to {ratio['hi']:.3f})"
    else:
        faster = ""
    if measurements.statistics is None or not paired:
        sentence = f"{names[1]} and {names[0]} have no common late window of one data order{faster}"
        return PeerDocument(
            name=names[0], gap=None, lo=None, hi=None, speed=ratio, sentence=f"{sentence}."
        )
    confidence = pairs_confidence(policy.confidence, candidates)
    lo, hi = measurements.statistics.interval.bounds(confidence)
    words = "differ" if lo > 0.0 or hi < 0.0 else "are indistinguishable"
    if confidence == policy.confidence:
        together = ""
    else:
        together = f", {level_percent(confidence)} each so that all pairs hold together"
    gap = (
        f"gap {signed(measurements.statistics.interval.mean, 4)} nats "
        f"({interval_words(lo, hi, 4)}{together})"
    )
    sentence = f"{names[1]} and {names[0]} {words}: {gap}{faster}."
    return PeerDocument(
        name=names[0],
        gap=measurements.statistics.interval.mean,
        lo=lo,
        hi=hi,
        speed=ratio,
        sentence=sentence,
    )
