"""What is done to a pair of training runs so that a rule of the decision holds, each by its name.

A change says in its name what is done; it edits a `Pair` in place, and two changes can be made one
after the other. Together they reach every rule of the table (`test_precedence.py`).
"""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from parity.judging.curves.curve import Curve
from tests.parity.conftest import synthetic
from tests.parity.judging.precedence.pair import (
    MARGIN,
    STEPS,
    Losses,
    Pair,
    kept,
    rebuilt,
    run,
    shuffled,
    smoothed,
    with_column,
    with_facts,
    with_loss,
)

Change = Callable[[Pair], None]
CHANGES: dict[str, Change] = {}


def change(name: str) -> Callable[[Change], Change]:
    """Register what is done under its name."""

    def register(edit: Change) -> Change:
        CHANGES[name] = edit
        return edit

    return register


def _candidate(name: str, edit: Callable[[Losses], Losses]) -> None:
    """A change of the losses of every run of the candidate."""

    def apply(pair: Pair) -> None:
        pair.cand = [with_loss(curve, edit) for curve in pair.cand]

    CHANGES[name] = apply


def _both(name: str, edit: Callable[[Losses], Losses]) -> None:
    """A change of the losses of all runs."""

    def apply(pair: Pair) -> None:
        pair.base = [with_loss(curve, edit) for curve in pair.base]
        pair.cand = [with_loss(curve, edit) for curve in pair.cand]

    CHANGES[name] = apply


def _policy(name: str, **policy: object) -> None:
    """A change of the policy."""

    def apply(pair: Pair) -> None:
        pair.policy |= policy

    CHANGES[name] = apply


def _facts(name: str, base: dict[str, str], cand: dict[str, str]) -> None:
    """Facts on record of the runs of both arms."""

    def apply(pair: Pair) -> None:
        pair.base = [with_facts(curve, **base) for curve in pair.base]
        pair.cand = [with_facts(curve, **cand) for curve in pair.cand]

    CHANGES[name] = apply


def _from(first: float, size: float, last: float = 1.0) -> Callable[[Losses], Losses]:
    """Worse by a number of margins from one share of the run to another."""

    def edit(loss: Losses) -> Losses:
        n = len(loss)
        loss[round(first * n) : round(last * n)] += size * MARGIN
        return loss

    return edit


def _ramp(first: float, size: float) -> Callable[[Losses], Losses]:
    """Worse by a number of margins at the end of a ramp."""

    def edit(loss: Losses) -> Losses:
        n = len(loss)
        start = round(first * n)
        loss[start:] += size * MARGIN * np.linspace(0.0, 1.0, n - start)
        return loss

    return edit


def _spikes(share: float, height: float) -> Callable[[Losses], Losses]:
    """Single points in the last fifth that are higher by a number of nats."""

    def edit(loss: Losses) -> Losses:
        n = len(loss)
        places = np.arange(round(0.81 * n), round(0.98 * n))
        chosen = np.random.default_rng(3).permutation(places)[: round(share * 0.2 * n)]
        loss[chosen] += height
        return loss

    return edit


def _raised(places: Iterable[int], height: float) -> Callable[[Losses], Losses]:
    """Single points that are higher by a number of nats."""

    def edit(loss: Losses) -> Losses:
        loss[[place for place in places if place < len(loss)]] += height
        return loss

    return edit


def _nan(places: slice) -> Callable[[Losses], Losses]:
    """NaN at some points."""

    def edit(loss: Losses) -> Losses:
        loss[places] = np.nan
        return loss

    return edit


def _start(size: float, decay: float) -> Callable[[Losses], Losses]:
    """Higher at the first step (nats), and less from there on."""
    return lambda loss: loss + size * np.exp(-np.arange(len(loss)) / decay)


def _own_noise(loss: Losses) -> Losses:
    noise = np.random.default_rng(17).normal(0.0, 0.06, len(loss))
    return loss + noise - 4.0 * MARGIN


