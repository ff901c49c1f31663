"""When does an equal start show that a candidate did not train with its recipe? Each limit, from
both sides.
"""

import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.treatment import equal_start, same_first_batch


def run(loss: object, steps: object = None, **extra: object) -> Curve:
    values = np.asarray(loss, dtype=float)
    at = np.arange(len(values)) if steps is None else steps
    return curve_from_arrays(at, values, **extra)


def begins(loss: float, first: int = 0, recipe: str = "fp8", **extra: object) -> Curve:
    return run([loss, 3.0, 2.9], np.arange(3) + first, recipe=recipe, **extra)


def starts_equal(base: Curve, cand: Curve, step: float = 1e-4) -> bool:
    return equal_start([base], [cand], step) is not None


@pytest.mark.parametrize(("step", "seen"), [(1e-4, True), (1.001e-4, False)])
def test_an_equal_start_needs_four_decimals(step: float, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    assert starts_equal(begins(loss), begins(loss, recipe="nvfp4"), step) == seen
    assert same_first_batch([begins(loss)], [begins(loss)], step) == seen


@pytest.mark.parametrize(("first", "seen"), [(0, True), (1, True), (2, False)])
def test_an_equal_start_is_at_step_zero_or_one(first: int, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    assert starts_equal(begins(loss, first), begins(loss, first, "nvfp4")) == seen
    assert not starts_equal(begins(loss, 0), begins(loss, 1, "nvfp4"))


@pytest.mark.parametrize(
    ("size", "step", "uniform"),
    [
        (1000.0, 1e-4, True),  # a whole number of tokens, which four decimals tell to 0.05
        (1000.04, 1e-4, True),
        (1000.4, 1e-4, False),
        (3000.0, 1e-4, True),
        (3000.5, 1e-4, False),  # to 0.15 of a token
        (50_304.0, 1e-4, True),  # to 2.5 tokens, so a multiple of 64
        (50_306.0, 1e-4, True),
        (50_308.0, 1e-4, False),
        (50_336.0, 1e-4, False),
        (50_336.0, 0.0, True),  # known to a tenth of a token
        (50_336.5, 0.0, False),
    ],
)
def test_a_model_that_predicts_all_tokens_alike_shows_nothing(
    size: float, step: float, uniform: bool
) -> None:
    loss = math.log(size)
    assert starts_equal(begins(loss), begins(loss, recipe="nvfp4"), step) != uniform


@pytest.mark.parametrize(("by", "seen"), [(0.99e-3, True), (1.01e-3, False)])
def test_gradient_norms_that_differ_by_a_thousandth_show_the_recipe(by: float, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    columns = [{"grad_norm": np.full(3, 2.0 * (1.0 + own))} for own in (0.0, by)]
    base = begins(loss, columns=columns[0])
    cand = begins(loss, recipe="nvfp4", columns=columns[1])
    assert starts_equal(base, cand) == seen
