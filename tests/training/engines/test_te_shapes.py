"""The sizes that we refuse, against those that Transformer Engine's own Python code refuses when it
evaluates its kernels abstractly.
"""

from itertools import product

import jax
import jax.numpy as jnp
import pytest

from tests.conftest import some_of
from training.arithmetic import random_bits
from training.arithmetic.linear import quiet_channel
from training.arithmetic.recipes import linear_recipe
from training.engines import transformer_engine
from training.environment.transformer_engine_installed import jax_modules
from training.gemm_sizes import GemmSize, misfit
from training.overrides import GEMMS
from training.segments import Arithmetic
from training.switches import NO_SWITCHES, Switches

pytestmark = pytest.mark.filterwarnings("ignore:jax.interpreters.pxla:DeprecationWarning")
RECIPES = (
    *(
        (name, NO_SWITCHES)
        for name in (
            "bf16",
            "fp8_current",
            "fp8_delayed",
            "mxfp8",
            "nvfp4",
            "nvfp4_no_rht",
            "nvfp4_no_sr",
            "nvfp4_no_rht_no_sr",
        )
    ),
    ("nvfp4", Switches(rht=False, weight_scaling="1d")),
)


@pytest.fixture
def kernels(stubbed_te, monkeypatch):
    """Transformer Engine's primitives, which are evaluated for their shapes and never run."""
    stubbed_te(100)
    monkeypatch.setenv("NVTE_JAX_CUSTOM_CALLS", "true")
    with transformer_engine.kernels():
        yield


def like(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def is_taken(function, *arguments):
    try:
        jax.eval_shape(function, *arguments)
    except (AssertionError, ValueError) as error:
        assert any(word in str(error) for word in ("multiple of", "divisible by")), error  # noqa: PT017
        return False
    return True


def fits(recipe, switches, **sizes):
    cells = [("query", gemm, Arithmetic(recipe, switches)) for gemm in GEMMS]
    return (
        misfit(
            cells,
            lambda _: {name: GemmSize(value, name) for name, value in sizes.items()},
            native=True,
        )
        is None
    )


SIZES = [*product((24, 32, 48, 64), (48, 64, 96, 128), (48, 64, 96, 128))]


@pytest.mark.parametrize(
    ("place", "name", "switches"), [(place, *recipe) for place, recipe in enumerate(RECIPES)]
)
def test_the_same_sizes_of_a_layer_are_taken(place, name, switches, kernels):
    """All sizes, or an eighth of them where tests are to be quick, other ones for each recipe."""
    recipe = linear_recipe(name, switches, fast_bf16=True)
    if not recipe.quantized:
        assert fits(name, switches, M=3, K=5, N=7)
        return

    def layer(x, w, g):
        y, pull = jax.vjp(
            lambda x, w: transformer_engine.linear(
                recipe, x, w, random_bits.key(0), quiet_channel()
            ),
            x,
            w,
        )
        return y, *pull(g)

    results = {
        sizes: (
            is_taken(
                layer, like(sizes[0], sizes[1]), like(sizes[1], sizes[2]), like(sizes[0], sizes[2])
            ),
            fits(name, switches, **named),
        )
        for sizes in (*some_of(SIZES, 8, place), SIZES[-1])  # the last is taken by all
        for named in [dict(zip("MKN", sizes, strict=True))]
    }
    assert {sizes: answers for sizes, answers in results.items() if answers[0] != answers[1]} == {}
    assert {answers[1] for answers in results.values()} == {True, False}


@pytest.mark.parametrize(
    ("place", "name"), [*enumerate(("fp8_current", "mxfp8", "nvfp4", "nvfp4_no_rht"))]
)
def test_the_same_sizes_are_taken_where_tensors_are_not_flattened(place, name, kernels):
    """MaxText passes (batch, sequence, width) and (batch, sequence, heads, head size)."""
    recipe = linear_recipe(name, fast_bf16=True)

    def layer(x, w, contracted):
        quantizers = transformer_engine._quantizers(recipe, random_bits.key(0), jnp.ones(3))
        y, pull = jax.vjp(
            lambda x, w: jax_modules().dense.dense(
                x, w, contracting_dims=contracted, quantizer_set=quantizers
            ),
            x,
            w,
        )
        return y, *pull(jnp.zeros(y.shape, y.dtype))

    for length, size in some_of([*product((8, 16, 32, 48), (8, 16, 32))], 2, place):
        batch, heads = 384 // length, 128 // size
        query = is_taken(
            lambda x, w: layer(x, w, ((2,), (0,))), like(batch, length, 128), like(128, heads, size)
        )
        out = is_taken(
            lambda x, w: layer(x, w, ((2, 3), (0, 1))),
            like(batch, length, heads, size),
            like(heads, size, 128),
        )
        assert query == out == fits(name, NO_SWITCHES, M=384, K=128, N=128, T=length, E=size), (
            length,
            size,
        )
