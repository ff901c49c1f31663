"""Attacks that were found against the first rules: ends that look finished, bad runs among good
ones, mixtures, holes and odd rounding.
"""

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import (
    Attack,
    Build,
    Case,
    Runs,
    kept,
    margin_of,
    plain,
    raised,
    with_loss,
)
from tests.parity.attacks.copies import ASSUMED, CONTROL, REAL, STRICT, noisy
from tests.parity.attacks.end_of_run import ENDS, RETURNED, SMALL
from tests.parity.attacks.logs import SAME, cand_is, reordered, validated

SAID = "RUN_ABOVE_MARGIN"


def returned_late(points: int, back: int, margins: float) -> Build:
    """So many points before the end worse, the very last ones back."""

    def build(runs: Runs) -> Case:
        loss = runs[1].loss.copy()
        loss[-points:-back] += margins * margin_of(runs[1])
        return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])

    return build


def step_up_at_half_a_percent(runs: Runs) -> Case:
    """1.7 margins of 0.5 % worse over the last 30 points."""
    return Case(
        base=[runs[0]], cand=[raised(runs[1], 1.0 - 30 / 1750, 0.85)], policy={"margin": "0.5%"}
    )


def shaped(shape: str) -> Build:
    """A gap that swings slowly over the window and ends high."""

    def build(runs: Runs) -> Case:
        loss, n = runs[1].loss.copy(), round(0.2 * len(runs[1].loss))
        u = np.linspace(0.0, 1.0, n)
        swing = {
            "cosine": 0.3 + 1.3 * np.cos(2 * np.pi * u),
            "two": 0.2 + 1.5 * np.cos(4 * np.pi * u),
            "U": 1.9 * (2 * u - 1) ** 2,
        }[shape]
        loss[-n:] += margin_of(runs[1]) * swing
        return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])

    return build


def bad_run(change: object, seed: int = 0, runs_in_all: int = 2) -> Build:
    """An arm of candidates of which the last one is changed."""

    def build(runs: Runs) -> Case:
        good = [*runs[1:runs_in_all]]
        bad = change(runs[runs_in_all])  # type: ignore[operator]
        return Case(base=[runs[0]], cand=[*good, with_loss(bad, bad.loss, seed=seed)])

    return build


def several_good(runs: Runs) -> Case:
    """Four honest candidates."""
    return Case(base=[runs[0]], cand=runs[1:5])


def nan_from(run: Curve, share: float) -> Curve:
    """The run, not a number from a share of its length on."""
    loss = run.loss.copy()
    loss[round(share * len(loss)) :] = np.nan
    return with_loss(run, loss)


def mixture(weights: tuple[float, float]) -> Build:
    """Two real runs an arm, and a third that is a mixture of them."""

    def build(runs: Runs) -> Case:
        arms = [
            [x, y, with_loss(x, weights[0] * x.loss + weights[1] * y.loss)]
            for x, y in (runs[:2], runs[2:4])
        ]
        return Case(base=arms[0], cand=arms[1], policy=STRICT)

    return build


def candidates_as_controls(runs: Runs) -> Case:
    """The candidate's runs given as controls of the baseline."""
    return Case(
        base=[runs[0]],
        cand=runs[1:4],
        policy=STRICT,
        options={"assume_complete": True, "controls": list(runs[1:4])},
    )


def hole(start: float, stop: float) -> Build:
    """The candidate lacks the steps between two shares of the run."""

    def build(runs: Runs) -> Case:
        at = np.arange(len(runs[1].loss)) / len(runs[1].loss)
        return Case(base=[runs[0]], cand=[kept(runs[1], (at < start) | (at >= stop))])

    return build


def last_points_of_the_baseline(runs: Runs) -> Case:
    """The candidate's last 60 points are the baseline's."""
    loss = runs[1].loss.copy()
    loss[-60:] = runs[0].loss[-60:]
    return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)])


def from_baseline(change: object) -> Build:
    """A candidate made from the baseline's log."""
    return lambda runs: Case(base=[runs[0]], cand=[with_loss(runs[0], change(runs[0]))])  # type: ignore[operator]


