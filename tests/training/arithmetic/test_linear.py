"""The linear layer: against Transformer Engine's results, against a plain float64 formula, and its
side channels.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_pairs
from training.arithmetic import random_bits
from training.arithmetic.hadamard import rotate
from training.arithmetic.linear import linear, quiet_channel, transposed
from training.arithmetic.quantize import to_bfloat16
from training.arithmetic.recipes import layer_recipe, linear_recipe
from training.overrides import GEMMS
from training.segments import Arithmetic
from training.switches import Switches

# 96 outputs: wgrad transposes x; the test of the narrower operand takes g.
X, W, G = (
    np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for shape in ((64, 32), (32, 96), (64, 96))
)


@partial(jax.jit, static_argnums=0)
def compiled(recipe, x, w, g, key):
    y, pull = jax.vjp(
        lambda x, w, channel: linear(recipe, x, w, key, channel), x, w, quiet_channel()
    )
    dx, dw, channel = pull(g)
    return y, dx, dw, channel.report


def run(recipe, x=X, w=W, g=G, seed=0):
    """y, dx, dw and the count of non-finite values, from arrays that are rounded to the recipe's
    type first.
    """
    return compiled(
        recipe,
        *(jnp.asarray(part).astype(recipe.activations) for part in (x, w, g)),
        random_bits.key(seed),
    )


def as_float64(x):
    return np.asarray(x, np.float64)


narrow = jax.jit(to_bfloat16, static_argnums=(1, 2))


def operand(quantizer, x, axis):
    """What a quantizer makes of a bfloat16 operand, as float64, with the rotation left in."""
    x = jnp.asarray(x, jnp.bfloat16)
    if quantizer is None:
        return as_float64(x)
    value, factor, _ = narrow(
        x,
        axis,
        replace(quantizer, stochastic=False),
        None,
        jnp.float32(1) if quantizer.delayed else None,
    )
    return as_float64(value) * as_float64(factor)


@pytest.mark.parametrize(
    ("name", "switches", "fast"),
    [
        *(
            (name, {}, True)
            for name in (
                "bf16",
                "fp8_current",
                "fp8_delayed",
                "mxfp8",
                "fp8_block",
                "nvfp4",
                "mxfp4",
            )
        ),
        ("nvfp4", {}, False),
        ("nvfp4", {"row_scaled_activation": True}, True),
        ("nvfp4", {"row_scaled_activation": True, "nvfp4_4over6": "all", "rht": False}, False),
        ("mxfp8", {"gradient_format": "e5m2"}, True),
    ],
)
def test_three_gemms_are_the_products_of_the_quantized_operands(name, switches, fast):
    recipe = linear_recipe(name, Switches(**switches), fast_bf16=fast)
    if recipe.dgrad_g is not None and recipe.dgrad_g.stochastic:
        still = {
            side: replace(getattr(recipe, side), stochastic=False)
            for side in ("dgrad_g", "wgrad_g")
        }
        recipe = replace(recipe, **still)
    y, dx, dw, report = run(recipe)
    expected = (
        operand(recipe.fprop_x, X, 1) @ operand(recipe.fprop_w, W, 0),
        operand(recipe.dgrad_g, G, 1) @ operand(recipe.dgrad_w, W, 1).T,
        operand(recipe.wgrad_x, X, 0).T @ operand(recipe.wgrad_g, G, 0),
    )
    for ours, plain in zip((y, dx, dw), expected, strict=True):
        assert ours.dtype == jnp.bfloat16
        np.testing.assert_allclose(as_float64(ours), plain, rtol=2.0**-8, atol=1e-4)
    amaxes = (
        [float(np.max(np.abs(as_float64(jnp.asarray(part, jnp.bfloat16))))) for part in (X, W, G)]
        if recipe.quantized
        else [0, 0, 0]
    )
    assert np.asarray(report).tolist() == [*amaxes, 0]


@pytest.mark.parametrize(
    ("name", "switches"), [("fp8_current", {}), ("nvfp4_no_sr", {"row_scaled_activation": True})]
)
def test_wgrad_is_the_same_whichever_operand_is_written_out_transposed(name, switches):
    recipe = linear_recipe(name, Switches(**switches), fast_bf16=True)
    # fewer outputs than inputs: g is
    w, g = np.ascontiguousarray(W[:, :16]), np.ascontiguousarray(G[:, :16])
    expected = operand(recipe.wgrad_x, X, 0).T @ operand(recipe.wgrad_g, g, 0)
    np.testing.assert_allclose(
        as_float64(run(recipe, X, w, g)[2]), expected, rtol=2.0**-8, atol=1e-4
    )


def test_f32_is_plain_float32():
    y, dx, dw, _ = run(linear_recipe("f32", fast_bf16=True))
    for ours, plain in zip((y, dx, dw), (X @ W, G @ W.T, X.T @ G), strict=True):
        np.testing.assert_allclose(np.asarray(ours), plain, rtol=1e-5, atol=1e-5)


def test_rotation_cancels_where_nothing_is_quantized():
    x, g = (jnp.asarray(part) for part in (X, G))
    np.testing.assert_allclose(
        np.asarray(rotate(x)).T @ np.asarray(rotate(g)), X.T @ G, rtol=1e-4, atol=1e-4
    )


def test_gradient_rounding_follows_the_seed_and_the_forward_pass_does_not():
    recipe = linear_recipe("nvfp4", fast_bf16=True)
    first, same, other = run(recipe, seed=1), run(recipe, seed=1), run(recipe, seed=2)
    for a, b in zip(first, same, strict=True):
        np.testing.assert_array_equal(as_float64(a), as_float64(b))
    np.testing.assert_array_equal(as_float64(first[0]), as_float64(other[0]))
    for a, b in zip(first[1:3], other[1:3], strict=True):
        assert np.mean(as_float64(a) != as_float64(b)) > 0.5


def test_dgrad_and_wgrad_are_rounded_by_different_numbers():
    recipe = linear_recipe("nvfp4_no_rht", fast_bf16=True)
    g = np.full((16, 16), 1.0, np.float32)
    # so that 1 beside them, along the row and along the column, rounds up at random in either copy
    g[0, 0] = g[1, 1] = 1.9
    eye = np.eye(16, dtype=np.float32)
    rounds_up = []
    for seed in range(64):
        _, dx, dw, _ = run(recipe, eye, eye, g, seed)
        rounds_up.append((float(dx[0, 1]) > 1, float(dw[0, 1]) > 1))
    assert {(True, False), (False, True)} <= set(rounds_up)


OPERANDS = {
    "fprop": ("fprop_x", "fprop_w"),
    "dgrad": ("dgrad_g", "dgrad_w"),
    "wgrad": ("wgrad_x", "wgrad_g"),
}


@pytest.mark.parametrize(
    ("other", "gemm"), some_pairs(["bf16", "mxfp8", "fp8_delayed", "nvfp4_no_rht"], GEMMS)
)
def test_another_recipe_in_one_gemm_changes_its_product_alone(other, gemm):
    product = GEMMS.index(gemm)
    alone, whole = Arithmetic(other), Arithmetic("nvfp4")
    mixed = layer_recipe(tuple(alone if name == gemm else whole for name in GEMMS), fast_bf16=True)
    mixed_tensors, nvfp4, replaced = (
        run(mixed, seed=3),
        run(linear_recipe("nvfp4", fast_bf16=True), seed=3),
        linear_recipe(other, fast_bf16=True),
    )
    other_alone = run(replaced, seed=3)
    for number in range(3):
        expected = other_alone if number == product else nvfp4
        np.testing.assert_array_equal(
            as_float64(mixed_tensors[number]), as_float64(expected[number])
        )
    same = all(
        getattr(replaced, side) == getattr(linear_recipe("nvfp4", fast_bf16=True), side)
        for side in OPERANDS[gemm]
    )
    assert np.array_equal(as_float64(mixed_tensors[product]), as_float64(nvfp4[product])) == same
    assert float(mixed_tensors[3][3]) == 0
    if other != "bf16":  # then x or g has only its rotated copy
        assert np.asarray(mixed_tensors[3]).tolist() == np.asarray(nvfp4[3]).tolist()


def test_one_quantized_gemm_reports_its_two_tensors_and_their_nonfinite_values():
    x, w, g = X.copy(), W.copy(), G.copy()
    x[0, 0], w[1, 1], g[2, 2] = np.nan, np.inf, np.nan
    # fprop does not see g, dgrad not x, wgrad not w
    for number, missing in ((0, 2), (1, 0), (2, 1)):
        layer = tuple(Arithmetic("mxfp8" if place == number else "bf16") for place in range(3))
        recipe = layer_recipe(layer, fast_bf16=True)
        amaxes = np.asarray(run(recipe)[3])
        assert [bool(amax) for amax in amaxes[:3]] == [place != missing for place in range(3)]
        assert float(run(recipe, x, w, g)[3][3]) == 2


@pytest.mark.parametrize("name", ["fp8_current", "mxfp8", "nvfp4"])
def test_nonfinite_inputs_are_counted_in_all_three_tensors(name):
    x, w, g = X.copy(), W.copy(), G.copy()
    x[0, 0], w[1, 1], g[2, 2], g[3, 3] = np.nan, np.inf, np.nan, -np.inf
    assert float(run(linear_recipe(name, fast_bf16=True), x, w, g)[3][3]) == 4


def test_two_dimensional_weights_are_the_same_in_fprop_and_dgrad():
    recipe = linear_recipe("nvfp4", fast_bf16=True)
    np.testing.assert_array_equal(operand(recipe.fprop_w, W, 0), operand(recipe.dgrad_w, W, 1))


@pytest.mark.parametrize("shape", [(32, 5), (20, 3)])
def test_transposition_in_panels_is_a_transposition(shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(np.asarray(transposed(jnp.asarray(x))), x.T)


def test_an_unknown_recipe_is_refused():
    with pytest.raises(ValueError, match="recipe is 'fp3'"):
        linear_recipe("fp3", fast_bf16=True)


def test_the_layer_is_the_same_under_scan_and_vmap():
    recipe = linear_recipe("nvfp4", fast_bf16=True)
    x, w, g = (jnp.asarray(part, jnp.bfloat16) for part in (X, W, G))

    def layer(_, operands):
        x, w, g = operands
        y, pull = jax.vjp(
            lambda x, w: linear(recipe, x, w, random_bits.key(7), quiet_channel()), x, w
        )
        return 0, (y, *pull(g))

    twice = tuple(jnp.stack([part[::-1], part]) for part in (x, w, g))
    for many in (
        jax.lax.scan(layer, 0, twice)[1],
        jax.jit(jax.vmap(layer, (None, 0)))(0, twice)[1],
    ):
        for ours, one in zip(many, run(recipe, seed=7), strict=False):
            np.testing.assert_array_equal(as_float64(ours[1]), as_float64(one))


def test_two_dimensional_weights_and_their_transpose_make_the_same_layer():
    """x w and x' w' with w' = w^T: fprop of one is the dgrad of the other, for one quantization of
    the weight.
    """
    recipe = linear_recipe("nvfp4_no_sr", fast_bf16=True)
    _, dx, _, _ = run(recipe)
    y, _, _, _ = run(recipe, G, np.ascontiguousarray(W.T), X)
    np.testing.assert_array_equal(as_float64(dx), as_float64(y))


@pytest.mark.parametrize("name", ["nvfp4_no_sr", "fp8_current"])
def test_nan_as_hardware_treats_it_is_counted_even_where_the_product_hides_it(name):
    sick = X.copy()
    sick[3, 4] = np.nan
    y, _, _, report = run(linear_recipe(name, Switches(nan="hardware"), fast_bf16=True), x=sick)
    hidden = name == "nvfp4_no_sr"
    assert np.isfinite(as_float64(y)).all() == hidden
    assert np.isfinite(as_float64(y)[:3]).all()
    assert np.asarray(report)[3] == 1
    y, _, _, report = run(linear_recipe(name, fast_bf16=True), x=sick)
    assert not np.isfinite(as_float64(y)).all()
    assert np.asarray(report)[3] == 1
