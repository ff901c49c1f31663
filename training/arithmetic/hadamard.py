"""The random Hadamard transform (RHT) of NVFP4 training: spread an outlier over sixteen neighbours
before quantizing.

What it answers: which rotation is applied to the two operands of wgrad, and why does nothing have
to undo it?

    R = diag(s) H / 4,   R R^T = I
    H = the 16 x 16 Sylvester matrix of +-1,   s = sixteen fixed signs

wgrad is dw = x^T g, a sum over tokens. Cut the tokens into groups of sixteen and rotate each
group of x and of g by the same R: (R^T x)^T (R^T g) = x^T R R^T g = x^T g. The product does not
change, so nothing has to be undone afterwards. Only the quantizer's input changes. Sixteen FP4
codes share one scale, which the largest of them sets: next to a 64, values near 1 are below half
of the smallest step (64 / 6 / 2) and become 0. After the rotation the 64 is spread over sixteen
numbers of 16, each plus or minus a quarter of the sum of the others, which is again near 1: all
of them land on the grid, and x^T g keeps the contribution of the small values.

H is a Kronecker product of four 2 x 2 butterflies, and so also of two 4 x 4 matrices: H16 = H4
(x) H4. Four rounds of sums and differences need 4 additions per number, the plain product 15. Two
stages of 4 x 4, with two rounds each, run faster in XLA than four stages, because every stage is
a pass over memory.

The assumption that can fail: float32 sums of sixteen bfloat16 numbers are exact while the
exponents of a group span at most 12 bits; beyond that, the order of summation shows in the last
bit, before the result is rounded to bfloat16.

Source: Transformer Engine 2.20.2, jax/quantize/hadamard.py (sign vector; R applied to the
transposed operand, float32 accumulation, result in the input's type); arXiv 2509.25149, section 4
(wgrad only; one fixed sign vector is enough).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from training.arithmetic import formats
from training.arithmetic.formats import to_bfloat16 as as_bfloat16

SIZE = 16
SIGNS: tuple[int, ...] = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)


def sylvester(size: int) -> npt.NDArray[np.float32]:
    """The size x size Hadamard matrix of +-1 by Sylvester's doubling; size is a power of two."""
    matrix = np.ones((1, 1), np.float32)
    while matrix.shape[0] < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def matrix() -> npt.NDArray[np.float32]:
    """R (16, 16): a row vector v of sixteen values is rotated as v @ R. Entries +-0.25, exact in
    bfloat16.
    """
    return (np.asarray(SIGNS, np.float32)[:, None] * sylvester(SIZE) / 4).astype(np.float32)


def _stage(parts: list[jax.Array]) -> list[jax.Array]:
    """H4 applied to four arrays: two rounds of sums and differences."""
    a, b, c, d = parts
    ab, cd, a_b, c_d = a + b, c + d, a - b, c - d
    return [ab + cd, a_b + c_d, ab - cd, a_b - c_d]


def rotate(x_MK: jax.Array) -> jax.Array:
    """x (M, K) with every group of sixteen rows rotated by R, in x's type; M is a multiple of 16.

    Column k of group m becomes x[16m:16m+16, k] @ R, summed in float32 and rounded once if x is
    bfloat16.
    """
    if formats.on_cpu():
        return _rotated(x_MK, _staged_rotation)
    # Whole arrays before and after: otherwise XLA computes x again for each of the sixteen terms,
    # and the terms again for each use.
    return formats.materialized(_rotated(formats.materialized(x_MK)[0], _summed_rotation))[0]


def _rotated(x_MK: jax.Array, rotation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    rows, columns = x_MK.shape
    rotated = rotation(x_MK.astype(jnp.float32).reshape(rows // SIZE, SIZE, columns)).reshape(
        rows, columns
    )
    if x_MK.dtype == jnp.bfloat16:
        return as_bfloat16(rotated)
    return rotated


def _staged_rotation(x_GSK: jax.Array) -> jax.Array:
    """x R for every group, by two stages of 4 x 4."""
    groups, _, columns = x_GSK.shape
    # scaled first: sums near the largest float would overflow
    quarter = np.asarray(SIGNS, np.float32).reshape(1, SIZE, 1) / 4
    x_GABK = (x_GSK * quarter).reshape(groups, 4, 4, columns)
    fast = jnp.stack(_stage([x_GABK[:, :, i] for i in range(4)]), axis=2)
    return jnp.stack(_stage([fast[:, i] for i in range(4)]), axis=1).reshape(x_GSK.shape)


def _summed_rotation(x_GSK: jax.Array) -> jax.Array:
    """x R for every group, each number by itself: sixteen terms, added in the order of the two
    stages, so that the bits are the same.

    On a GPU the stages were several kernels with copies between them, an eighth of a step of NVFP4;
    this is one.
    """
    terms: list[jax.Array] = [
        x_GSK[:, i : i + 1] * row[None, :, None] for i, row in enumerate(matrix())
    ]
    while len(terms) > 1:
        terms = [left + right for left, right in zip(terms[::2], terms[1::2], strict=True)]
    (rotated,) = terms
    return rotated