def recorded_fork(runs: Runs) -> Case:
    """A candidate whose record says that it is a fork."""
    run = runs[1]
    return Case(
        base=[runs[0]],
        cand=[
            curve_from_arrays(
                run.steps, run.loss, rounding="nearest", context={"forked_from": "fp8 at 1,000"}
            )
        ],
    )


def infinite_validation(runs: Runs) -> Case:
    """An infinite validation loss of the candidate."""
    cand = validated(runs[1], 0.0)
    values = cand.columns["validation_loss"].copy()
    values[np.flatnonzero(np.isfinite(values))[-2]] = np.inf
    return Case(
        base=[validated(runs[0], 0.0)],
        cand=[
            curve_from_arrays(
                cand.steps, cand.loss, rounding="nearest", columns={"validation_loss": values}
            )
        ],
    )


def last_validation(runs: Runs) -> Case:
    """A last validation loss 6 margins worse."""
    cand = validated(runs[1], 0.0)
    values = cand.columns["validation_loss"].copy()
    values[np.flatnonzero(np.isfinite(values))[-1]] += 6.0 * margin_of(runs[1])
    return Case(
        base=[validated(runs[0], 0.0)],
        cand=[
            curve_from_arrays(
                cand.steps, cand.loss, rounding="nearest", columns={"validation_loss": values}
            )
        ],
    )


def evaluated_apart(runs: Runs) -> Case:
    """Validation losses 5 margins worse, one step after the baseline's."""
    cand = validated(runs[1], 5.0)
    values = np.roll(cand.columns["validation_loss"], 1)
    moved = curve_from_arrays(
        cand.steps, cand.loss, rounding="nearest", columns={"validation_loss": values}
    )
    return Case(base=[validated(runs[0], 0.0)], cand=[moved])


def odd_rounding(runs: Runs) -> Case:
    """Losses cut down to multiples of 0.05, the candidate 1.3 margins worse before."""
    base, cand = runs[0].loss, raised(runs[1], 0.0, 1.3).loss
    return Case(
        base=[with_loss(runs[0], np.floor(base / 0.05) * 0.05)],
        cand=[with_loss(runs[1], np.floor(cand / 0.05) * 0.05)],
    )


def loose(policy: dict[str, object]) -> Build:
    """A policy that makes passing easy."""
    return lambda runs: Case(base=[runs[0]], cand=[runs[1]], policy={"margin": "1%", **policy})


FOUR = {"twin": "four honest candidates", "honest": several_good}
N = 1750

