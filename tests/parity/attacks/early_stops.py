"""Reruns that were stopped early, and are none: they must not measure the run-to-run noise."""

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, with_loss
from tests.parity.attacks.copies import ASSUMED, COPIES, STRICT, Copy, forked

LEFT_OUT = ("SHORT_RERUNS_LEFT_OUT",)


def stopped(run: Curve, share: float = 0.5) -> Curve:
    """The run up to a share of its length."""
    return kept(run, slice(0, round(share * len(run.loss))), context=run.context)


def with_short_reruns(make: Copy, share: float = 0.5) -> Build:
    """Four real runs of the baseline; one of the candidate, with two runs that are made and stopped
    early to measure its noise.
    """

    def build(runs: Runs) -> Case:
        noise = [stopped(make(runs[1], number, runs[4:]), share) for number in (1, 2)]
        options = {
            "assume_complete": True,
            "baseline_name": "baseline",
            "short_reruns": {"candidate": noise},
        }
        return Case(base=[runs[0], *runs[2:5]], cand=[runs[1]], policy=STRICT, options=options)

    return build


def real(_: Curve, number: int, others: Runs) -> Curve:
    """A real rerun."""
    return others[number]


def with_nan(_: Curve, number: int, others: Runs) -> Curve:
    """A real rerun with a NaN."""
    loss = others[number].loss.copy()
    loss[700 + number] = np.nan
    return with_loss(others[number], loss)


def other_data(_: Curve, number: int, others: Runs) -> Curve:
    """A real rerun whose batches come in another order."""
    run = others[number]
    trend = np.convolve(run.loss, np.ones(51) / 51, "same")
    return with_loss(run, trend + np.random.default_rng(number).permutation(run.loss - trend))


def other_recipe(_: Curve, number: int, others: Runs) -> Curve:
    """A real rerun of a recipe that is worse by 2 % from the start."""
    return with_loss(others[number], 1.02 * others[number].loss)


def of_the_baseline(runs: Runs) -> Case:
    """The prefixes of the baseline's own runs as reruns of the candidate."""
    noise = [stopped(run) for run in (runs[0], *runs[2:4])]
    options = {
        "assume_complete": True,
        "baseline_name": "baseline",
        "short_reruns": {"candidate": noise},
    }
    return Case(base=[runs[0], *runs[2:5]], cand=[runs[1]], policy=STRICT, options=options)


def thinned(_: Curve, number: int, others: Runs) -> Curve:
    """A real rerun of which every twentieth step is logged."""
    return kept(others[number], slice(0, None, 20))


def forked_early(run: Curve, number: int, others: Runs) -> Curve:
    """A fork at 20 %, whose log starts after that."""
    fork = forked(run, others[number], 0.2)
    return curve_from_arrays(fork.steps[400:], fork.loss[400:], rounding=fork.rounding)


REAL = {"twin": "two real reruns that were stopped early", "honest": with_short_reruns(real)}
NOT_COUNTED = [name for name in COPIES if "cut off" not in name]

ATTACKS = (
    *(
        Attack(
            what=f"short reruns: {name}, stopped at 50 %",
            build=with_short_reruns(COPIES[name]),
            codes=LEFT_OUT,
            **REAL,
        )
        for name in NOT_COUNTED
    ),
    Attack(
        what="short reruns: forked at 20 %, the log cut off before",
        build=with_short_reruns(forked_early),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns that stop at 30 %",
        build=with_short_reruns(real, 0.3),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns that go on to the end",
        build=with_short_reruns(real, 1.0),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns with a NaN each",
        build=with_short_reruns(with_nan),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns on other data",
        build=with_short_reruns(other_data),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns that log too few steps",
        build=with_short_reruns(thinned),
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns that are the baseline's prefixes",
        build=of_the_baseline,
        codes=LEFT_OUT,
        **REAL,
    ),
    Attack(
        what="short reruns of a worse recipe",
        build=with_short_reruns(other_recipe),
        codes=("CI_STRADDLES_MARGIN", *ASSUMED),
        **REAL,
    ),
)
