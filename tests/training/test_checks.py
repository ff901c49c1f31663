"""Every check passes on our arithmetic, and each of the planted faults is caught."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests.conftest import some_of
from training.arithmetic import formats, hadamard, known_answers
from training.arithmetic.known_answers import QuantizedCopy, copy_of
from training.arithmetic.quantize import dequantize, quantize
from training.arithmetic.recipes import linear_recipe
from training.later_recipe import LaterRecipe
from training.preflight import checks
from training.preflight.kernels import EmulatedKernels, quantizers, scales
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule


class Refusing(EmulatedKernels):
    """Kernels that can run only one recipe."""

    def refusal(self, recipe):
        return None if recipe.name == "fp8_current" else "no such unit"


def test_the_emulation_passes_every_check():
    done = list(checks.examine(EmulatedKernels()))
    assert [check for check in done if not check.passed] == []
    assert len(done) == 40
    assert all(check.ran for check in done)


def test_a_recipe_that_cannot_run_has_one_line_with_its_reason():
    done = list(checks.examine(Refusing()))
    assert [(check.name, check.detail) for check in done if not check.ran] == [
        (name, "no such unit") for name in checks.RECIPES[1:]
    ]


class Stub(EmulatedKernels):
    """Kernels of which one answer is changed: copies and layer results pass through functions."""

    def __init__(self, copies: Callable | None = None, layer: Callable | None = None):
        self._copies, self._layer = copies, layer

    def copies(self, recipe, operand, x_MK, seed):
        made = super().copies(recipe, operand, x_MK, seed)
        return self._copies(made, recipe, operand, x_MK, seed) if self._copies else made

    def layer(self, recipe, x_MK, w_KN, g_MN, seed):
        made = super().layer(recipe, x_MK, w_KN, g_MN, seed)
        return self._layer(made, recipe, x_MK, w_KN, g_MN) if self._layer else made


def both(change: Callable[[QuantizedCopy], QuantizedCopy], of: str):
    return lambda made, _recipe, operand, *_: (
        (change(made[0]), change(made[1])) if operand == of else made
    )


def swapped_nibbles(copy: QuantizedCopy) -> QuantizedCopy:
    return copy._replace(
        codes=copy.codes.reshape(len(copy.codes), -1, 2)[..., ::-1].reshape(copy.codes.shape)
    )


def tiled_scales(copy: QuantizedCopy) -> QuantizedCopy:
    return copy._replace(scales=np.roll(copy.scales, 1, axis=0))


def amax_before_rotation(made, recipe, operand, x, seed):
    return (
        (made[0], made[1]._replace(scalar=np.float32(np.abs(x).max()))) if operand == "x" else made
    )


def columns_from_rows(made, recipe, operand, x, seed):
    """The second copy is made from the first, not from the tensor."""
    rows, columns = quantizers(recipe, operand)

    @jax.jit
    def twice(x):
        return quantize(dequantize(quantize(x, 1, rows), 1, rows).astype(jnp.bfloat16), 0, columns)

    return made[0], copy_of(twice(jnp.asarray(x, jnp.bfloat16)), columns)


def codes_of(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)


def floored(made, recipe, operand, x, seed):
    grid = np.asarray([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    below = grid[np.searchsorted(grid, np.abs(x), side="right") - 1] * np.sign(x)
    return tuple(copy._replace(codes=codes_of(below)) for copy in made)


def skipping_one_and_a_half(copy: QuantizedCopy) -> QuantizedCopy:
    return copy._replace(
        codes=np.where(copy.codes & 7 == 3, copy.codes - 1, copy.codes).astype(np.uint8)
    )


def deaf_to_the_seed(made, recipe, operand, x, seed):
    return EmulatedKernels().copies(recipe, operand, x, 0)


def never_the_same():
    seeds = count(100)
    return lambda _made, recipe, operand, x, _seed: EmulatedKernels().copies(
        recipe, operand, x, next(seeds)
    )


def few_bits(a, b):
    """Sums in a register of fourteen bits, as Hopper's FP8 units keep them without promotion."""
    total = np.zeros((len(a), b.shape[1]))
    for k in range(a.shape[1]):
        total = total + np.outer(a[:, k].astype(np.float64), b[k])
        exponent = np.floor(np.log2(np.maximum(np.abs(total), 1e-30)))
        total = np.rint(total / 2.0 ** (exponent - 13)) * 2.0 ** (exponent - 13)
    return total.astype(np.float32)


def rotated(recipe, x):
    return np.asarray(hadamard.rotate(jnp.asarray(x))) if recipe.wgrad_x.rotated else x


def few_bits_in_y(made, recipe, x, w, g):
    return few_bits(x, w), *made[1:]


def few_bits_in_dx(made, recipe, x, w, g):
    return made[0], few_bits(g, w.T), made[2]


def few_bits_in_dw(made, recipe, x, w, g):
    return *made[:2], few_bits(rotated(recipe, x).T, rotated(recipe, g))


def no_weight_gradient(made, recipe, x, w, g):
    return *made[:2], made[2] * 0