_candidate("candidate 2 % worse", lambda loss: loss + 2.0 * MARGIN)
_candidate("candidate 8 % worse", lambda loss: loss + 8.0 * MARGIN)
_candidate("candidate 0.8 margins worse", lambda loss: loss + 0.8 * MARGIN)
_candidate("candidate at the margin", lambda loss: loss + MARGIN)
_candidate("candidate 2 % better", lambda loss: loss - 2.0 * MARGIN)
_candidate("candidate 6 % better", lambda loss: loss - 6.0 * MARGIN)
_candidate("candidate worse over its last tenth of the window", _from(0.98, 12.0))
_candidate("candidate 4 margins worse in the last fifth of the window", _from(0.96, 4.0))
_candidate("candidate 1.6 margins worse in the last half of the window", _from(0.9, 1.6))
_candidate("candidate worse at its last points", _from(0.996, 6.0))
_candidate("candidate better at its last points", _from(0.996, -6.0))
_candidate("candidate drifts to two margins", _ramp(0.7, 2.2))
_candidate("candidate drifts to 1.2 margins", _ramp(0.75, 1.2))
_candidate("candidate drifts far away", _ramp(0.85, 30.0))
_candidate("candidate's losses in bits", lambda loss: loss * 1.4427)
_candidate("candidate's log holds means of 20 steps", lambda loss: smoothed(loss, 20))
_candidate("candidate's log holds means of 100 steps", lambda loss: smoothed(loss, 100))
_candidate("candidate read other batches", shuffled)
_candidate("candidate read other batches in the last third", lambda loss: shuffled(loss, 667))
_candidate("candidate ends in NaN", _nan(slice(-1, None)))
_candidate("candidate has NaN at 0.5 % of its steps", _nan(slice(10, 15)))
_candidate("candidate has NaN at 2 points near the end", _nan(slice(-30, -28)))
_candidate("candidate has NaN at 9 points", _nan(slice(850, 859)))
_candidate("candidate's batch noise is its own in part and it is better", _own_noise)
_candidate("candidate spikes often", _spikes(0.14, 2.0))
_candidate("candidate spikes at 8 points of the window", _raised(range(815, 990, 22), 1.5))
_candidate("candidate spikes at one point", _raised((905,), 8.0))
_candidate("candidate spikes a little at 8 points", _raised(range(815, 990, 22), 0.3))
_candidate("candidate begins 4 % behind and catches up", _start(0.42, 250.0))
_candidate("candidate begins 4 % behind", _start(0.42, 12.0))
_candidate("candidate begins 4 % ahead", _start(-0.42, 12.0))
_candidate("candidate begins 1 % ahead", _start(-0.11, 12.0))
_both("both spike often", _spikes(0.16, 2.0))
_both("both logs hold means of 60 steps", lambda loss: smoothed(loss, 60))
_both("losses with one decimal", lambda loss: loss.round(1))
_both("losses with two decimals", lambda loss: loss.round(2))
_both("losses of a hundred nats", lambda loss: 40.0 * loss)
_both("losses near zero", lambda loss: 0.01 * loss)
_both("losses below zero", lambda loss: loss - 8.0)
_policy("assumed noise is rejected", assumed_noise="reject")
_policy("margin of 8 %", margin="8%")
_policy("margin of 0.1 %", margin="0.1%")
_policy("margin in tokens without a slope", margin="5% tokens")
_policy("margin of the noise floor", margin=None, profile="noise-floor")
_policy("loss of another kind", loss_unit="other")
_policy("schedule not stated", schedule="unstated")
_policy("arms unpaired", pairing="unpaired")
_policy("order stated", pairing="stated")
_policy("two-sided margin", two_sided=True)
_facts("other engine", {"engine": "maxtext"}, {"engine": "torchtitan"})
_facts("other data", {"data_digest": "a" * 64}, {"data_digest": "b" * 64})
_facts("equal data on record", {"data_digest": "a" * 64}, {"data_digest": "a" * 64})
_facts("small model", {"parameters": "4000000"}, {"parameters": "4000000"})
_facts(
    "columns of two quantities",
    {"loss_name": "total_loss", "loss_meaning": "total loss"},
    {"loss_name": "lm loss", "loss_meaning": "language-model loss"},
)
_facts("losses to base 2 in the source", {"loss_base": "2"}, {"loss_base": "2"})
_facts("candidate's log has lines that were not read", {}, {"lines_unread": "12"})
_facts("trained weights at the start", {"start": "loaded"}, {"start": "loaded"})
_facts("candidate forked by its record", {}, {"forked_from": "a run of the baseline"})


