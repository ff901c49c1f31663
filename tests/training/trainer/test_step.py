"""The compiled step: on a GPU nothing in it may wait for the host."""

import jax.numpy as jnp
import pytest

from training.arithmetic import quantize
from training.rules import PROJECTIONS, Recipe
from training.segments import uniform
from training.spec import Model, Schedule
from training.trainer import step
from training.trainer.model import decoder, initial_parameters

SHAPE = Model(vocab_size=32, d_model=64, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=64)


def program(recipe: Recipe, platform: str) -> str:
    """The text of a block of steps before XLA compiles it."""
    model = decoder(SHAPE, uniform(recipe, SHAPE.n_layers), fast_bf16=True)
    length = quantize.HISTORY_LENGTH if model.delayed else 0
    parameters = initial_parameters(SHAPE, 0, 0)
    scales = quantize.initial_scales(SHAPE.n_layers, len(PROJECTIONS), length)
    state = step.State(parameters, step.initial_state(parameters), scales)
    tokens = jnp.zeros((1, 2, 33), jnp.int32)
    inputs = step.Inputs(tokens, jnp.int32(0), jnp.int32(1), jnp.zeros(2, jnp.uint32), step.settings(Schedule()))
    return step.block.trace(model, step.Sharing(1, 1), state, inputs).lower(lowering_platforms=(platform,)).as_text()


def branches(text: str) -> int:
    return text.count("stablehlo.case") + text.count("stablehlo.if")


@pytest.mark.usefixtures("gpu_program")
@pytest.mark.parametrize("recipe", ["fp8_current", "fp8_delayed", "mxfp8", "nvfp4"])
def test_a_gpus_step_has_no_branch(recipe):
    assert branches(program(recipe, "cuda")) == 0


def test_a_cpus_step_branches_to_save_work():
    assert branches(program("nvfp4", "cpu")) > 10  # so that the test above would see a branch


def test_layers_of_one_shape_and_recipe_are_traced_once():
    lines = program("nvfp4", "cpu").splitlines()
    layers = [line for line in lines if "func.func private @_forward" in line or "func.func private @_backward" in line]
    assert 0 < len(layers) <= 2 * len(PROJECTIONS)
    assert sum("call @_forward" in line for line in lines) == len(PROJECTIONS)
