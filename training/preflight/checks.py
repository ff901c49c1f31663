"""The checks of the preflight: each asks the kernels one question whose answer is known, and says
in one line what came back.

    codes          codes, scale bytes and tensor scales of x, kernel and grad equal the known
                   answers
    rotation       a one-hot column becomes the signs of its row of the Hadamard matrix (nvfp4)
    rounding       stochastic rounding is unbiased, returns only neighbours and leaves values of the
                   format; no value becomes 0 that
                   cannot; neighbours draw independent numbers; another seed draws other numbers,
                   the same seed the same
    accumulation   in y, dx and dw a sum of large and small products that cancel is exact, as in
                   float32: the small ones are 2^-17 (nvfp4)
                   to 2^-21 of the largest, so an accumulator of fewer bits loses them
    products       y, dx and dw equal the products of the known copies to one bfloat16 ulp, in the
                   right orientation and scale; under
                   stochastic rounding the gradient consists of values of the format, which it must
                   keep
    history        under delayed scaling a layer quantizes with the scales that it is given, and
                   reports the amaxes (fp8_delayed)
    zeros          a layer of zeros gives zeros, without NaN
    repeats        the same inputs and seed give the same bits; under stochastic rounding another
                   seed gives another dx and dw

A recipe that rotates is examined with gradients that the rotation turns into known numbers.

With a job (`--job`) the products are also examined for each of its quantized layers at its own
sizes, on 128 rows and columns of each.

The assumption that can fail: a fault shows on small matrices (64 x 128 and 128 x 128) and at the
sizes of the job.

Source: Transformer Engine 2.20.2 for the arithmetic (`known_answers`, `training.arithmetic`); its
pull request 3281 for stochastic rounding that returned zeros on SM 12.0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import numpy.typing as npt

from training.arithmetic import formats, hadamard, known_answers
from training.arithmetic.formats import E2M1
from training.arithmetic.known_answers import Array, CopyDifference, QuantizedCopy
from training.arithmetic.quantize import Quantizer, dequantize, quantize
from training.arithmetic.recipes import LinearRecipe, layer_recipe, linear_recipe
from training.frozen import frozen
from training.preflight.kernels import Kernels, Matrices, OperandName, quantizers, scales
from training.rules import Recipe
from training.spec import JobSpec, layer_sizes
from training.step_values import PROJECTIONS

TOKENS, INPUTS, OUTPUTS = 64, 128, 128

Shape = tuple[int, int, int]
_SMALL: Shape = (TOKENS, INPUTS, OUTPUTS)
_MOST_TOKENS = 8192  # of a job's layer; its inputs and outputs are never cut
_SAMPLE = 128  # rows and columns whose products are compared
RECIPES: tuple[Recipe, ...] = (
    "fp8_current",
    "fp8_delayed",
    "mxfp8",
    "nvfp4",
    "nvfp4_no_rht",
    "nvfp4_no_sr",
    "nvfp4_no_rht_no_sr",
)
_DRAWS = 24
_SIGMAS = 5.0  # of fourteen means: by chance one in 120,000 examinations fails
# of the sums of blocks of draws, in units of that of independent draws: more than twenty standard
# errors
_SPREAD = 1.3
# Values between the codes of a block whose scale is 1. The multiples of 1/4 are still bfloat16
# numbers where a rotation is undone.
_VALUES_OFF_GRID = (0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 1.1, 1.25, 1.75, 2.25, 2.75, 3.5, 4.5, 5.5)
_QUARTERS = (0.25, 0.75, 1.25, 1.75, 2.25, 2.5, 2.75, 3.25, 3.5, 3.75, 4.5, 4.75, 5.25, 5.5)
_GRID = (0.0, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 4.0, 4.0)


Seen = tuple[bool, str]


@frozen
class KernelCheck:
    """One check: its name with the recipe, whether it passed, and what was seen; ran is False for a
    recipe that cannot run.
    """

    name: str
    passed: bool
    detail: str
    ran: bool = True


def layers_of(job: JobSpec) -> dict[tuple[LinearRecipe, Shape], str]:
    """The different quantized layers of a job's arms with their sizes (M, K, N), and the first arm
    and projection that has each.
    """
    found: dict[tuple[LinearRecipe, Shape], str] = {}
    for arm in job.arms:
        run = job.run_of(arm, 0)
        layers = (
            (projection, layer)
            for part in run.segments
            for span in part.spans
            for projection, layer in zip(PROJECTIONS, span.layers, strict=True)
        )
        for projection, layer in layers:
            recipe, sizes = layer_recipe(layer, fast_bf16=True), layer_sizes(run, projection)
            if recipe.quantized:
                shape = (min(sizes["M"].value, _MOST_TOKENS), sizes["K"].value, sizes["N"].value)
                found.setdefault((recipe, shape), f"{arm.name}, {projection}")
    return found


def examine(
    kernels: Kernels, layers: Mapping[tuple[LinearRecipe, Shape], str] = MappingProxyType({})
) -> Iterator[KernelCheck]:
    """Runs every check on every recipe that the kernels can run; a recipe that they cannot run has
    one line that says why.

    Also compares the products of `layers`, those of a job.
    """
    for (recipe, shape), where in layers.items():
        reason = kernels.refusal(recipe)
        passed, detail = (True, reason) if reason is not None else products(kernels, recipe, shape)
        sizes = " x ".join(f"{size:,}" for size in shape)
        yield KernelCheck(
            name=f"{where}: {recipe.name} at {sizes}",
            passed=passed,
            detail=detail,
            ran=reason is None,
        )
    for name in RECIPES:
        recipe = linear_recipe(name, fast_bf16=True)
        reason = kernels.refusal(recipe)
        if reason is not None:
            yield KernelCheck(name=name, passed=True, detail=reason, ran=False)
            continue
        for check in checks_of(recipe):
            passed, detail = check(kernels, recipe)
            yield KernelCheck(name=f"{name}: {check.__name__}", passed=passed, detail=detail)


def checks_of(recipe: LinearRecipe) -> tuple[Callable[[Kernels, LinearRecipe], Seen], ...]:
    """The checks that a recipe needs; all but three concern every recipe."""
    special = (
        (rotation,) * _rotates(recipe)
        + (rounding,) * _is_stochastic(recipe)
        + (history,) * recipe.delayed
    )
    return (codes, *special, accumulation, products, zeros, repeats)


def codes(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """Copies of all three operands against the known answers; a copy that is rounded stochastically
    has none.
    """
    total = CopyDifference()
    for operand in get_args(OperandName):
        sides = quantizers(recipe, operand)
        if any(side.stochastic for side in sides):
            continue
        for case in {id(answer.x): answer.x for answer in known_answers.answers()}.values():
            copies: tuple[QuantizedCopy, QuantizedCopy] | None = None
            for answer in known_answers.answers():
                side = 1 - answer.axis
                if answer.x is not case or answer.format != known_answers.format_of(sides[side]):
                    continue
                copies = copies or kernels.copies(recipe, operand, case, 0)
                total += known_answers.difference(answer, copies[side])
    return not total, known_answers.words(total)


def rotation(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """Row i of each group of sixteen is 1 in the columns i mod 16; rotated, such a column is row i
    of R, all of one magnitude.
    """
    x = np.tile(np.eye(16, dtype=np.float32), (TOKENS // 16, INPUTS // 16))
    _, columns = kernels.copies(recipe, "x", x, 0)
    value = np.asarray(formats.decode(jnp.asarray(columns.codes), E2M1)).reshape(
        TOKENS // 16, 16, INPUTS
    )
    expected = np.tile(hadamard.matrix().T * 24, (1, INPUTS // 16))  # amax 1/4 becomes code 6
    wrong = int(np.sum(value != expected))
    return not wrong, f"{wrong:,} of {value.size:,} signs differ"


def rounding(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """Values between the codes, in blocks whose scale is exactly 1, rounded with several seeds.
    Both copies are examined.
    """
    rows = _blocks_of(_VALUES_OFF_GRID, _SMALL)
    columns = _blocks_of(_QUARTERS, _SMALL) if _rotates(recipe) else rows
    before = _unrotated(recipe, columns)
    seeds = [_two_copies(kernels, recipe, rows, before, seed) for seed in range(_DRAWS)]
    again = _two_copies(kernels, recipe, rows, before, 0)
    faults: list[str] = []
    worst = spread = 0.0
    for side, (where, g) in enumerate((("rows", rows), ("columns", columns))):
        values = np.stack(
            [
                np.asarray(formats.decode(jnp.asarray(copies[side].codes), E2M1)) * np.sign(g)
                for copies in seeds
            ]
        )
        x = np.abs(g)
        below, above = _neighbours(x)
        wrong = (values != below) & (values != above)
        if wrong.any():
            _, row, column = np.argwhere(wrong)[0]
            expected = f"expected {below[row, column]:g} or {above[row, column]:g}"
            faults.append(
                f"{x[row, column]:g} became {values[wrong][0]:g} along {where}, {expected}"
            )
        else:
            worst = max(worst, _largest_bias(x, values))
            spread = max(spread, _spread(x, values))
        if not np.array_equal(seeds[0][side].codes, again[side].codes):
            faults.append(f"the same seed gives other codes along {where}")
        if np.array_equal(seeds[0][side].codes, seeds[1][side].codes):
            faults.append(f"two seeds give the same codes along {where}")
    if worst > _SIGMAS:
        faults.append("biased")
    if spread > _SPREAD:
        faults.append(
            f"neighbours share random numbers: sums of draws vary {spread:.1f} times as much as "
            "independent ones"
        )
    mean = (
        f"the worst mean of 14 values is {max(worst, 0.0):.1f} standard errors from its value "
        f"(limit {_SIGMAS:g}; {_DRAWS} seeds)"
    )
    return not faults, "; ".join([*dict.fromkeys(faults[:3]), mean])


def _two_copies(
    kernels: Kernels, recipe: LinearRecipe, rows: Array, columns: Array, seed: int
) -> tuple[QuantizedCopy, QuantizedCopy]:
    """The copy of one gradient along its rows and that of another along its columns; usually the
    two are the same.
    """
    along_rows, along_columns = kernels.copies(recipe, "grad", rows, seed)
    return along_rows, along_columns if rows is columns else kernels.copies(
        recipe, "grad", columns, seed
    )[1]


def _neighbours(x: Array) -> tuple[Array, Array]:
    """The values of E2M1 around every x (0 to 6), equal where x is one of them."""
    grid = np.unique(np.abs(formats.values(E2M1)))
    return grid[np.searchsorted(grid, x, side="right") - 1], grid[
        np.searchsorted(grid, x, side="left")
    ]


def _largest_bias(x: Array, values: Array) -> float:
    """How many standard errors the worst mean of `values` (seeds, M, N) is from its x.

    Hardware draws 8 bits: its share of "up" may be 1/512 off.
    """
    worst = -np.inf
    for value in np.unique(x):
        below, above = (float(neighbour) for neighbour in _neighbours(value))
        if below == above:
            continue
        sample, share = values[:, x == value], (value - below) / (above - below)
        deviation = (above - below) * np.sqrt(share * (1 - share) / sample.size)
        worst = max(
            worst,
            (abs(float(np.mean(sample, dtype=np.float64)) - float(value)) - (above - below) / 512)
            / deviation,
        )
    return worst


def _spread(x: Array, values: Array) -> float:
    """The mean square of the sums over blocks of how often values were rounded up, in units of that
    of independent draws.

    Over blocks along rows or columns, whichever varies more; the values of one block have one sign.
    """
    below, above = _neighbours(x)
    between = above > below
    step = np.where(between, above - below, 1)
    share = np.where(between, (x - below) / step, 0)
    up = np.where(between, (values - below) / step - share, 0)
    variance, rows = share * (1 - share), len(x) // 16
    along = (((rows, 16, x.shape[1]), 1), ((len(x), -1, 16), 2))
    return max(
        float(
            np.mean(
                up.reshape(len(values), *view).sum(1 + axis) ** 2 / variance.reshape(view).sum(axis)
            )
        )
        for view, axis in along
    )


def accumulation(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """Sums whose large terms cancel. All inputs are values of the formats with exact scales, so the
    products are known exactly.
    """
    nothing = np.zeros((TOKENS, OUTPUTS), np.float32)
    a, b = _cancelling(recipe, TOKENS, INPUTS)
    long, short = _cancelling(recipe, INPUTS, TOKENS)
    x, g = (_unrotated(recipe, part) for part in (long.T, short))
    sums = {
        "y": (a, b, kernels.layer(recipe, a, b, nothing, 0)[0]),
        "dx": (a, b, kernels.layer(recipe, np.zeros_like(a), np.ascontiguousarray(b.T), a, 0)[1]),
        "dw": (long, short, kernels.layer(recipe, x, b, g, 0)[2]),
    }
    faults, total = [], 0
    for name, (left, right, ours) in sums.items():
        exact = left.astype(np.float64) @ right.astype(np.float64)
        cancelled = np.abs(exact) < np.abs(left[0, 0] * right[0, 0])
        wrong = cancelled & (ours != exact)
        total += int(np.sum(cancelled))
        if np.any(wrong):
            first = f"the first is {float(ours[wrong][0]):g}, expected {float(exact[wrong][0]):g}"
            faults.append(f"{int(np.sum(wrong)):,} of {name}; {first}")
    return (
        not faults,
        f"of {total:,} sums that cancel in y, dx and dw differ: {'; '.join(faults) or '0'}",
    )


def _cancelling(recipe: LinearRecipe, rows: int, depth: int) -> tuple[Array, Array]:
    """Matrices (rows, depth) and (depth, OUTPUTS) in whose product the largest terms cancel."""
    a, b = np.zeros((rows, depth), np.float32), np.ones((depth, OUTPUTS), np.float32)
    if recipe.fprop_x is not None and recipe.fprop_x.scaling == "nvfp4":
        a[:, 16 : depth - 16] = 6 * 2.0**-9
        a[:, 0], a[:, depth - 16] = 2688, -2688
        b[:] = 2688
        return a, b
    a[:, 1 : depth - 31] = 2.0**-9
    a[:, 0], a[:, -1] = 256, -256
    a[-1] = 0
    a[-1, 0] = 448  # the amax, so that the tensor's scale is 1
    b[0] = b[-1] = 16
    b[:, -1] = 448
    return a, b


def products(kernels: Kernels, recipe: LinearRecipe, shape: Shape = _SMALL) -> Seen:
    """The three products of known matrices against float64 products of their copies."""
    x, w, g = _matrices(shape)
    if _is_stochastic(recipe):
        grid_g = _blocks_of(_GRID, shape)
        worst = _errors(kernels, recipe, (x, w, grid_g)) | {
            "dw": _errors(kernels, recipe, (x, w, _unrotated(recipe, grid_g)))["dw"]
        }
    else:
        worst = _errors(kernels, recipe, (x, w, g))
    detail = ", ".join(f"{name} {value:.2f}" for name, value in worst.items())
    return max(
        worst.values()
    ) <= 1, f"largest error in bfloat16 ulp of the largest value: {detail} (limit 1)"


def history(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """A layer whose scales are half of what x and g would have now, and twice of what w would: w
    saturates.
    """
    matrices = _matrices(_SMALL)
    scale = scales(recipe, matrices) * np.asarray([0.5, 2, 0.5], np.float32)
    *made, amaxes = kernels.delayed(recipe, matrices, scale)
    worst = _worst(made, _exact_products(recipe, matrices, scale))
    largest = [float(np.max(np.abs(matrix))) for matrix in matrices]
    wrong = sum(float(found) != expected for found, expected in zip(amaxes, largest, strict=True))
    detail = ", ".join(f"{name} {value:.2f}" for name, value in worst.items())
    return (
        max(worst.values()) <= 1 and not wrong,
        (
            f"{wrong} of 3 amaxes differ; error in bfloat16 ulp of the largest value: {detail} "
            "(limit 1)"
        ),
    )


def _errors(kernels: Kernels, recipe: LinearRecipe, matrices: Matrices) -> dict[str, float]:
    """The largest error of y, dx and dw for these x, w and g, in bfloat16 ulp of the largest
    value.
    """
    return _worst(
        kernels.layer(recipe, *matrices, 0),
        _exact_products(recipe, matrices, scales(recipe, matrices)),
    )


def _worst(made: Iterable[Array], exact: Matrices) -> dict[str, float]:
    worst = {}
    for name, whole, expected in zip(("y", "dx", "dw"), made, exact, strict=True):
        ours = whole[np.ix_(*map(_sample, whole.shape))]
        ulp = 2.0 ** (np.floor(np.log2(np.max(np.abs(expected)))) - 7)
        worst[name] = (
            float(np.max(np.abs(ours - expected))) / ulp if np.isfinite(whole).all() else np.inf
        )
    return worst


def _sample(size: int) -> npt.NDArray[np.intp]:
    """The places of the rows or columns whose products are compared: all of a small matrix, the
    first and the last among them.
    """
    return np.unique(np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.intp))


def zeros(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """A layer whose input, weight and gradient are zero."""
    x, w, g = (
        np.zeros(shape, np.float32)
        for shape in ((TOKENS, INPUTS), (INPUTS, OUTPUTS), (TOKENS, OUTPUTS))
    )
    results = kernels.layer(recipe, x, w, g, 0)
    wrong = sum(int(np.sum(part != 0)) for part in results)
    return not wrong, f"{wrong:,} of {sum(part.size for part in results):,} values are not 0"


def repeats(kernels: Kernels, recipe: LinearRecipe) -> Seen:
    """The same layer three times, and once with another seed."""
    first, *others = (kernels.layer(recipe, *_matrices(_SMALL), 3) for _ in range(3))
    if _is_stochastic(recipe):
        for name, one, other in zip(
            ("y", "dx", "dw"), first, kernels.layer(recipe, *_matrices(_SMALL), 4), strict=True
        ):
            if name != "y" and np.array_equal(one, other):
                return False, f"two seeds give the same {name}: it is not rounded at random"
    wrong = sum(
        int(np.sum(a.view(np.uint32) != b.view(np.uint32)))
        for other in others
        for a, b in zip(first, other, strict=True)
    )
    size = 2 * sum(part.size for part in first)
    return not wrong, f"{wrong:,} of {size:,} values differ from the first time"


def _is_stochastic(recipe: LinearRecipe) -> bool:
    return any(quantizer.stochastic for quantizer in recipe.quantizers)


def _rotates(recipe: LinearRecipe) -> bool:
    return recipe.wgrad_g is not None and recipe.wgrad_g.rotated


def _unrotated(recipe: LinearRecipe, rotated: Array) -> Array:
    """The matrix whose groups of sixteen rows a recipe rotates into `rotated`; the same matrix if
    the recipe does not rotate.
    """
    if not _rotates(recipe):
        return rotated
    groups = rotated.reshape(-1, hadamard.SIZE, rotated.shape[1])
    before: Array = (
        np.einsum("ij,gjk->gik", hadamard.matrix(), groups)
        .reshape(rotated.shape)
        .astype(np.float32)
    )
    return before


def _blocks_of(between: tuple[float, ...], shape: Shape) -> Array:
    """A gradient (M, N) in which every block of sixteen, along rows or columns, holds 6, 3 and
    these fourteen values, with one sign.
    """
    block = (
        np.asarray([6.0, *between, 3.0], np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    )
    row, column = np.indices((shape[0], shape[2]))
    signed: Array = block[(row + column) % 16] * np.where(
        (row // 16 + column // 16) % 2, -1, 1
    ).astype(np.float32)
    return signed


def _matrices(shape: Shape) -> Matrices:
    """x (M, K), w (K, N) and g (M, N): normal numbers with a few outliers, bfloat16 values."""
    random, (tokens, inputs, outputs) = np.random.default_rng(2026), shape
    matrices = [
        random.standard_normal(size).astype(np.float32)
        for size in ((tokens, inputs), (inputs, outputs), (tokens, outputs))
    ]
    for matrix in matrices:
        matrix.ravel()[random.choice(matrix.size, 16, replace=False)] *= 30
    x, w, g = (matrix.astype(ml_dtypes.bfloat16).astype(np.float32) for matrix in matrices)
    return x, w, g


def _exact_products(recipe: LinearRecipe, matrices: Matrices, scales: Array) -> Matrices:
    """Y, dx and dw in float64, at the sampled rows and columns of each."""
    x, w, g = zip(matrices, scales, strict=True)

    def copy(operand: tuple[Array, Any], axis: int, quantizer: Quantizer | None) -> Array:
        """The copy that is contracted along `axis`, at the sampled places of its other axis."""
        matrix, scale = operand
        places = _sample(matrix.shape[1 - axis])
        if quantizer is None:
            return np.take(matrix, places, 1 - axis).astype(np.float64)
        # a gradient that is rounded at random consists of values of the format
        nearest = replace(quantizer, stochastic=False, sr_bits=16)
        rounded = _rounded(
            jnp.asarray(matrix, jnp.bfloat16),
            axis,
            nearest,
            jnp.float32(scale) if quantizer.delayed else None,
        )
        return np.asarray(jnp.take(rounded, places, 1 - axis), np.float64)

    y = copy(x, 1, recipe.fprop_x) @ copy(w, 0, recipe.fprop_w)
    dx = copy(g, 1, recipe.dgrad_g) @ copy(w, 1, recipe.dgrad_w).T
    dw = copy(x, 0, recipe.wgrad_x).T @ copy(g, 0, recipe.wgrad_g)
    return y, dx, dw


@partial(jax.jit, static_argnums=(1, 2))
def _rounded(x: jax.Array, axis: int, quantizer: Quantizer, scale: jax.Array | None) -> jax.Array:
    return dequantize(quantize(x, axis, quantizer, scale=scale), axis, quantizer)
