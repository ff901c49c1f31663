"""Engine transformer_engine: our own trainer whose quantized linear layers are Transformer Engine's `dense`.

What it answers: y, dx and dw of one linear layer as NVIDIA's kernels compute them, instead of `training.arithmetic.linear.linear`.

Model, data, optimizer, checkpoints and what is recorded are those of engine emulated; layers that a policy leaves in bf16 are XLA's
products. The recipe is built from the very operands that the emulation quantizes (`te_recipe`), and never from Transformer Engine's
environment variables. Stochastic rounding is drawn from the seed of (run, step, layer), as in the emulation. Under delayed scaling
its kernels quantize with our scale and return the amax; `training.arithmetic.delayed_scaling` makes the next scale by the same formula,
so that pieces of a batch and checkpoints work as they do elsewhere.

The assumption that can fail: the names in transformer_engine.jax are those of 2.20.2. If they change, the run ends with an error;
there is no fallback.

**Not yet run on a GPU.** The wiring is tested against Transformer Engine's own Python code, with its compiled part stubbed.

Source: Transformer Engine 2.20.2, jax/dense.py, jax/quantize/{helper,quantizer,metadata}.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from training.arithmetic import random_bits
from training.arithmetic.layer_statistics import quiet_statistics
from training.arithmetic.linear import Channel
from training.arithmetic.recipes import LinearRecipe
from training.environment.transformer_engine_installed import jax_modules

# Transformer Engine's update puts the newest amax last; a history of one would lose it.
_HISTORY = 2


@contextmanager
def kernels() -> Iterator[None]:
    """Context in which steps are compiled and run; it informs Transformer Engine that nothing is sharded."""
    te = jax_modules()
    with te.sharding.global_shard_guard(te.sharding.MeshResource()):
        yield


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, channel: Channel) -> jax.Array:
    """y (M, N) = x (M, K) w (K, N) under a quantized recipe; all as `training.arithmetic.linear.linear` has it, but for the statistics.

    Of the channel's report the amaxes are there under delayed scaling only, the count of non-finite values always.
    """
    y_MN, _ = _forward(recipe, x_MK, w_KN, seed, channel)
    return y_MN


def _forward(recipe: LinearRecipe, x_MK: jax.Array, w_KN: jax.Array, seed: jax.Array, channel: Channel) -> tuple[jax.Array, Any]:
    y_MN, pull = jax.vjp(_dense, x_MK, w_KN, _quantizers(recipe, seed, channel.scale))
    return y_MN, (pull, _nonfinite(x_MK) + _nonfinite(w_KN))


def _backward(recipe: LinearRecipe, saved: Any, g_MN: jax.Array) -> tuple[jax.Array, jax.Array, None, Channel]:
    pull, nonfinite = saved
    dx_MK, dw_KN, after = pull(g_MN)
    amaxes = [quantizer.amax_history[-1] if recipe.delayed else jnp.float32(0) for quantizer in (after.x, after.kernel, after.dgrad)]
    report = jnp.stack([*amaxes, nonfinite + _nonfinite(g_MN)])
    return dx_MK, dw_KN, None, Channel(jnp.zeros(3, jnp.float32), report, quiet_statistics())


linear.defvjp(_forward, _backward)


def te_recipe(recipe: LinearRecipe) -> Any:
    """Transformer Engine's recipe for what the emulation would quantize; raises ValueError where it has none."""
    recipes = jax_modules().recipe
    x, w, g = recipe.wgrad_x, recipe.fprop_w, recipe.dgrad_g
    if x is None or w is None or g is None:
        raise ValueError(f"recipe {recipe.name} leaves an operand unquantized, expected one that quantizes all three")
    if x.scaling == "tensor":
        return recipes.DelayedScaling() if x.delayed else recipes.Float8CurrentScaling()
    if x.scaling == "nvfp4":
        return recipes.NVFP4BlockScaling(
            disable_rht=not x.rotated, disable_stochastic_rounding=not g.stochastic, disable_2d_quantization=not w.two_dimensional
        )
    if recipe.name == "mxfp8":
        return recipes.MXFP8BlockScaling()
    raise ValueError(f"recipe {recipe.name}: Transformer Engine has none like it")


def _dense(x_MK: jax.Array, w_KN: jax.Array, quantizers: Any) -> jax.Array:
    y_MN: jax.Array = jax_modules().dense.dense(x_MK, w_KN, contracting_dims=((1,), (0,)), quantizer_set=quantizers)
    return y_MN


def _quantizers(recipe: LinearRecipe, seed: jax.Array, scale: jax.Array) -> Any:
    """Transformer Engine's quantizers of x, kernel and gradient with their state, as its Flax modules would make them."""
    quantize = jax_modules().quantize
    x, kernel, grad = (quantize.QuantizeMeta(**_state(recipe, number, seed, scale)) for number in range(3))
    states = quantize.QuantizeMetaSet(x=x, kernel=kernel, grad=grad)
    return quantize.QuantizerFactory.create_set(fp8_recipe=te_recipe(recipe), quantize_meta_set=states)


def _state(recipe: LinearRecipe, number: int, seed: jax.Array, scale: jax.Array) -> dict[str, Any]:
    """What the quantizer of x (0), kernel (1) or gradient (2) is told beside its type."""
    operand = (recipe.wgrad_x, recipe.dgrad_w, recipe.wgrad_g)[number]
    if operand is None or operand.scaling == "mx":
        return {}
    if operand.scaling == "tensor":
        if not operand.delayed:
            return {}
        return {"scale": scale[number].reshape(1), "amax_history": jnp.zeros(_HISTORY, jnp.float32)}
    options: dict[str, Any] = {"use_rht": operand.rotated}
    if operand.stochastic:
        # Four words of 31 bits a device, as Transformer Engine draws them; its kernel takes both copies of g from one stream.
        words = jnp.stack([random_bits.fold(seed, word) >> 1 for word in range(4)])
        options["stochastic_rounding_rng_state"] = words.reshape(1, 4)
    return options


def _nonfinite(x: jax.Array) -> jax.Array:
    """How many elements are NaN or infinite (float32 scalar)."""
    return jnp.sum(~jnp.isfinite(x), dtype=jnp.float32)
