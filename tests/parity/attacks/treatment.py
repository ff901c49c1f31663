"""Candidates that did not train with their recipe, and what else a record says or leaves out."""

import dataclasses
import math

import numpy as np

from parity import Curve
from tests.parity.attacks.case import Attack, Build, Case, Runs, with_loss

FIRST = 11.0712  # not ln V of a vocabulary that is a multiple of 64


def started(run: Curve, first: float, recipe: str) -> Curve:
    """The run with another first loss and a recorded recipe."""
    loss = run.loss.copy()
    loss[0] = first
    return with_loss(run, loss, recipe=recipe)


def starts(first: float, second: float) -> Build:
    """Both arms with recorded recipes and first losses."""
    return lambda runs: Case(base=[started(runs[0], first, "bf16")], cand=[started(runs[1], second, "mxfp8")])


def uniform_start(runs: Runs) -> Case:
    """Both arms begin at ln 50,304, as a model does whose output layer starts at zero."""
    return starts(round(math.log(50_304), 4), round(math.log(50_304), 4))(runs)


def swapped(runs: Runs) -> Case:
    """The files of baseline and candidate swapped: the record of each has the other's precision."""
    base, cand = starts(FIRST, FIRST + 0.002)(runs).base[0], starts(FIRST, FIRST + 0.002)(runs).cand[0]
    return Case(base=[cand], cand=[base], names=("bf16", "mxfp8"))


def in_place(runs: Runs) -> Case:
    """The same files in their places."""
    return dataclasses.replace(starts(FIRST, FIRST + 0.002)(runs), names=("bf16", "mxfp8"))


def loaded(share: float, steps: int) -> Build:
    """Weights are loaded, as the policy says; the candidate begins so much worse (or better) and recovers over so many steps."""

    def build(runs: Runs) -> Case:
        loss = runs[1].loss * (1.0 + share * np.exp(-np.arange(len(runs[1].loss)) / steps))
        return Case(base=[runs[0]], cand=[with_loss(runs[1], loss)], policy={"margin": "1%", "start": "loaded"})

    return build


ATTACKS = (
    Attack(
        what="all losses divided by 1.05, weights loaded",
        build=loaded(-0.05, 10**9),
        codes=("START_DIFFERS",),
        twin="loaded weights that begin 5.6 % worse in another precision and recover",
        honest=loaded(0.056, 40),
    ),
    Attack(
        what="a rerun of the baseline under another recipe",
        build=starts(FIRST, FIRST),
        codes=("TREATMENT_UNSHOWN",),
        twin="first losses 0.002 nats apart",
        honest=starts(FIRST, FIRST + 0.002),
    ),
    Attack(
        what="a rerun of the baseline under another recipe, in single precision",
        build=starts(float(np.float32(math.pi)), float(np.float32(math.pi))),
        codes=("TREATMENT_UNSHOWN",),
        twin="both begin at ln V",
        honest=uniform_start,
    ),
    Attack(what="baseline and candidate swapped", build=swapped, codes=("RECIPE_CONTRADICTED",), twin="in their places", honest=in_place),
)
