"""Engine transformer_engine: our own trainer whose quantized linear layers are Transformer Engine's
`dense`.

What it answers: y, dx and dw of one linear layer as NVIDIA's kernels compute them, instead of
`training.arithmetic.linear.linear`.

Model, data, optimizer, checkpoints and records are those of engine emulated; layers that the policy
leaves in bf16 use XLA's products. The recipe is built from the same operands that the emulation
quantizes (`te_recipe`), never from Transformer Engine's environment variables. Stochastic rounding
is drawn from the key of (run, step, layer), as in the emulation. Under delayed scaling the kernels
quantize with our scale and return the amax, and `training.arithmetic.delayed_scaling` computes the
next scale by the same formula, so that pieces of a batch and checkpoints work as under engine
emulated.

The assumption that can fail: the names in transformer_engine.jax are those of 2.20.2. If they
change, the run ends with an error; there is no fallback.

**Not yet run on a GPU.** The wiring is tested against Transformer Engine's own Python code, with
its compiled part stubbed.

Source: Transformer Engine 2.20.2, jax/dense.py, jax/quantize/{helper,quantizer,metadata}.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from training.arithmetic.formats import E5M2
from training.arithmetic.layer_statistics import quiet_statistics
from training.arithmetic.linear import Channel
from training.arithmetic.quantize import nonfinite
from training.arithmetic.random_bits import Key
from training.arithmetic.recipes import LinearRecipe
from training.environment.transformer_engine_installed import jax_modules

# Transformer Engine's update puts the newest amax last; a history of one would lose it.
_HISTORY = 2


@contextmanager
def kernels() -> Iterator[None]:
    """Context in which steps are compiled and run; it informs Transformer Engine that nothing is
    sharded.
    """
    te = jax_modules()
    with te.sharding.global_shard_guard(te.sharding.MeshResource()):
        yield


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(
    recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, key: Key, channel: Channel
) -> jax.Array:
    """Returns y (M, N) = x (M, K) w (K, N) under a quantized recipe, like
    `training.arithmetic.linear.linear` but without statistics.

    In the channel's report the amaxes are 0 unless scaling is delayed; the count of non-finite
    values is always there.
    """
    y_MN, _ = _forward(recipe, x_MK, w_KN, key, channel)
    return y_MN


def _forward(
    recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, key: Key, channel: Channel
) -> tuple[jax.Array, Any]:
    y_MN, pull = jax.vjp(_dense, x_MK, w_KN, _quantizers(recipe, key, channel.scale))
    return y_MN, (pull, nonfinite(x_MK) + nonfinite(w_KN))


def _backward(
    recipe: LinearRecipe, saved: Any, g_MN: jax.Array
) -> tuple[jax.Array, jax.Array, None, Channel]:
    pull, nonfinite_before = saved
    dx_MK, dw_KN, after = pull(g_MN)
    amaxes = [
        quantizer.amax_history[-1] if recipe.delayed else jnp.float32(0)
        for quantizer in (after.x, after.kernel, after.dgrad)
    ]
    report = jnp.stack([*amaxes, nonfinite_before + nonfinite(g_MN)])
    return dx_MK, dw_KN, None, Channel(jnp.zeros(3, jnp.float32), report, quiet_statistics())


linear.defvjp(_forward, _backward)


def te_recipe(recipe: LinearRecipe) -> Any:
    """Returns Transformer Engine's recipe for the operands that the emulation quantizes; raises
    ValueError if it has none.
    """
    recipes = jax_modules().recipe
    x, w, g = recipe.wgrad_x, recipe.fprop_w, recipe.dgrad_g
    if x is None or w is None or g is None:
        raise ValueError(
            f"recipe {recipe.name} leaves an operand unquantized, expected one that quantizes all "
            "three"
        )
    formats = {"fp8_format": recipes.Format.HYBRID if g.format == E5M2 else recipes.Format.E4M3}
    if x.delayed:
        rule = recipe.delayed_scaling
        algorithm = "most_recent" if rule.most_recent else "max"
        return recipes.DelayedScaling(
            margin=rule.margin,
            amax_history_len=rule.history_length,
            amax_compute_algo=algorithm,
            **formats,
        )
    if x.scaling == "tensor":
        return recipes.Float8CurrentScaling(**formats)
    if x.scaling == "nvfp4":
        return recipes.NVFP4BlockScaling(
            disable_rht=not x.rotated,
            disable_stochastic_rounding=not g.stochastic,
            disable_2d_quantization=not w.two_dimensional,
        )
    if recipe.name == "mxfp8":
        return recipes.MXFP8BlockScaling(**formats)
    raise ValueError(f"recipe {recipe.name}: Transformer Engine has none like it")


def _dense(x_MK: jax.Array, w_KN: jax.Array, quantizers: Any) -> jax.Array:
    y_MN: jax.Array = jax_modules().dense.dense(
        x_MK, w_KN, contracting_dims=((1,), (0,)), quantizer_set=quantizers
    )
    return y_MN


def quantized(
    recipe: LinearRecipe, number: int, x_MK: jax.Array, key: Key, scale: jax.Array
) -> Any:
    """Returns Transformer Engine's quantized tensor (row and column copies) of x (0), kernel (1) or
    gradient (2) under a recipe.

    scale: float32 scalar, used under delayed scaling.
    """
    quantizers = _quantizers(recipe, key, jnp.full(3, scale, jnp.float32))
    return jax_modules().quantization.quantize(
        x_MK, (quantizers.x, quantizers.kernel, quantizers.dgrad)[number]
    )


def _quantizers(recipe: LinearRecipe, key: Key, scale: jax.Array) -> Any:
    """Returns Transformer Engine's quantizers of x, kernel and gradient with their state, as its
    Flax modules make them.
    """
    quantize = jax_modules().quantize
    x, kernel, grad = (
        quantize.QuantizeMeta(**_state(recipe, number, key, scale)) for number in range(3)
    )
    states = quantize.QuantizeMetaSet(x=x, kernel=kernel, grad=grad)
    return quantize.QuantizerFactory.create_set(
        fp8_recipe=te_recipe(recipe), quantize_meta_set=states
    )


def _state(recipe: LinearRecipe, number: int, key: Key, scale: jax.Array) -> dict[str, Any]:
    """Returns the arguments of the quantizer of x (0), kernel (1) or gradient (2) in addition to
    its type.
    """
    operand = (recipe.wgrad_x, recipe.dgrad_w, recipe.wgrad_g)[number]
    if operand is None or operand.scaling == "mx":
        return {}
    if operand.scaling == "tensor":
        if not operand.delayed:
            return {}
        return {"scale": scale[number].reshape(1), "amax_history": jnp.zeros(_HISTORY, jnp.float32)}
    options: dict[str, Any] = {"use_rht": operand.rotated}
    if operand.stochastic:
        # Four words of 31 bits per device, as Transformer Engine draws them; its kernel rounds both
        # copies of g from one stream. The first two together hold all bits of the key's `high`,
        # which no other tensor of the run has.
        high, low = key.words()
        words = jnp.stack([high >> 1, ((high & 1) << 30) | (low >> 2), low >> 1, (high ^ low) >> 1])
        options["stochastic_rounding_rng_state"] = words.reshape(1, 4)
    return options
