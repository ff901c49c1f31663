"""The answer of an analysis as a document: the parts of the effect with intervals, what is named, and what stays unexplained.

named         the smallest guilty clusters, each with what switching it off gains and what it costs alone
interaction   what switching all m named clusters off gains, minus the sum of what switching each off gains: (1 - m) U - W + sum W_i
unexplained   what is left of the effect with all of them off: W - E

with U the forks with everything on, E off, W_i without the cluster i and W without all named ones (`parity.why.forks.contrast`). The effect
is the sum of the named parts, their interaction and what is unexplained.

The effect is that of everything on after the checkpoint, not the gap of the full runs: what builds up before the checkpoint is not in
the weights. The sign of an effect is reported, and naming is two-sided: weights that have adapted to a fault may end worse without it.
"""

from __future__ import annotations

import math
from typing import TypedDict

import numpy as np

from parity.why.estimate import Estimate, estimate
from parity.why.forks import Ends, contrast, effect
from parity.why.gradients import SUMS, gradient_error
from parity.why.halving import Guilt
from parity.why.parts import split
from parity.why.search import Results, Search, arm_losses, gradient_batches, instant_rows, search, steps_spent
from parity.why.setup import Setup

CONFIDENCE = 0.95


class EstimateDocument(TypedDict):
    """A value in nats with its 95 % interval."""

    value: float
    low: float
    high: float


class ClusterDocument(TypedDict):
    """Units that were tested together, by falling weight. `adjusted` is the p-value with familywise control."""

    units: list[str]
    without: EstimateDocument
    alone: EstimateDocument
    p: float
    adjusted: float
    guilty: bool


class NoiseDocument(TypedDict):
    """The standard deviation (nats) between forks that differ in random numbers only, with all units on and with all off.

    What it rests on is that of the larger one, which counts for the forks between them.
    """

    on: float
    off: float
    df: float
    parents: int
    enough: bool


class PartDocument(TypedDict):
    """The forward part of one unit, or what switching an ingredient off gains; an ingredient has no `alone`."""

    name: str
    without: EstimateDocument
    alone: EstimateDocument | None


class InstantDocument(TypedDict):
    """The loss that each unit costs at once, on the same weights and held-out batches."""

    whole: EstimateDocument
    units: list[PartDocument]
    ingredients: list[PartDocument]
    unexplained_without: EstimateDocument
    unexplained_alone: EstimateDocument


class GradientDocument(TypedDict):
    """How far a unit alone (name `all`: all of them) moves the gradient of the weights from that of bf16.

    `error` is the relative error with its interval, `systematic` the part of it that does not average out over rounding seeds.
    """

    name: str
    error: EstimateDocument
    systematic: float
    cosine: float


class Answer(TypedDict):
    """What an analysis has measured so far; parts that are not complete are null. `effect` is everything on minus everything off, by forks.

    `interaction` is null where fewer than two clusters are named. The effect is the sum of what switching each named cluster off gains, of
    the interaction, and of what is `unexplained`.

    `untested` are parts of guilty clusters that were not tested: `stopped` says whether the largest cost was reached.
    """

    complete: bool
    steps_spent: float
    effect: EstimateDocument | None
    noise: NoiseDocument | None
    named: list[ClusterDocument]
    tested: list[ClusterDocument]
    untested: list[list[str]]
    interaction: EstimateDocument | None
    unexplained: EstimateDocument | None
    stopped: bool
    instant: InstantDocument | None
    gradients: list[GradientDocument] | None