def only_x_rotated(made, recipe, x, w, g):
    return *made[:2], rotated(recipe, x).T @ g


def zeros_along_columns(made, recipe, operand, x, seed):
    return (made[0], made[1]._replace(codes=made[1].codes * 0)) if operand == "grad" else made


def one_number_a_row(made, recipe, operand, x, seed):
    """Every value of a row is rounded by the same random number."""
    uniform = np.random.default_rng(seed).uniform(size=(len(x), 1))
    grid = np.asarray([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    below = grid[np.searchsorted(grid, np.abs(x), side="right") - 1]
    above = grid[np.searchsorted(grid, np.abs(x), side="left")]
    up = uniform * np.where(above > below, above - below, 1) < np.abs(x) - below
    return made[0]._replace(codes=codes_of(np.where(up, above, below) * np.sign(x))), made[1]


class NeverAtRandom(EmulatedKernels):
    """A layer that rounds to nearest, whatever the recipe."""

    def layer(self, recipe, x_MK, w_KN, g_MN, seed):
        nearest = replace(
            recipe,
            dgrad_g=replace(recipe.dgrad_g, stochastic=False),
            wgrad_g=replace(recipe.wgrad_g, stochastic=False),
        )
        return super().layer(nearest, x_MK, w_KN, g_MN, seed)


class DeafToTheScale(EmulatedKernels):
    """A layer that scales by the amaxes of now, whatever its history says."""

    def delayed(self, recipe, matrices, scale):  # noqa: ARG002
        return super().delayed(recipe, matrices, scales(recipe, matrices))


class NoAmax(EmulatedKernels):
    """A layer that reports no amax for the next step."""

    def delayed(self, recipe, matrices, scale):
        *made, amaxes = super().delayed(recipe, matrices, scale)
        return *made, amaxes * 0


def ignoring_the_tensor_scale(made, recipe, x, w, g):
    return made[0] * np.float32(448 * 6 / np.abs(x).max()), *made[1:]


def transposed_gradient(made, recipe, x, w, g):
    return *made[:2], made[2].T


def nan_of_zeros(made, recipe, x, w, g):
    return tuple(np.where(part == 0, np.float32(np.nan), part) for part in made)


def last_bit_by_chance():
    random = np.random.default_rng(0)
    return lambda made, *_: tuple(
        np.where(random.random(part.shape) < 0.001, np.nextafter(part, np.float32(np.inf)), part)
        for part in made
    )


@pytest.mark.parametrize(
    ("recipe", "check", "kernels"),
    [
        ("nvfp4_no_sr", checks.codes, Stub(both(swapped_nibbles, "x"))),
        ("nvfp4_no_sr", checks.codes, Stub(both(tiled_scales, "kernel"))),
        ("nvfp4_no_sr", checks.codes, Stub(amax_before_rotation)),
        ("mxfp8", checks.codes, Stub(columns_from_rows)),
        (
            "nvfp4_no_rht",
            checks.rounding,
            Stub(both(lambda copy: copy._replace(codes=copy.codes * 0), "grad")),
        ),
        ("nvfp4_no_rht", checks.rounding, Stub(both(skipping_one_and_a_half, "grad"))),
        ("nvfp4_no_rht", checks.rounding, Stub(floored)),
        ("nvfp4_no_rht", checks.rounding, Stub(deaf_to_the_seed)),
        ("nvfp4_no_rht", checks.rounding, Stub(never_the_same())),
        ("nvfp4", checks.rounding, Stub(zeros_along_columns)),
        ("nvfp4_no_rht", checks.rounding, Stub(one_number_a_row)),
        ("fp8_current", checks.accumulation, Stub(layer=few_bits_in_y)),
        ("fp8_current", checks.accumulation, Stub(layer=few_bits_in_dx)),
        ("nvfp4", checks.accumulation, Stub(layer=few_bits_in_y)),
        ("nvfp4", checks.accumulation, Stub(layer=few_bits_in_dw)),
        ("nvfp4", checks.products, Stub(layer=no_weight_gradient)),
        ("nvfp4", checks.products, Stub(layer=only_x_rotated)),
        ("nvfp4_no_sr", checks.products, Stub(layer=ignoring_the_tensor_scale)),
        ("nvfp4_no_sr", checks.products, Stub(layer=transposed_gradient)),
        (
            "fp8_delayed",
            checks.codes,
            Stub(both(lambda copy: copy._replace(scalar=np.float32(1)), "x")),
        ),
        ("fp8_delayed", checks.history, DeafToTheScale()),
        ("fp8_delayed", checks.history, NoAmax()),
        ("fp8_current", checks.zeros, Stub(layer=nan_of_zeros)),
        ("fp8_current", checks.repeats, Stub(layer=last_bit_by_chance())),
        ("nvfp4", checks.repeats, NeverAtRandom()),
    ],
    ids=[
        "swapped_nibbles",
        "tiled_2d_scales",
        "amax_before_rotation",
        "columns_from_rows",
        "rounding_to_zero",
        "no_one_and_a_half",
        "floored",
        "deaf_to_the_seed",
        "never_the_same",
        "rounding_to_zero_after_the_rotation",
        "one_random_number_a_row",
        "few_bits_fp8",
        "few_bits_fp8_dx",
        "few_bits_nvfp4",
        "few_bits_nvfp4_dw",
        "no_weight_gradient",
        "only_x_rotated",
        "no_tensor_scale",
        "transposed_gradient",
        "no_scale",
        "deaf_to_the_scale",
        "no_amax",
        "nan_of_zeros",
        "last_bit_by_chance",
        "never_at_random",
    ],
)
def test_a_planted_fault_is_caught(recipe, check, kernels):
    assert check in checks.checks_of(linear_recipe(recipe, fast_bf16=True))
    passed, _ = check(kernels, linear_recipe(recipe, fast_bf16=True))
    assert not passed


def toward_zero(x, fmt):
    nearest = real_nearest(x, fmt)
    return jnp.where(
        jnp.abs(nearest) > jnp.abs(x), real_nearest(x * np.float32(0.75), fmt), nearest
    )


def flipped_sign(x_MK):
    signs = np.ones((16, 1), np.float32)
    signs[3] = -1
    return real_rotate(x_MK * jnp.asarray(np.tile(signs, (x_MK.shape[0] // 16, 1)), x_MK.dtype))


real_nearest, real_rotate, real_quotient, real_round_up = (
    formats.nearest,
    hadamard.rotate,
    formats.quotient,
    formats.e8m0_round_up,
)


@pytest.mark.parametrize(
    ("recipe", "check", "module", "name", "fault"),
    [
        ("nvfp4_no_rht", checks.codes, formats, "nearest", toward_zero),
        ("nvfp4_no_sr", checks.rotation, hadamard, "rotate", flipped_sign),
        ("nvfp4_no_sr", checks.rotation, hadamard, "rotate", lambda x: x),
        (
            "nvfp4_no_rht",
            checks.codes,
            formats,
            "quotient",
            lambda x, y: formats.float_of(formats.bits_of(real_quotient(x, y)) - 2),
        ),
        (
            "mxfp8",
            checks.codes,
            formats,
            "e8m0_round_up",
            lambda amax, fmt: real_round_up(amax, fmt) - 1,
        ),
    ],
    ids=["truncation", "one_sign", "no_rotation", "inexact_division", "mx_rounds_down"],
)
def test_a_fault_in_the_arithmetic_is_caught(monkeypatch, recipe, check, module, name, fault):
    monkeypatch.setattr(module, name, fault)
    jax.clear_caches()
    try:
        passed, _ = check(EmulatedKernels(), linear_recipe(recipe, fast_bf16=True))
        assert not passed
        if check is checks.codes:
            assert known_answers.differing_formats()
    finally:
        jax.clear_caches()


JOB = JobSpec(
    name="job",
    baseline=ArmSpec(recipe="fp8_delayed"),
    candidates=(
        ArmSpec(recipe="nvfp4", then=LaterRecipe(recipe="bf16", from_step=5)),
        ArmSpec(recipe="bf16"),
    ),
    model=Model(d_model=64, n_layers=3, n_heads=4, n_kv_heads=2, d_ff=160, head_dim=32),
    data=Data(sequence_length=32, batch_size=4),
    schedule=Schedule(steps=10, warmup_steps=0),
    keep_last=1,
)


def test_the_layers_of_a_job_are_examined_at_their_sizes():
    layers = checks.layers_of(JOB)
    shapes = {(128, 64, 128), (128, 64, 64), (128, 128, 64), (128, 64, 160), (128, 160, 64)}
    assert {(recipe.name, shape) for recipe, shape in layers} == {
        (name, shape) for name in ("fp8_delayed", "nvfp4") for shape in shapes
    }
    names = [
        f"{where}: {recipe.name} at {' x '.join(map(str, shape))}"
        for (recipe, shape), where in layers.items()
    ]
    assert {
        "fp8_delayed, query: fp8_delayed at 128 x 64 x 128",
        "nvfp4.then-bf16.from-step-5, down: nvfp4 at 128 x 160 x 64",
    } <= set(names)
    some = dict(some_of(list(layers.items()), 5, 3))  # programs of their own for each
    done = [
        check for check in islice(checks.examine(EmulatedKernels(), some), len(some)) if check.ran
    ]
    assert [check.name for check in done] == list(some_of(names, 5, 3))
    assert all(check.passed for check in done), done
    assert {recipe.name for recipe, _ in some} == {"fp8_delayed", "nvfp4"}


def test_a_fault_at_the_sizes_of_a_job_alone_is_caught():
    """The kernel is wrong for every output beyond the 128th."""

    def narrow(made, recipe, x, w, g):
        return np.where(np.arange(made[0].shape[1]) < 128, made[0], 0), *made[1:]

    kernels, wide = (
        Stub(layer=narrow),
        {key: where for key, where in checks.layers_of(JOB).items() if key[1] == (128, 64, 160)},
    )
    assert checks.products(kernels, linear_recipe("fp8_delayed", fast_bf16=True))[0]
    assert [check.passed for check in islice(checks.examine(kernels, wide), 2)] == [False, False]
