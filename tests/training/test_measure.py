"""What is chosen while the program runs gives the bits of what is compiled in."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity_lab.gradient_error import SUMS
from parity_lab.training.fixed_weights import _gradient, gradients, losses
from parity_lab.training.forks import forked
from parity_lab.training.menu import SCALE_FORMAT, Unit, measured
from parity_lab.training.menu_layer import menu_decoder
from training.arithmetic import random_bits
from training.overrides import Override
from training.spec import Data, Model, RunSpec, Schedule
from training.step_values import PROJECTIONS
from training.switches import Switches
from training.trainer.data import Corpus, validation_batches
from training.trainer.model import decoder
from training.trainer.run import TrainingRun
from training.trainer.step import _piece_gradients

SPEC = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32),
    data=Data(
        source="text", path="given", sequence_length=16, batch_size=2, validation_fraction=0.2
    ),
    schedule=Schedule(steps=20, warmup_steps=2, learning_rate=1e-2),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
MIXED = replace(
    SPEC,
    overrides=(
        Override(recipe="bf16", projections=("gate",), gemms=("fprop",)),
        Override(recipe="mxfp8", projections=("down",), gemms=("dgrad",)),
        Override(
            recipe="nvfp4", switches=Switches(row_scaled_activation=True), projections=("up",)
        ),
    ),
)
SEED = 7


@cache
def corpus() -> Corpus:
    tokens = (np.arange(4000) ** 2 % 13).astype(np.uint8)
    return Corpus(
        train=tokens[:3500], validation=tokens[3500:], largest=12, digest="d", description="squares"
    )


@pytest.fixture(scope="module")
def state():
    return TrainingRun(SPEC, corpus(), fast_bf16=True).state


@pytest.fixture(scope="module")
def batches():
    return validation_batches(corpus(), SPEC.data)[:3]


@pytest.fixture(scope="module")
def menu():
    return measured(MIXED.segments[0], 1)


@pytest.fixture(scope="module")
def model(menu):
    return menu_decoder(SPEC.model, menu.arithmetics, [menu.on, menu.off], fast_bf16=True)


def chosen_gradient(model, state, tokens, choice, seed=SEED):
    return _gradient(
        model,
        state.parameters,
        state.scales.scale,
        tokens,
        jnp.asarray(choice),
        random_bits.key(run=(0, seed)),
        jnp.float32(0),
    )


def test_a_choice_gives_the_bits_of_what_is_compiled_in(menu, model, state, batches):
    """Every GEMM takes a recipe of its own: the loss, and the gradients of all layers."""
    compiled = decoder(SPEC.model, MIXED.segments[0], fast_bf16=True)
    tokens = jnp.asarray(batches[0])
    piece = jax.jit(_piece_gradients, static_argnums=0)(
        compiled, state, tokens, random_bits.key(run=(0, SEED)), jnp.float32(0)
    )
    loss = next(losses(model, state, batches, [menu.on]))
    assert float(piece.lm_loss) == loss[0]
    expected = {name: piece.gradient["blocks"][0][name] for name in PROJECTIONS}
    for name, got in chosen_gradient(model, state, tokens, menu.on)[0].items():
        np.testing.assert_array_equal(got, expected[name], err_msg=name)


def test_only_fprop_moves_the_loss(menu, model, state, batches):
    units = [Unit(0, "up", gemm) for gemm in ("fprop", "dgrad", "wgrad")]
    on, fprop, dgrad, wgrad = losses(
        model, state, batches, [menu.on, *(menu.without([unit]) for unit in units)]
    )
    assert on.shape == (3,)
    assert (on != fprop).any()
    assert (on == dgrad).all()
    assert (on == wgrad).all()


def test_the_sums_of_gradients_are_those_of_the_formula(menu, model, state, batches):
    unit, seeds = Unit(0, "up", "wgrad"), (1, 2, 3)
    off = np.zeros_like(menu.on)
    first, second = gradients(
        model, state, batches[:2], [menu.on, menu.alone([unit]), off], seeds, 0.0
    )
    assert first.shape == (3, 1, len(PROJECTIONS), len(SUMS))
    own, alone, none = (
        dict(zip(SUMS, np.moveaxis(batch[0], -1, 0), strict=True)) for batch in second
    )
    assert (none["error"] == 0).all()
    np.testing.assert_allclose(none["own"], none["reference"], rtol=1e-6)
    at = PROJECTIONS.index("up")
    # wgrad reaches the gradient of its own weight alone
    assert (np.delete(alone["error"], at) == 0).all()
    assert alone["error"][at] > 0
    tokens = jnp.asarray(batches[1])
    got = np.stack(
        [
            np.asarray(chosen_gradient(model, state, tokens, menu.on, seed)[0]["up"], np.float64)
            for seed in seeds
        ]
    )
    reference = np.asarray(chosen_gradient(model, state, tokens, off)[0]["up"], np.float64)
    error = got - reference
    expected = {
        "reference": (reference**2).sum(),
        "dot": (got * reference).sum() / 3,
        "own": (got**2).sum() / 3,
        "error": (error**2).sum() / 3,
        "systematic": ((error.sum(0) ** 2).sum() - (error**2).sum()) / 6,
    }
    for name, value in expected.items():
        assert own[name][at] == pytest.approx(value, rel=1e-3), name
    with pytest.raises(ValueError, match="at least 2"):
        next(gradients(model, state, batches, [menu.on], seeds[:1], 0.0))


def test_the_menu_has_what_the_run_quantizes_and_its_ingredients():
    plain = measured(SPEC.segments[0], 1)
    assert {unit.projection for unit in plain.units} == {"gate", "up", "down"}
    assert [unit.gemm for unit in plain.units] == ["fprop"] * 3 + ["dgrad"] * 3 + ["wgrad"] * 3
    assert set(plain.ingredients) == {"rht", "sr", "2d", SCALE_FORMAT}
    assert plain.arithmetics[0].recipe == "bf16"
    assert (plain.without(plain.units) == 0).all()
    assert (plain.alone(plain.units) == plain.on).all()
    assert len({unit.name for unit in plain.units}) == 9
    for name, missing in {
        "nvfp4_no_rht": "rht",
        "nvfp4_no_sr": "sr",
        "nvfp4_1d_weights": "2d",
    }.items():
        assert missing not in measured(replace(SPEC, recipe=name).segments[0], 1).ingredients
    assert not measured(replace(SPEC, recipe="fp8_current").segments[0], 1).ingredients
    with pytest.raises(ValueError, match="nothing to explain"):
        measured(replace(SPEC, recipe="bf16").segments[0], 1)


def test_a_fork_by_choice_has_the_losses_of_the_run_that_is_compiled_in(menu, model, state):
    run = TrainingRun(MIXED, corpus(), fast_bf16=True)
    got = forked(model, TrainingRun(MIXED, corpus(), fast_bf16=True), state, menu.on, 0, 5)
    output = run.advance(0, 5)
    np.testing.assert_array_equal(got.losses, np.asarray(output.rows)[:5, 1])
    moved = zip(
        jax.tree.leaves(got.state.parameters), jax.tree.leaves(run.state.parameters), strict=True
    )
    assert all((leaf == other).all() for leaf, other in moved)