def answer(setup: Setup, results: Results) -> Answer:
    """What these results say. Raises ValueError for forks that are equal or not finite."""
    forks = search(setup, results)
    guilt = forks.guilt
    instant, gradients = _instant(setup, results), _gradients(setup, results)
    tested = _tested(forks, guilt) if guilt else []
    named = [each for each in tested if guilt and tuple(each["units"]) in guilt.named]
    return {
        "complete": not forks.pending and instant is not None and gradients is not None,
        "steps_spent": steps_spent(setup, results),
        "effect": estimate_document(forks.effects[forks.tree.units].without) if guilt else None,
        "noise": _noise(forks.ends) if forks.ends else None,
        "named": named,
        "tested": tested,
        "untested": [list(each) for each in guilt.untested] if guilt else [],
        "interaction": _interaction(setup, results, forks),
        "unexplained": _unexplained(forks),
        "stopped": forks.stopped,
        "instant": instant,
        "gradients": gradients,
    }


def estimate_document(own: Estimate) -> EstimateDocument:
    """An estimate with its interval."""
    low, high = own.bounds(CONFIDENCE)
    return {"value": own.value, "low": low, "high": high}


def _tested(forks: Search, guilt: Guilt) -> list[ClusterDocument]:
    return [
        {
            "units": list(each.cluster),
            "without": estimate_document(forks.effects[each.cluster].without),
            "alone": estimate_document(forks.effects[each.cluster].alone),
            "p": each.p,
            "adjusted": each.adjusted,
            "guilty": each.guilty,
        }
        for each in guilt.tested
    ]


def _noise(ends: Ends) -> NoiseDocument:
    larger = ends.noise
    own: NoiseDocument = {
        "on": ends.on.noise.sd,
        "off": ends.off.noise.sd,
        "df": larger.df,
        "parents": larger.parents,
        "enough": larger.is_enough,
    }
    return own


def _interaction(setup: Setup, results: Results, forks: Search) -> EstimateDocument | None:
    if forks.guilt is None or forks.ends is None or forks.rest is None or len(forks.guilt.named) < 2:
        return None
    losses = (arm_losses(setup, results, forks.tree, "without", cluster, setup.noise_draws) for cluster in forks.guilt.named)
    arms = [(1.0, forks.ends.between(each)) for each in losses]
    return estimate_document(contrast([(1.0 - len(arms), forks.ends.on), (-1.0, forks.rest), *arms]))


def _unexplained(forks: Search) -> EstimateDocument | None:
    if forks.ends is None or forks.rest is None:
        return None
    if forks.rest is forks.ends.off:  # everything is named: nothing is left
        return {"value": 0.0, "low": 0.0, "high": 0.0}
    return estimate_document(effect(forks.rest, forks.ends.off))


def _instant(setup: Setup, results: Results) -> InstantDocument | None:
    rows = {each.key.removeprefix("instant/"): results.get(each.key) for each in instant_rows(setup)}
    losses = {name: np.asarray(values, np.float64) for name, values in rows.items() if values is not None}
    if len(losses) < len(rows):
        return None
    units = split(losses, setup.units)
    gains = {name: estimate(losses["on"] - losses[f"without {name}"]) for name in setup.ingredients}
    return {
        "whole": estimate_document(units.whole),
        "units": [
            {"name": part.name, "without": estimate_document(part.without), "alone": estimate_document(part.alone)} for part in units.parts
        ],
        "ingredients": [{"name": name, "without": estimate_document(gain), "alone": None} for name, gain in gains.items()],
        "unexplained_without": estimate_document(units.unexplained_without),
        "unexplained_alone": estimate_document(units.unexplained_alone),
    }


def _gradients(setup: Setup, results: Results) -> list[GradientDocument] | None:
    keys = [each.key for each in gradient_batches(setup)]
    if any(key not in results for key in keys):
        return None
    batches = [results[key] for key in keys]
    documents: list[GradientDocument] = []
    for name in ("all", *setup.units) if batches else ():
        sums = np.array([each[name] for each in batches], np.float64).reshape(len(batches), 1, len(SUMS))
        error = gradient_error(sums)
        low, high = error.squared_error.bounds(CONFIDENCE)
        own: EstimateDocument = {"value": error.relative_error, "low": math.sqrt(max(0.0, low)), "high": math.sqrt(max(0.0, high))}
        documents.append({"name": name, "error": own, "systematic": error.systematic, "cosine": error.cosine})
    return documents
