"""Did the candidate train with its recipe? What the first loss and the names of the arms say
against it.

equal start  the logs of both arms begin at step 0 or 1 with the same loss, to the last of at least
             four decimals, though their recorded recipes compute the forward pass in other numbers.
             Reruns of one recipe begin so: equal weights, batch and arithmetic. Two precisions
             differ by 0.0019 nats (emulated MXFP8 and NVFP4, 0.1 M parameters) to 0.35 (8B on
             GB200)
no evidence  where the first loss is ln V, V a whole number (a multiple of 64 where the digits do
             not tell): a model whose output layer starts at zero predicts that in every precision,
             as the public reruns of the 124 M model do (10.8258 = ln 50,304); where both logs have
             gradient norms of that step and they differ; and where the run states what its first
             steps compute in
other name   an arm is called by one precision, or its recipe is stated in one, and its runs
             recorded another: the arms may be swapped

Can fail: a first loss that was changed, and recipes that nobody recorded. Later steps say nothing:
reruns differ there, too.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    RECORDED_RECIPE,
    START_PRECISION,
    Curve,
    usable,
)
from parity.recipes import forward_differs, width_of

FIRST_STEP, MAX_ROUNDING_STEP = 1, 1e-4
SAME_NORM = 1e-3  # relative; at the first step precisions differ by 0.8 % and more on GB200
VOCABULARY_UNIT = 64  # to whose multiples vocabularies are padded
RESOLVED = 0.2  # digits that hold exp(loss) to this tell whole numbers from others


@frozen
class EqualStart:
    """The first step of both logs and the loss, nats, that they share."""

    step: int
    loss: float


def equal_start(
    baseline: Sequence[Curve], candidate: Sequence[Curve], rounding_step: float
) -> EqualStart | None:
    """Where a run of the candidate begins with the loss of a baseline's run of its seed, which its
    recipe does not explain.

    `rounding_step` is the step to which losses are rounded, nats.
    """
    if rounding_step > MAX_ROUNDING_STEP * (1.0 + 1e-9) or any(
        START_PRECISION in run.context for run in (*baseline, *candidate)
    ):
        return None
    pairs = ((run, other) for run in baseline for other in candidate if run.seed == other.seed)
    return next(
        (
            start
            for run, other in pairs
            if (start := _equal_start(run, other, rounding_step)) is not None
        ),
        None,
    )


def same_first_batch(
    baseline: Sequence[Curve], candidate: Sequence[Curve], rounding_step: float
) -> bool:
    """Whether each run of the candidate begins with the loss of a baseline's run of its seed, and
    not all with one that any batch gives.

    For arms of one recipe: equal digits then need an equal model, batch and forward pass. Any batch
    gives what a logger writes before it has a loss (0), what a model that predicts all tokens alike
    has, and what runs of several seeds begin with. `rounding_step` is the step to which losses are
    rounded, nats.
    """
    if rounding_step > MAX_ROUNDING_STEP * (1.0 + 1e-9):
        return False
    firsts = [
        next(
            (
                loss
                for run in baseline
                if run.seed == other.seed and (loss := _first_loss(run, other)) is not None
            ),
            None,
        )
        for other in candidate
    ]
    of_any_batch = len({run.seed for run in candidate}) > 1 and len({*firsts}) == 1
    return (
        None not in firsts
        and not of_any_batch
        and not all(
            loss is None or loss <= 0.0 or _is_uniform(loss, rounding_step) for loss in firsts
        )
    )


def contradicted(name: str, runs: Sequence[Curve]) -> str | None:
    """The recipe on record that contradicts an arm's name or the recipe that is stated for it, by
    its precision; None where none does.
    """
    if recorded := next(
        (run.context[RECORDED_RECIPE] for run in runs if RECORDED_RECIPE in run.context), None
    ):
        return recorded
    width = width_of(name.strip().lower().replace("-", "_").removeprefix("te_"))
    recipe = runs[0].recipe
    if width is not None and recipe and width_of(recipe) not in (None, width):
        return recipe
    return None


def _equal_start(base: Curve, cand: Curve, rounding_step: float) -> EqualStart | None:
    loss = _first_loss(base, cand) if forward_differs(base.recipe, cand.recipe) else None
    if loss is None or _is_uniform(loss, rounding_step) or _norms_differ(base, cand):
        return None
    return EqualStart(step=int(base.steps[0]), loss=loss)


def _first_loss(base: Curve, cand: Curve) -> float | None:
    """The loss with which both logs begin at step 0 or 1; None where they don't."""
    if (
        not (len(base.steps) and len(cand.steps))
        or int(base.steps[0]) > FIRST_STEP
        or int(cand.steps[0]) != int(base.steps[0])
    ):
        return None
    loss = float(base.loss[0])
    if float(cand.loss[0]) == loss and usable(base.loss[:1])[0]:
        return loss
    return None


def _is_uniform(loss: float, rounding_step: float) -> bool:
    """Whether a loss may be that of a model that predicts every one of V tokens alike."""
    if not 0.0 < loss < math.log(2**24):
        return False
    size = math.exp(loss)
    digits = size * (0.5 * rounding_step + 2.0 * float(np.spacing(np.float32(loss))))
    unit = 1 if digits < RESOLVED else VOCABULARY_UNIT
    return abs(size - unit * round(size / unit)) <= digits


def _norms_differ(base: Curve, cand: Curve) -> bool:
    norms = [
        float(run.columns["grad_norm"][0]) for run in (base, cand) if "grad_norm" in run.columns
    ]
    return len(norms) == 2 and abs(norms[1] - norms[0]) > SAME_NORM * abs(norms[0])
