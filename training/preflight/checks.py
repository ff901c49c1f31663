"""The checks: each asks the kernels one question whose answer is known, and says in one line what came back.

    codes          codes, scale bytes and tensor scales of x, kernel and grad equal the known answers
    rotation       a one-hot column becomes the signs of its row of the Hadamard matrix (nvfp4)
    rounding       stochastic rounding is unbiased, returns only neighbours and leaves values of the format; no value becomes 0 that
                   cannot; another seed draws other numbers, the same seed the same (nvfp4)
    accumulation   a sum of large and small products that cancel is exact, as in float32: the small ones are 2^-17 (nvfp4) to 2^-21 of
                   the largest, so an accumulator of fewer bits loses them
    products       y, dx and dw equal the products of the known copies to one bfloat16 ulp, in the right orientation and scale
    zeros          a layer of zeros gives zeros, without NaN
    repeats        the same inputs and seed give the same bits

The assumption that can fail: a fault shows on small matrices (64 x 128 and 128 x 128). A kernel that fails only at some sizes passes.

Source: Transformer Engine 2.20.2 for the arithmetic (`known_answers`, `training.arithmetic`); its pull request 3281 for stochastic
rounding that returned zeros on SM 12.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from training.arithmetic import formats, hadamard, known_answers
from training.arithmetic.formats import E2M1
from training.arithmetic.known_answers import Array, Copy, Difference
from training.arithmetic.quantize import Quantizer, dequantize, quantize
from training.arithmetic.recipes import LinearRecipe, linear_recipe
from training.preflight.kernels import Kernels, OperandName, quantizers
from training.rules import Recipe

TOKENS, INPUTS, OUTPUTS = 64, 128, 128
"""The smallest sizes that every kernel of Transformer Engine takes."""
RECIPES: tuple[Recipe, ...] = ("fp8_current", "mxfp8", "nvfp4", "nvfp4_no_rht", "nvfp4_no_sr")
_DRAWS = 24
_SIGMAS = 5.0  # of fourteen means: by chance one in 120,000 examinations fails


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its name with the recipe, whether it passed, and what was seen; ran is False for a recipe that cannot run."""

    name: str
    passed: bool
    detail: str
    ran: bool = True


def examine(kernels: Kernels) -> Iterator[Check]:
    """Runs every check on every recipe that the kernels can run; a recipe that they cannot run has one line that says why."""
    for name in RECIPES:
        recipe = linear_recipe(name, fast_bf16=True)
        reason = kernels.refusal(recipe)
        if reason is not None:
            yield Check(name=name, passed=True, detail=reason, ran=False)
            continue
        for check in _CHECKS[name]:
            yield check(kernels, recipe)


