"""Comparing two layers: what is equal within the bounds, and what is not."""

import numpy as np
import pytest

from tools.gpu_evidence.layers import (
    LARGEST_BOUND,
    MEAN_BOUND,
    RECIPES,
    compared,
    difference,
    exceeded,
    matrices,
)
from training.arithmetic.recipes import linear_recipe
from training.preflight.kernels import EmulatedKernels


class Changed(EmulatedKernels):
    """The emulation with an error in dw."""

    def __init__(self, error):
        self.error = error

    def layer(self, recipe, x_MK, w_KN, g_MN, seed):
        y, dx, dw = super().layer(recipe, x_MK, w_KN, g_MN, seed)
        return y, dx, self.error(dw)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (lambda dw: dw, []),
        (lambda dw: dw * 1.0005, []),  # less than one rounding of bfloat16
        (lambda dw: dw * 1.01, ["dw"]),
        (lambda dw: np.where(np.arange(dw.size).reshape(dw.shape) == 5, np.nan, dw), ["dw"]),
        (
            lambda dw: np.where(
                np.arange(dw.size).reshape(dw.shape) == 5, np.abs(dw).max() * 3, dw
            ),
            ["dw"],
        ),
    ],
)
def test_a_difference_beyond_a_rounding_is_named(error, wrong):
    found = compared(
        Changed(error),
        EmulatedKernels(),
        linear_recipe("fp8_current", fast_bf16=True),
        (64, 32, 96),
    )
    assert [line.split()[0] for line in exceeded(found)] == wrong


def test_differences_are_relative():
    found = difference(np.array([1.0, 2.0, 2.5]), np.array([1.0, 2.0, 2.0]))
    assert found["largest"] == 0.25
    assert found["mean"] == pytest.approx(0.5 / 3)
    assert (MEAN_BOUND, LARGEST_BOUND) == (2**-8, 2**-6)


def test_the_matrices_are_exact_in_bfloat16_and_have_outliers():
    for part in matrices(64, 32, 96):
        assert (part.view(np.uint32) & 0xFFFF == 0).all()
        assert np.abs(part).max() > 15
    assert {"fp8_current", "fp8_delayed"} <= set(RECIPES)