ATTACKS = (
    *(
        Attack(
            what=f"{margins} margins worse over the last {points} points but the last {back}",
            build=returned_late(points, back, margins),
            codes=(*ENDS, "CI_STRADDLES_MARGIN", "SPIKES_HIDE_GAP"),
            **RETURNED,
        )
        for points, back, margins in ((20, 2, 5), (28, 3, 8), (12, 2, 15))
    ),
    Attack(
        what="1.7 margins worse over the last 30 points, at 0.5 %",
        build=step_up_at_half_a_percent,
        codes=(*ENDS, "CI_STRADDLES_MARGIN"),
        **SMALL,
    ),
    *(
        Attack(
            what=f"a slow swing that ends high ({shape})",
            build=shaped(shape),
            codes=(*ENDS, "CI_STRADDLES_MARGIN"),
            **SMALL,
        )
        for shape in ("cosine", "two", "U")
    ),
    Attack(
        what="a second candidate run that is the first one, then NaN",
        build=bad_run(lambda run: nan_from(run, 0.85)),
        codes=("NONFINITE_CAND",),
        **FOUR,
    ),
    Attack(
        what="a second candidate run with NaN, under another seed",
        build=bad_run(lambda run: nan_from(run, 0.85), seed=9),
        codes=("NONFINITE_CAND",),
        **FOUR,
    ),
    Attack(
        what="a second candidate run 5 margins worse, under another seed",
        build=bad_run(lambda run: raised(run, 0.0, 5.0), seed=9),
        codes=(SAID,),
        **FOUR,
    ),
    Attack(
        what="one of four candidates 3 margins worse",
        build=bad_run(lambda run: raised(run, 0.0, 3.0), runs_in_all=4),
        codes=(SAID, *ENDS, "CI_STRADDLES_MARGIN"),
        **FOUR,
    ),
    Attack(
        what="one of four candidates 4 margins worse over the last 2 %",
        build=bad_run(lambda run: raised(run, 0.98, 4.0), runs_in_all=4),
        codes=(SAID, *ENDS),
        **FOUR,
    ),
    *(
        Attack(what=f"a replicate that is {words}", build=mixture(weights), codes=ASSUMED, **REAL)
        for words, weights in (
            ("the mean of two others", (0.5, 0.5)),
            ("0.9 of one and 0.1 of another", (0.9, 0.1)),
            ("2 of one minus another", (2.0, -1.0)),
        )
    ),
    Attack(
        what="the candidate's runs as controls of the baseline",
        build=candidates_as_controls,
        codes=ASSUMED,
        **CONTROL,
    ),
    Attack(what="a hole from 20 to 88 % of the run", build=hole(0.2, 0.88), codes=("DOWNSAMPLED",)),
    Attack(
        what="the candidate's last 12 points cut off",
        build=cand_is(lambda run: kept(run, slice(0, -12))),
        codes=("AS_OF",),
    ),
    Attack(
        what="other batches over the last 20 %",
        build=cand_is(lambda run: reordered(run, 0.2)),
        codes=("DATA_ORDER_MISMATCH",),
    ),
    Attack(
        what="the last 60 points are the baseline's own",
        build=last_points_of_the_baseline,
        codes=SAME,
    ),
    Attack(
        what="the baseline times 1.003",
        build=from_baseline(lambda run: 1.003 * run.loss),
        codes=SAME,
    ),
    Attack(
        what="the baseline and a ramp of half a margin",
        build=from_baseline(
            lambda run: run.loss + np.linspace(0.0, 0.5 * margin_of(run), len(run.loss))
        ),
        codes=SAME,
    ),
    Attack(
        what="the baseline with noise of 0.0003 nats",
        build=from_baseline(lambda run: noisy(run, 1, 3e-4).loss),
        codes=SAME,
    ),
    Attack(
        what="a candidate that is a fork, as its record says",
        build=recorded_fork,
        codes=("ARMS_SHARE_START",),
    ),
    Attack(
        what="6 % worse, all losses divided by 1.05",
        build=cand_is(lambda run: with_loss(run, raised(run, 0.3, 6.0).loss / 1.05)),
        codes=("START_DIFFERS",),
    ),
    Attack(
        what="worse validation losses at other steps",
        build=evaluated_apart,
        codes=("VALIDATION_NOT_COMPARED",),
        may_pass=True,
    ),
    Attack(
        what="an infinite validation loss",
        build=infinite_validation,
        codes=("VALIDATION_LOSS_WORSE",),
    ),
    Attack(
        what="the last validation loss 6 margins worse",
        build=last_validation,
        codes=("VALIDATION_LOSS_WORSE",),
    ),
    Attack(
        what="losses cut down to multiples of 0.05",
        build=odd_rounding,
        codes=("ROUNDED", *ENDS, "CI_STRADDLES_MARGIN"),
    ),
    Attack(
        what="a policy with a confidence of 50 %",
        build=loose({"confidence": 0.5}),
        codes=("POLICY_UNUSUAL",),
        may_pass=True,
    ),
    Attack(
        what="a policy with a window of 2 %",
        build=loose({"window_fraction": 0.02, "min_points": 20}),
        codes=("POLICY_UNUSUAL",),
        may_pass=True,
        honest=plain,
    ),
    Attack(
        what="a policy with run-to-run noise of nearly nothing",
        build=loose({"baseline_run_noise": "0.000001%", "candidate_run_noise": "0.000001%"}),
        codes=("POLICY_UNUSUAL",),
        may_pass=True,
    ),
)