def codes(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """Copies of all three operands against the known answers; a copy that is rounded stochastically has none."""
    total = Difference()
    for operand in get_args(OperandName):
        sides = quantizers(recipe, operand)
        if any(side.stochastic for side in sides):
            continue
        for case in {id(answer.x): answer.x for answer in known_answers.answers()}.values():
            copies: tuple[Copy, Copy] | None = None
            for answer in known_answers.answers():
                side = {1: 0, 0: 1}[answer.axis]
                if answer.x is not case or answer.format != known_answers.format_of(sides[side]):
                    continue
                copies = copies or kernels.copies(recipe, operand, case, 0)
                total += known_answers.difference(answer, copies[side])
    return Check(name=f"{recipe.name}: codes", passed=not total, detail=known_answers.words(total))


def rotation(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """Row i of each group of sixteen is 1 in the columns i mod 16; rotated, such a column is row i of R, all of one magnitude."""
    x = np.tile(np.eye(16, dtype=np.float32), (TOKENS // 16, INPUTS // 16))
    _, columns = kernels.copies(recipe, "x", x, 0)
    value = np.asarray(formats.decode(jnp.asarray(columns.codes), E2M1)).reshape(TOKENS // 16, 16, INPUTS)
    expected = np.tile(hadamard.matrix().T * 24, (1, INPUTS // 16))  # amax 1/4 becomes code 6
    wrong = int(np.sum(value != expected))
    return Check(name=f"{recipe.name}: rotation", passed=not wrong, detail=f"{wrong:,} of {value.size:,} signs differ")


def rounding(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """Values between the codes, in blocks whose scale is exactly 1, rounded with several seeds. Both copies are examined."""
    between = np.asarray([0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 1.1, 1.25, 1.75, 2.25, 2.75, 3.5, 4.5, 5.5], np.float32)
    between = between.astype(ml_dtypes.bfloat16).astype(np.float32)
    grid = np.abs(formats.values(E2M1))
    block = np.concatenate([[6.0], between, [3.0]]).astype(np.float32)
    g = np.empty((TOKENS, OUTPUTS), np.float32)
    row, column = np.indices(g.shape)
    g[:] = block[(row + column) % 16] * np.where((row // 16 + column // 16) % 2, -1, 1)  # every block of a row or column holds all sixteen
    seeds = [kernels.copies(recipe, "grad", g, seed) for seed in range(_DRAWS)]
    faults: list[str] = []
    again = kernels.copies(recipe, "grad", g, 0)
    worst = 0.0
    for side, where in enumerate(("rows", "columns")):
        drawn = [np.asarray(formats.decode(jnp.asarray(copies[side].codes), E2M1)) * np.sign(g) for copies in seeds]
        values = np.stack(drawn)
        for x in np.unique(np.abs(g)):
            below, above = grid[grid <= x].max(), grid[grid >= x].min()
            sample = values[:, np.abs(g) == x]
            if not np.isin(sample, (below, above)).all():
                faults.append(
                    f"{x:g} became {sample[~np.isin(sample, (below, above))][0]:g} along {where}, expected {below:g} or {above:g}"
                )
                continue
            if below == above:
                continue
            share = (x - below) / (above - below)
            deviation = (above - below) * np.sqrt(share * (1 - share) / sample.size)
            # Hardware draws 8 bits: its share of "up" may be 1/512 off.
            worst = max(worst, (abs(float(np.mean(sample, dtype=np.float64)) - x) - (above - below) / 512) / deviation)
        if not np.array_equal(seeds[0][side].codes, again[side].codes):
            faults.append(f"the same seed gives other codes along {where}")
        if np.array_equal(seeds[0][side].codes, seeds[1][side].codes):
            faults.append(f"two seeds give the same codes along {where}")
    if worst > _SIGMAS:
        faults.append("biased")
    mean = f"the worst mean of 14 values is {max(worst, 0.0):.1f} standard errors from its value (limit {_SIGMAS:g}; {_DRAWS} seeds)"
    return Check(name=f"{recipe.name}: rounding", passed=not faults, detail="; ".join([*dict.fromkeys(faults[:3]), mean]))


def accumulation(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """Sums whose large terms cancel. All inputs are values of the formats with exact scales, so y is known exactly."""
    x, w = np.zeros((TOKENS, INPUTS), np.float32), np.ones((INPUTS, OUTPUTS), np.float32)
    if recipe.fprop_x is not None and recipe.fprop_x.scaling == "nvfp4":
        x[:, 16:112] = 6 * 2.0**-9
        x[:, 0], x[:, 112] = 2688, -2688
        w[:] = 2688
    else:
        x[:, 1:97] = 2.0**-9
        x[:, 0], x[:, -1] = 256, -256
        x[-1] = 0
        x[-1, 0] = 448  # the amax, so that the tensor's scale is 1
        w[0] = w[-1] = 16
        w[:, -1] = 448
    exact = x.astype(np.float64) @ w.astype(np.float64)
    y, _, _ = kernels.layer(recipe, x, w, np.zeros((TOKENS, OUTPUTS), np.float32), 0)
    cancelled = np.abs(exact) < np.abs(x[0, 0] * w[0, 0])
    wrong = cancelled & (y != exact)
    detail = f"{int(np.sum(wrong)):,} of {int(np.sum(cancelled)):,} sums that cancel differ"
    if np.any(wrong):
        detail += f"; the first is {float(y[wrong][0]):g}, expected {float(exact[wrong][0]):g}"
    return Check(name=f"{recipe.name}: accumulation", passed=not bool(np.any(wrong)), detail=detail)


def products(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """The three products of known matrices against float64 products of their copies."""
    x, w, g = _matrices()
    expected = _exact_products(recipe, x, w, g)
    worst = {}
    for name, ours, known in zip(("y", "dx", "dw"), kernels.layer(recipe, x, w, g, 0), expected, strict=True):
        ulp = 2.0 ** (np.floor(np.log2(np.max(np.abs(known)))) - 7)
        worst[name] = float(np.max(np.abs(ours - known))) / ulp if np.isfinite(ours).all() else np.inf
    detail = ", ".join(f"{name} {value:.2f}" for name, value in worst.items())
    return Check(
        name=f"{recipe.name}: products",
        passed=bool(max(worst.values()) <= 1),
        detail=f"largest error in bfloat16 ulp of the largest value: {detail} (limit 1)",
    )


def zeros(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """A layer whose input, weight and gradient are zero."""
    x, w, g = (np.zeros(shape, np.float32) for shape in ((TOKENS, INPUTS), (INPUTS, OUTPUTS), (TOKENS, OUTPUTS)))
    results = kernels.layer(recipe, x, w, g, 0)
    wrong = sum(int(np.sum(part != 0)) for part in results)
    return Check(
        name=f"{recipe.name}: zeros", passed=not wrong, detail=f"{wrong:,} of {sum(part.size for part in results):,} values are not 0"
    )


def repeats(kernels: Kernels, recipe: LinearRecipe) -> Check:
    """The same layer three times."""
    first, *others = (kernels.layer(recipe, *_matrices(), 3) for _ in range(3))
    wrong = sum(int(np.sum(a.view(np.uint32) != b.view(np.uint32))) for other in others for a, b in zip(first, other, strict=True))
    size = 2 * sum(part.size for part in first)
    return Check(name=f"{recipe.name}: repeats", passed=not wrong, detail=f"{wrong:,} of {size:,} values differ from the first time")


def _matrices() -> tuple[Array, Array, Array]:
    """x (M, K), w (K, N) and g (M, N): normal numbers with a few outliers, bfloat16 values."""
    random = np.random.default_rng(2026)
    matrices = [random.standard_normal(shape).astype(np.float32) for shape in ((TOKENS, INPUTS), (INPUTS, OUTPUTS), (TOKENS, OUTPUTS))]
    for matrix in matrices:
        matrix.ravel()[random.choice(matrix.size, 16, replace=False)] *= 30
    x, w, g = (matrix.astype(ml_dtypes.bfloat16).astype(np.float32) for matrix in matrices)
    return x, w, g


def _exact_products(recipe: LinearRecipe, x: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
    def copy(matrix: Array, axis: int, quantizer: Quantizer | None) -> Array:
        if quantizer is None:
            return matrix.astype(np.float64)
        return np.asarray(_rounded(jnp.asarray(matrix, jnp.bfloat16), axis, quantizer), np.float64)

    y = copy(x, 1, recipe.fprop_x) @ copy(w, 0, recipe.fprop_w)
    dx = copy(g, 1, recipe.dgrad_g) @ copy(w, 1, recipe.dgrad_w).T
    dw = copy(x, 0, recipe.wgrad_x).T @ copy(g, 0, recipe.wgrad_g)
    return y, dx, dw


@partial(jax.jit, static_argnums=(1, 2))
def _rounded(x: jax.Array, axis: int, quantizer: Quantizer) -> jax.Array:
    return dequantize(quantize(x, axis, quantizer), axis, quantizer)


_PLAIN = (codes, accumulation, products, zeros, repeats)
_CHECKS: Mapping[str, tuple[Callable[[Kernels, LinearRecipe], Check], ...]] = {
    "fp8_current": _PLAIN,
    "mxfp8": _PLAIN,
    "nvfp4": (codes, rotation, accumulation, zeros, repeats),
    "nvfp4_no_rht": (codes, rounding),
    "nvfp4_no_sr": (codes, products),
}