@change("candidate logs nothing")
def _(pair: Pair) -> None:
    pair.cand = [rebuilt(curve, np.arange(0), np.empty(0), columns={}) for curve in pair.cand]


@change("candidate counts steps from 1")
def _(pair: Pair) -> None:
    pair.cand = [rebuilt(curve, curve.steps + 1, curve.loss) for curve in pair.cand]


@change("candidate counts 512 a step")
def _(pair: Pair) -> None:
    pair.cand = [rebuilt(curve, (curve.steps + 1) * 512, curve.loss) for curve in pair.cand]


@change("arms log in turn")
def _(pair: Pair) -> None:
    pair.base = [kept(curve, slice(0, None, 2)) for curve in pair.base]
    pair.cand = [kept(curve, slice(1, None, 2)) for curve in pair.cand]


@change("steps beyond a quadrillion")
def _(pair: Pair) -> None:
    pair.base = [rebuilt(curve, (curve.steps + 1) * 2 * 10**12, curve.loss) for curve in pair.base]
    pair.cand = [rebuilt(curve, (curve.steps + 1) * 2 * 10**12, curve.loss) for curve in pair.cand]
    pair.options["planned_steps"] = STEPS * 2 * 10**12


@change("every fortieth step")
def _(pair: Pair) -> None:
    pair.base = [kept(curve, slice(None, None, 40)) for curve in pair.base]
    pair.cand = [kept(curve, slice(None, None, 40)) for curve in pair.cand]


@change("every eighteenth step")
def _(pair: Pair) -> None:
    pair.base = [kept(curve, slice(None, None, 18)) for curve in pair.base]
    pair.cand = [kept(curve, slice(None, None, 18)) for curve in pair.cand]


@change("candidate lacks a tenth of the window")
def _(pair: Pair) -> None:
    pair.cand = [kept(curve, (curve.steps < 850) | (curve.steps >= 872)) for curve in pair.cand]


@change("candidate lacks five points in a row")
def _(pair: Pair) -> None:
    pair.cand = [kept(curve, (curve.steps < 850) | (curve.steps >= 855)) for curve in pair.cand]


@change("candidate is a sample of its run")
def _(pair: Pair) -> None:
    chosen = np.sort(np.random.default_rng(0).choice(STEPS - 1, 860, replace=False))
    pair.cand = [
        kept(curve, np.append(chosen[chosen < len(curve.steps) - 1], len(curve.steps) - 1))
        for curve in pair.cand
    ]


@change("candidate has rows without a loss")
def _(pair: Pair) -> None:
    pair.cand = [
        with_facts(kept(curve, curve.steps % 8 != 3), steps_without_loss="125")
        for curve in pair.cand
    ]


@change("logs begin late")
def _(pair: Pair) -> None:
    pair.base = [kept(curve, curve.steps >= 760) for curve in pair.base]
    pair.cand = [kept(curve, curve.steps >= 760) for curve in pair.cand]


