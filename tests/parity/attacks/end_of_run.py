"""The candidate ends worse than its mean over the window says, or gets worse late."""

import numpy as np

from tests.parity.attacks.case import (
    Attack,
    Build,
    Case,
    Runs,
    margin_of,
    raised,
    ramped,
    with_loss,
)

ENDS = (
    "END_DIFFERS",
    "ENDS_ABOVE_MARGIN",
    "DIVERGED",
    "GAP_EXCEEDS_MARGIN",
    "GAP_GROWING",
    "NONFINITE_CAND",
)


def end(share: float, margins: float) -> Build:
    """Worse by so many margins over the last share of the run."""
    return lambda runs: Case(base=[runs[0]], cand=[raised(runs[1], 1.0 - share, margins)])


def last_points(count: int, margins: float) -> Build:
    """Worse by so many margins at the last points."""

    def build(runs: Runs) -> Case:
        loss = runs[1].loss.copy()
        loss[-count:] += margins * margin_of(runs[1])
        return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])

    return build


def ramp(start: float, margins: float) -> Build:
    """Worse by a ramp."""
    return lambda runs: Case(base=[runs[0]], cand=[ramped(runs[1], start, margins)])


def blow_up(runs: Runs) -> Case:
    """Twice as far away at every one of the last 12 steps."""
    loss = runs[1].loss.copy()
    loss[-12:] += 0.001 * 2.0 ** np.arange(12)
    return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])


def swings(runs: Runs) -> Case:
    """Up by 40 margins and down by 20 in turn over the last 2 %."""
    loss = runs[1].loss.copy()
    count = round(0.02 * len(loss))
    loss[-count:] += margin_of(runs[1]) * np.where(np.arange(count) % 2, 40.0, -20.0)
    return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])


def baseline_ends_worse(runs: Runs) -> Case:
    """A candidate worse by 1.3 margins against a baseline that ends 18 margins worse over its last
    2 %.
    """
    return Case(base=[raised(runs[0], 0.98, 18.0)], cand=[raised(runs[1], 0.0, 1.3)])


def spike_before_the_end(runs: Runs) -> Case:
    """A spike of 8 steps, over 30 steps before the end."""
    loss = runs[1].loss.copy()
    loss[-38:-30] += 20.0 * margin_of(runs[1])
    return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])


def worse_start(runs: Runs) -> Case:
    """A candidate that is worse by 3 margins over the first third only."""
    return Case(base=[runs[0]], cand=[raised(runs[1], 0.0, 3.0, 1.0 / 3.0)])


def half_a_margin(runs: Runs) -> Case:
    """A candidate worse by 0.4 margins throughout."""
    return Case(base=[runs[0]], cand=[raised(runs[1], 0.0, 0.4)])


RETURNED = {"twin": "the same spike, over 30 steps before the end", "honest": spike_before_the_end}
EARLY = {"twin": "3 margins worse over the first third only", "honest": worse_start}
SMALL = {"twin": "0.4 margins worse throughout", "honest": half_a_margin}

ATTACKS = (
    *(
        Attack(
            what=f"{margins:g} margins worse over the last {100 * share:g} %",
            build=end(share, margins),
            codes=ENDS,
            **RETURNED,
        )
        for share, margins in (
            (0.009, 10),
            (0.009, 18),
            (0.015, 2.5),
            (0.01, 4),
            (0.003, 6),
            (0.03, 2),
            (0.02, 3),
            (0.005, 1000),
        )
    ),
    Attack(
        what="1,000 margins worse at the last step",
        build=last_points(1, 1000),
        codes=ENDS,
        **RETURNED,
    ),
    Attack(
        what="20 margins worse at the last step", build=last_points(1, 20), codes=ENDS, **RETURNED
    ),
    Attack(
        what="5 margins worse at the last 2 steps", build=last_points(2, 5), codes=ENDS, **RETURNED
    ),
    Attack(
        what="4 margins worse at the last 5 steps", build=last_points(5, 4), codes=ENDS, **RETURNED
    ),
    Attack(
        what="the last 12 steps blow up, twice as far at each",
        build=blow_up,
        codes=ENDS,
        **RETURNED,
    ),
    Attack(
        what="swings of +40 and -20 margins over the last 2 %",
        build=swings,
        codes=(*ENDS, "UNSTABLE", "SPIKES_HIDE_GAP"),
        **RETURNED,
    ),
    Attack(
        what="1.3 margins worse, and the baseline ends 18 margins worse",
        build=baseline_ends_worse,
        codes=ENDS,
        **SMALL,
    ),
    *(
        Attack(
            what=f"{margins:g} margins worse from {100 * start:g} % on",
            build=end(1.0 - start, margins),
            codes=(*ENDS, "CI_STRADDLES_MARGIN"),
            **EARLY,
        )
        for start, margins in (
            (0.85, 2),
            (0.85, 4),
            (0.90, 2),
            (0.88, 3),
            (0.95, 2),
            (0.82, 1.6),
            (0.92, 4),
            (0.5, 1.5),
            (0.7, 3),
        )
    ),
    *(
        Attack(
            what=f"a ramp from {100 * start:g} % on to {margins:g} margins",
            build=ramp(start, margins),
            codes=ENDS,
            **EARLY,
        )
        for start, margins in ((0.8, 2), (0.9, 3), (0.98, 10), (0.6, 2), (0.95, 4), (0.99, 18))
    ),
    Attack(
        what="1.5 margins worse throughout",
        build=lambda runs: Case(base=[runs[0]], cand=[raised(runs[1], 0.0, 1.5)]),
        codes=(*ENDS, "CI_STRADDLES_MARGIN"),
        **SMALL,
    ),
    Attack(
        what="2 % worse throughout",
        build=lambda runs: Case(base=[runs[0]], cand=[with_loss(runs[1], 1.02 * runs[1].loss)]),
        codes=ENDS,
        **SMALL,
    ),
)
