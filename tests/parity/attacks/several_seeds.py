"""Arms of several seeds, stated or not, and logs that show a part of a run: what hides a bad run,
and the honest runs that look alike.
"""

import dataclasses

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from tests.parity.attacks.case import Attack, Build, Case, Runs, kept, margin_of, raised, with_loss
from tests.parity.attacks.copies import STRICT, ema
from tests.parity.attacks.logs import cand_is

ABOVE = ("RUN_ABOVE_MARGIN",)
WIDTH = 51  # points of the mean that stands for the trend


def own_batches(run: Curve, number: int, stated: bool) -> Curve:
    """The run as one of another seed: its noise comes in another order, which is the same for every
    run of that seed.
    """
    trend = np.convolve(
        np.pad(run.loss, WIDTH // 2, mode="edge"), np.ones(WIDTH) / WIDTH, mode="valid"
    )
    noise = np.roll(run.loss - trend, 331 * number)
    # what rolls in from the end has no counterpart there
    noise[: 331 * number + WIDTH] *= number == 0
    own = with_loss(run, trend + noise, label=f"run of seed {number}", seed=number)
    return own if stated else dataclasses.replace(own, seed=0, seed_stated=False)


def three_seeds(runs: Runs, *, stated: bool) -> tuple[list[Curve], list[Curve]]:
    """Three seeds an arm, in another order in the candidate where they are not stated."""
    base = [own_batches(run, number, stated) for number, run in enumerate(runs[:3])]
    cand = [own_batches(run, number, stated) for number, run in enumerate(runs[3:6])]
    return base, cand if stated else [cand[k] for k in (1, 2, 0)]


def seeds(stated: bool, worst: float = 0.0, start: float = 0.0) -> Build:
    """Three seeds an arm, the candidate's last run worse by so many margins from `start` on."""

    def build(runs: Runs) -> Case:
        base, cand = three_seeds(runs, stated=stated)
        last = dataclasses.replace(cand[2], loss=raised(cand[2], start, worst).loss)
        return Case(base=base, cand=[*cand[:2], last])

    return build


def one_run_thrice(runs: Runs) -> Case:
    """Three seeds of the baseline, one run of the candidate given three times, no seeds stated, and
    a policy that wants noise measured.
    """
    base, cand = three_seeds(runs, stated=False)
    return Case(
        base=base,
        cand=[cand[0], *(with_loss(cand[0], cand[0].loss + 1e-3 * k) for k in (1, 2))],
        policy=STRICT,
    )


def three_honest_reruns(runs: Runs) -> Case:
    """Three reruns an arm without seeds, under a policy that wants noise measured."""
    return Case(
        base=[dataclasses.replace(run, seed_stated=False) for run in runs[:3]],
        cand=runs[3:6],
        policy=STRICT,
    )


def best_of_each(interval: int) -> Build:
    """A candidate that is one margin worse, of which the best step of each interval was kept."""

    def build(runs: Runs) -> Case:
        worse = raised(runs[1], 0.0, 1.0)
        gap = (worse.loss - runs[0].loss)[: len(worse.loss) // interval * interval].reshape(
            -1, interval
        )
        at = np.arange(len(gap)) * interval + gap.argmin(axis=1)
        return Case(base=[runs[0]], cand=[kept(worse, at)])

    return build


def thinned(runs: Runs) -> Case:
    """Every tenth step of both runs."""
    return Case(base=[kept(runs[0], slice(9, None, 10))], cand=[kept(runs[1], slice(9, None, 10))])


def means_of(run: Curve, count: int) -> Curve:
    """The means over so many steps, at the last step of each."""
    n = len(run.loss) // count * count
    return curve_from_arrays(
        run.steps[count - 1 : n : count],
        run.loss[:n].reshape(-1, count).mean(axis=1),
        rounding=run.rounding,
    )


def means_in(baseline: int, candidate: int) -> Build:
    """Logs of every tenth step: the step's own loss (1), or a mean over ten."""

    def build(runs: Runs) -> Case:
        arms = [
            means_of(run, 10) if count > 1 else kept(run, slice(9, None, 10))
            for run, count in zip(runs[:2], (baseline, candidate), strict=True)
        ]
        return Case(base=[arms[0]], cand=[arms[1]])

    return build


def smoothed_baseline(runs: Runs) -> Case:
    """A baseline averaged with weight 0.99, a candidate 1.5 margins worse."""
    return Case(base=[ema(runs[0], 0.99)], cand=[raised(runs[1], 0.0, 1.5)])


def few_points_with_nan(number: int) -> Build:
    """Logs of every 29th step, of which the candidate's window has so many NaN where it is
    worst.
    """

    def build(runs: Runs) -> Case:
        base, cand = (kept(run, slice(8, None, 29)) for run in runs[:2])
        loss = cand.loss.copy()
        loss[-8 : -8 + number] = np.nan
        return Case(base=[base], cand=[with_loss(cand, loss)])

    return build


def three_decimals(runs: Runs) -> Case:
    """Both logs with 3 decimals."""
    return Case(
        base=[with_loss(runs[0], runs[0].loss.round(3))],
        cand=[with_loss(runs[1], runs[1].loss.round(3))],
    )


def starts_and_ends_short(runs: Runs) -> Case:
    """A log that starts at 5 % of the run, and one that ends 5 steps early."""
    return Case(base=[kept(runs[0], slice(88, None))], cand=[kept(runs[1], slice(0, -5))])


STATED = {"twin": "three honest seeds", "honest": seeds(True)}
UNSTATED = {"twin": "three honest seeds that are not stated", "honest": seeds(False)}
SMOOTH = {"twin": "means over ten steps in both arms", "honest": means_in(10, 10)}

ATTACKS = (
    Attack(
        what="one of three seeds 2 margins worse", build=seeds(True, 2.0), codes=ABOVE, **STATED
    ),
    Attack(
        what="one of three seeds 3 margins worse over the last 10 %",
        build=seeds(True, 3.0, 0.9),
        codes=ABOVE,
        **STATED,
    ),
    Attack(
        what="one of three unstated seeds 2 margins worse",
        build=seeds(False, 2.0),
        codes=ABOVE,
        **UNSTATED,
    ),
    Attack(
        what="one run three times against three unstated seeds",
        build=one_run_thrice,
        codes=("SEEDS_UNSTATED", "RUN_NOISE_ASSUMED"),
        twin="three reruns without seeds",
        honest=three_honest_reruns,
    ),
    Attack(
        what="the best step of each ten, one margin worse",
        build=best_of_each(10),
        codes=("DOWNSAMPLED",),
        twin="every tenth step of both arms",
        honest=thinned,
    ),
    Attack(
        what="means over ten steps in the candidate alone",
        build=means_in(1, 10),
        codes=("ARM_AVERAGED",),
        **SMOOTH,
    ),
    Attack(
        what="means over ten steps in the baseline alone",
        build=means_in(10, 1),
        codes=("ARM_AVERAGED",),
        **SMOOTH,
    ),
    Attack(
        what="a baseline averaged with weight 0.99, 1.5 margins worse",
        build=smoothed_baseline,
        codes=("ARM_AVERAGED",),
        **SMOOTH,
    ),
    Attack(
        what="two NaN among twelve points",
        build=few_points_with_nan(2),
        codes=("NONFINITE_DROPPED",),
        twin="both logs with 3 decimals",
        honest=three_decimals,
    ),
    Attack(
        what="every seventh step 10 margins worse",
        build=cand_is(
            lambda run: with_loss(
                run, run.loss + 10.0 * margin_of(run) * (np.arange(len(run.loss)) % 7 == 0)
            )
        ),
        codes=(
            "GAP_EXCEEDS_MARGIN",
            "ENDS_ABOVE_MARGIN",
            "CI_STRADDLES_MARGIN",
            "UNSTABLE",
            "SPIKES_HIDE_GAP",
            "CANDIDATE_UNSTABLE",
        ),
        twin="a log that starts at 5 %, and one that ends 5 steps early",
        honest=starts_and_ends_short,
    ),
)