@change("candidate stops at 80 %")
def _(pair: Pair) -> None:
    pair.cand = [kept(curve, slice(0, 4 * len(curve.steps) // 5)) for curve in pair.cand]


@change("plan of 70 % of the runs")
def _(pair: Pair) -> None:
    pair.options["planned_steps"] = 7 * STEPS // 10


@change("plan of 94 % of the runs")
def _(pair: Pair) -> None:
    pair.options["planned_steps"] = 94 * STEPS // 100


@change("plan of 93 %, after which the candidate is worse")
def _(pair: Pair) -> None:
    pair.options["planned_steps"] = 93 * STEPS // 100
    pair.cand = [with_loss(curve, _from(0.94, 10.0)) for curve in pair.cand]


@change("baseline ends in NaN")
def _(pair: Pair) -> None:
    pair.base = [with_loss(curve, _nan(slice(-1, None))) for curve in pair.base]


@change("baseline is constant in the window")
def _(pair: Pair) -> None:
    def flat(loss: Losses) -> Losses:
        loss[round(0.75 * len(loss)) :] = 2.8
        return loss

    pair.base = [with_loss(curve, flat) for curve in pair.base]


@change("candidate recorded another recipe than is stated")
def _(pair: Pair) -> None:
    pair.cand = [with_facts(curve, recorded_recipe="bf16") for curve in pair.cand]


@change("candidate nvfp4 went to bf16 in the window")
def _(pair: Pair) -> None:
    pair.names = (pair.names[0], "nvfp4")
    pair.cand = [
        dataclasses.replace(curve, recipe="nvfp4 then bf16 from step 850") for curve in pair.cand
    ]


@change("candidate nvfp4 was bf16 throughout")
def _(pair: Pair) -> None:
    pair.names = (pair.names[0], "nvfp4")
    pair.cand = [dataclasses.replace(curve, recipe="bf16") for curve in pair.cand]


@change("recipes on record and an equal first loss")
def _(pair: Pair) -> None:
    pair.base = [dataclasses.replace(curve, recipe="bf16") for curve in pair.base]
    first = pair.base[0].loss[0] if len(pair.base[0].loss) else 0.0

    def begin(loss: Losses) -> Losses:
        loss[:1] = first
        return loss

    pair.cand = [
        dataclasses.replace(with_loss(curve, begin), recipe="nvfp4_no_sr") for curve in pair.cand
    ]


@change("candidate shares the baseline's first fifth")
def _(pair: Pair) -> None:
    start = pair.base[0].loss[: STEPS // 5]

    def fork(loss: Losses) -> Losses:
        loss[: len(start)] = start[: len(loss)]
        return loss

    pair.cand = [with_loss(curve, fork) for curve in pair.cand]


@change("candidate is the baseline's log")
def _(pair: Pair) -> None:
    base = pair.base[0]
    pair.cand = [
        rebuilt(curve, base.steps, base.loss, columns=dict(base.columns)) for curve in pair.cand
    ]


@change("candidate is the baseline's log from 10 % on")
def _(pair: Pair) -> None:
    base = pair.base[0]

    def late(loss: Losses) -> Losses:
        if len(loss) == len(base.loss):
            loss[len(loss) // 10 :] = base.loss[len(loss) // 10 :]
        return loss

    pair.cand = [with_loss(curve, late) for curve in pair.cand]


@change("candidate's log holds means of other batches")
def _(pair: Pair) -> None:
    pair.cand = [
        with_loss(curve, lambda loss: smoothed(shuffled(loss), 100)) for curve in pair.cand
    ]


@change("other code of one recipe, with equal losses")
def _(pair: Pair) -> None:
    CHANGES["candidate is the baseline's log"](pair)
    pair.options["compares"] = "revision"


@change("other code of one recipe")
def _(pair: Pair) -> None:
    pair.options["compares"] = "revision"


@change("other learning rates")
def _(pair: Pair) -> None:
    def rates(peak: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda steps: peak * (0.55 + 0.45 * np.cos(np.pi * steps / max(1, steps.max())))

    pair.base = [with_column(curve, "learning_rate", rates(1e-3)) for curve in pair.base]
    pair.cand = [with_column(curve, "learning_rate", rates(1.5e-3)) for curve in pair.cand]


@change("learning rates that differ by 0.4 %")
def _(pair: Pair) -> None:
    def rates(peak: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda steps: peak * (0.55 + 0.45 * np.cos(np.pi * steps / max(1, steps.max())))

    pair.base = [with_column(curve, "learning_rate", rates(1e-3)) for curve in pair.base]
    pair.cand = [with_column(curve, "learning_rate", rates(1.004e-3)) for curve in pair.cand]


@change("candidate's gradient norm is 40 times as large")
def _(pair: Pair) -> None:
    pair.base = [
        with_column(curve, "grad_norm", lambda at: 1.0 + 0.1 * np.sin(at)) for curve in pair.base
    ]
    pair.cand = [
        with_column(curve, "grad_norm", lambda at: 40.0 + 4.0 * np.sin(at)) for curve in pair.cand
    ]


@change("candidate's validation loss is worse before the window")
def _(pair: Pair) -> None:
    def losses(worse: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda at: (
            np.where(at % 100 == 0, 2.8 + worse, np.nan) + np.where(at > 750, np.nan, 0.0)
        )

    pair.base = [with_column(curve, "validation_loss", losses(0.0)) for curve in pair.base]
    pair.cand = [with_column(curve, "validation_loss", losses(0.4)) for curve in pair.cand]


@change("candidate went back from a rise")
def _(pair: Pair) -> None:
    pair.cand = [
        dataclasses.replace(
            curve, completeness=dataclasses.replace(curve.completeness, rolled_back=0.6)
        )
        for curve in pair.cand
    ]


@change("a short rerun of the candidate diverged")
def _(pair: Pair) -> None:
    reruns = [kept(run(7), slice(0, 600)), kept(run(8), slice(0, 600))]
    reruns[1] = with_loss(reruns[1], _ramp(0.7, 60.0))
    pair.options["short_reruns"] = {pair.names[1]: reruns}


@change("two runs an arm without seeds, all of other batches")
def _(pair: Pair) -> None:
    pair.base = [*pair.base, run(11, 61)]
    pair.cand = [
        dataclasses.replace(curve, loss=shuffled(curve.loss.copy())) for curve in pair.cand
    ]
    pair.cand = [*pair.cand, run(12, 62)]
    pair.base = [dataclasses.replace(curve, seed_stated=False) for curve in pair.base]
    pair.cand = [dataclasses.replace(curve, seed_stated=False) for curve in pair.cand]


@change("seeds that no run of the other arm has")
def _(pair: Pair) -> None:
    pair.cand = [dataclasses.replace(curve, seed=3, seed_stated=True) for curve in pair.cand]


@change("a second pair, whose candidate is 3 margins worse")
def _(pair: Pair) -> None:
    pair.base = [*pair.base, dataclasses.replace(run(21, 71), seed=1, seed_stated=True)]
    worse = with_loss(run(22, 71), lambda loss: loss + 3.0 * MARGIN)
    pair.cand = [*pair.cand, dataclasses.replace(worse, seed=1, seed_stated=True)]


@change("very large batches")
def _(pair: Pair) -> None:
    pair.base = [
        synthetic(STEPS, seed=1 + place, batch_sd=0.006, pair_sd=0.0104)
        for place, _ in enumerate(pair.base)
    ]
    pair.cand = [
        synthetic(STEPS, seed=2 + place, batch_sd=0.006, pair_sd=0.0104)
        for place, _ in enumerate(pair.cand)
    ]


@change("batches so large that no part shows them")
def _(pair: Pair) -> None:
    def quiet(seed: int) -> Curve:
        return synthetic(STEPS, seed=seed, batch_sd=0.004, pair_sd=0.02)

    pair.base = [quiet(1 + place) for place, _ in enumerate(pair.base)]
    pair.cand = [quiet(2 + place) for place, _ in enumerate(pair.cand)]


@change("large batches of other data and losses with one decimal")
def _(pair: Pair) -> None:
    def coarse(seed: int) -> Curve:
        quiet = synthetic(STEPS, seed=seed, batch_seed=seed, batch_sd=0.02)
        return with_loss(quiet, lambda loss: loss.round(1))

    pair.base = [coarse(1 + 2 * place) for place, _ in enumerate(pair.base)]
    pair.cand = [coarse(2 + 2 * place) for place, _ in enumerate(pair.cand)]


@change("candidate's rows have a loss every second step")
def _(pair: Pair) -> None:
    pair.cand = [
        with_facts(kept(curve, slice(1, None, 2)), steps_without_loss="500") for curve in pair.cand
    ]
