"""The compiled step: on a GPU nothing in it may wait for the host."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from training.arithmetic import delayed_scaling
from training.overrides import Override
from training.spec import Data, Model, RunSpec, Schedule
from training.step_values import PROJECTIONS
from training.trainer import optimizer, step
from training.trainer.model import decoder, initial_parameters

SPEC = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=64, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=64),
    data=Data(sequence_length=32, batch_size=2),
    schedule=Schedule(),
    layer_policy="all_linears",
    seed=0,
    replicate=0,
    devices=1,
)
# the others have nvfp4
PROJECTION_OF = {"fp8_current": "query", "fp8_delayed": "out", "mxfp8": "gate"}


def program(spec: RunSpec, platform: str) -> str:
    """The text of a block of steps before XLA compiles it."""
    model = decoder(spec.model, spec.segments[0], fast_bf16=True)
    length = delayed_scaling.HISTORY_LENGTH if model.delayed else 0
    parameters = initial_parameters(spec.model, 0, 0)
    scales = delayed_scaling.initial_scales(spec.model.n_layers, len(PROJECTIONS), length)
    state = step.State(parameters, optimizer.initial_state(parameters), scales)
    tokens = jnp.zeros((1, 2, 33), jnp.int32)
    inputs = step.Inputs(
        tokens,
        jnp.int32(0),
        jnp.int32(1),
        jnp.zeros(2, jnp.uint32),
        optimizer.settings(spec.schedule),
    )
    return (
        step.block.trace(model, step.Sharing(1, 1), state, inputs)
        .lower(lowering_platforms=(platform,))
        .as_text()
    )


def branches(text: str) -> int:
    return text.count("stablehlo.case") + text.count("stablehlo.if")


@pytest.mark.usefixtures("gpu_program")
def test_a_gpus_step_has_no_branch():
    """In one program, a layer for each recipe."""
    overrides = tuple(
        Override(recipe=recipe, projections=(name,)) for recipe, name in PROJECTION_OF.items()
    )
    mixed = replace(SPEC, overrides=overrides)
    assert {arithmetic.recipe for *_, arithmetic in mixed.segments[0].cells()} == {
        "nvfp4",
        *PROJECTION_OF,
    }
    assert branches(program(mixed, "cuda")) == 0


def test_a_cpus_step_branches_to_save_work():
    assert branches(program(SPEC, "cpu")) > 10  # so that the test above would see a branch


def test_layers_of_one_shape_and_recipe_are_traced_once():
    lines = program(SPEC, "cpu").splitlines()
    layers = [
        line
        for line in lines
        if "func.func private @_forward" in line or "func.func private @_backward" in line
    ]
    assert 0 < len(layers) <= 2 * len(PROJECTIONS)
    assert sum("call @_forward" in line for line in lines) == len(PROJECTIONS)
