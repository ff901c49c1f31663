import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from training.arithmetic.hadamard import SIGNS, matrix, rotate, sylvester


def test_matrix_is_the_reference_matrix_and_orthogonal(te_vectors):
    np.testing.assert_array_equal(sylvester(16), scipy.linalg.hadamard(16))
    np.testing.assert_array_equal(
        matrix(), np.asarray(SIGNS)[:, None] * scipy.linalg.hadamard(16) / 4
    )
    np.testing.assert_array_equal(matrix() @ matrix().T, np.eye(16))
    np.testing.assert_array_equal(matrix(), te_vectors["rht/matrix_f32"])


def test_rotation_is_the_plain_product_on_every_group():
    x = np.random.default_rng(0).integers(-8, 8, (48, 5)).astype(np.float32)  # exact in any order
    expected = np.einsum("gsk,st->gtk", x.reshape(3, 16, 5), matrix()).reshape(48, 5)
    for run in (lambda f: f, jax.jit):
        np.testing.assert_array_equal(np.asarray(run(rotate)(jnp.asarray(x))), expected)


def test_bfloat16_in_is_summed_in_float32_and_rounded_once():
    x = jnp.asarray(np.random.default_rng(1).standard_normal((32, 7)), jnp.bfloat16)
    exact = np.einsum(
        "gsk,st->gtk", np.asarray(x, np.float64).reshape(2, 16, 7), matrix().astype(np.float64)
    ).reshape(32, 7)
    rotated = rotate(x)
    assert rotated.dtype == jnp.bfloat16
    np.testing.assert_array_equal(
        np.asarray(rotated, np.float32),
        np.asarray(jnp.asarray(exact, jnp.float32).astype(jnp.bfloat16), np.float32),
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_a_gpus_rotation_has_the_bits_of_a_cpus(request, dtype):
    random = np.random.default_rng(4)
    # no order of sums is exact
    x = jnp.asarray(
        random.standard_normal((64, 24)) * np.exp(8 * random.standard_normal((64, 24))), dtype
    )
    on_cpu = np.asarray(jax.jit(rotate)(x), np.float32)
    request.getfixturevalue("gpu_program")
    np.testing.assert_array_equal(np.asarray(jax.jit(rotate)(x), np.float32), on_cpu)
    # the stages are put together from parts, which a GPU copies
    assert "concatenate" not in jax.jit(rotate).lower(x).as_text()


def test_rotation_cancels_in_the_weight_gradient():
    random = np.random.default_rng(2)
    x, g = (random.standard_normal((64, n)).astype(np.float32) for n in (8, 12))
    rotated = np.asarray(rotate(jnp.asarray(x))).T @ np.asarray(rotate(jnp.asarray(g)))
    np.testing.assert_allclose(rotated, x.T @ g, rtol=0, atol=2e-5)


def test_an_outlier_is_spread_over_its_group():
    x = np.zeros((16, 1), np.float32)
    x[3] = 64
    np.testing.assert_array_equal(np.abs(np.asarray(rotate(jnp.asarray(x)))), 16)
