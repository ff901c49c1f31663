"""The decoder against a plain numpy forward pass, and what a policy and a replicate change."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.arithmetic import random_bits
from training.arithmetic.linear import linear, quiet_channel
from training.later_recipe import LaterRecipe
from training.spec import Data, Model, Projections, RunSpec, Schedule
from training.step_values import PROJECTIONS
from training.trainer.model import (
    QK_NORMS,
    decoder,
    grouped,
    initial_parameters,
    loss_and_lm_loss,
    matmul,
    ungrouped,
)

SHAPE = Model(vocab_size=64, d_model=32, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=48)
RUN = RunSpec(
    recipe="f32",
    engine="emulated",
    model=SHAPE,
    data=Data(batch_size=2, sequence_length=8),
    schedule=Schedule(),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
TOKENS = np.random.default_rng(0).integers(0, 64, (2, 9)).astype(np.int32)


def plain_loss(shape, parameters, tokens):
    """Mean cross entropy and mean squared log-sum-exp in float64, one head and one position at a
    time.
    """
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters)

    def norm(x, gain):
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5) * gain

    def turn(v, position):
        half = len(v) // 2
        angle = position * shape.rope_theta ** (-np.arange(half) / half)
        left, right = v[:half], v[half:]
        return np.concatenate(
            [
                left * np.cos(angle) - right * np.sin(angle),
                right * np.cos(angle) + left * np.sin(angle),
            ]
        )

    def norm_per_head(x, gain):
        return np.concatenate(
            [norm(part, gain) for part in np.split(x, x.shape[1] // len(gain), axis=1)], axis=1
        )

    losses, squares = [], []
    size, ratio = shape.head_size, shape.n_heads // shape.n_kv_heads
    for row in tokens:
        x = p["embed"][row[:-1]]
        for block in p["blocks"]:
            n = norm(x, block["attention_norm"])
            q, k, v = n @ block["query"], n @ block["key"], n @ block["value"]
            if shape.qk_norm:
                q, k = norm_per_head(q, block["query_norm"]), norm_per_head(k, block["key_norm"])
            mixed = np.zeros_like(q)
            for head in range(shape.n_heads):
                mine, theirs = (
                    np.s_[head * size : (head + 1) * size],
                    np.s_[head // ratio * size : (head // ratio + 1) * size],
                )
                for t in range(len(x)):
                    scores = np.array(
                        [
                            turn(q[t, mine], t) @ turn(k[s, theirs], s) / np.sqrt(size)
                            for s in range(t + 1)
                        ]
                    )
                    weights = np.exp(scores - scores.max())
                    mixed[t, mine] = weights / weights.sum() @ v[: t + 1, theirs]
            x = x + mixed @ block["out"]
            n = norm(x, block["mlp_norm"])
            gate = n @ block["gate"]
            x = x + (gate / (1 + np.exp(-gate)) * (n @ block["up"])) @ block["down"]
        logits = norm(x, p["final_norm"]) @ p["embed" if shape.tied_embeddings else "unembed"].T
        lse = np.log(np.exp(logits).sum(-1))
        losses += list(lse - logits[np.arange(len(logits)), row[1:]])
        squares += list(lse**2)
    return np.mean(losses), np.mean(squares)


def model_of(shape, recipe, layer_policy, *, remat=False, **settings):
    """The decoder of the last segment of a run with these settings."""
    spec = replace(RUN, model=shape, recipe=recipe, layer_policy=layer_policy, **settings)
    return decoder(shape, spec.segments[-1], fast_bf16=True, remat=remat)


def loss(model, parameters, z=0.0):
    channels = quiet_channel(model.shape.n_layers, len(PROJECTIONS))
    return jax.jit(loss_and_lm_loss, static_argnums=0)(
        model, parameters, jnp.asarray(TOKENS), random_bits.key(0), channels, jnp.float32(z)
    )


@pytest.mark.parametrize("tied", [True, False])
def test_f32_forward_equals_the_plain_formula(tied):
    shape = replace(SHAPE, tied_embeddings=tied)
    parameters = initial_parameters(shape, 1, 0)
    expected, square = plain_loss(shape, parameters, TOKENS)
    total, lm_loss = loss(model_of(shape, "f32", "mlp_only"), jax.device_put(parameters), 0.5)
    assert float(lm_loss) == pytest.approx(expected, rel=1e-5)
    assert float(total) == pytest.approx(expected + 0.5 * square, rel=1e-5)


def test_low_precision_is_near_f32_in_the_order_of_its_bits():
    shape = replace(SHAPE, n_layers=1, d_ff=64)
    parameters = jax.device_put(initial_parameters(shape, 1, 0))

    @jax.jit
    def losses(parameters):
        recipes = ("f32", "bf16", "fp8_current", "nvfp4")
        return [loss(model_of(shape, recipe, "all_linears"), parameters)[1] for recipe in recipes]

    exact, bf16, fp8, nvfp4 = (float(value) for value in losses(parameters))
    assert 0 < abs(bf16 - exact) < 0.01
    assert 0 < abs(fp8 - exact) < 0.05
    assert 0 < abs(nvfp4 - exact) < 0.5


def test_a_gradient_step_of_f32_follows_the_difference_quotient():
    model = model_of(SHAPE, "f32", "mlp_only")
    parameters = jax.device_put(initial_parameters(SHAPE, 2, 0))
    value, gradient = jax.jit(jax.value_and_grad(lambda p: loss(model, p, 1e-2)[0]))(parameters)
    size = 1e-2 / float(jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))))

    @jax.jit
    def moved(signed):
        return loss(model, jax.tree.map(lambda p, g: p + signed * g, parameters, gradient), 1e-2)[0]

    ahead, behind = moved(size), moved(-size)
    slope = (float(ahead) - float(behind)) / (2 * size)
    assert slope == pytest.approx(
        float(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))), rel=5e-3
    )
    assert np.isfinite(float(value))


def test_policy_and_kept_blocks_decide_which_layers_are_quantized():
    def quantized(policy, **bf16_blocks):
        model = model_of(replace(SHAPE, n_layers=4), "nvfp4", policy, **bf16_blocks)
        return {
            (block, name)
            for block in range(4)
            for name in ("query", "out", "gate", "down")
            if model.recipe_of(block, name).quantized
        }

    assert quantized("mlp_only") == {
        (block, name) for block in range(4) for name in ("gate", "down")
    }
    assert len(quantized("all_linears")) == 16
    assert {block for block, _ in quantized("all_linears", keep_first=1, keep_last=2)} == {1}
    assert model_of(SHAPE, "f32", "mlp_only").recipe_of(0, "query").activations == "float32"


def test_replicates_start_a_millionth_apart_and_seeds_elsewhere():
    first, again, moved, other = (
        initial_parameters(SHAPE, *key) for key in ((3, 0), (3, 0), (3, 1), (4, 0))
    )
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for name in ("query", "down"):
        ratio = moved["blocks"][1][name].astype(np.float64) / first["blocks"][1][name]
        assert 0.5e-6 < np.std(ratio) < 1.5e-6
        assert (
            abs(
                np.corrcoef(first["blocks"][1][name].ravel(), other["blocks"][1][name].ravel())[
                    0, 1
                ]
            )
            < 0.2
        )
    assert first["embed"].std() == pytest.approx(SHAPE.d_model**-0.5, rel=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"qk_norm": True},
        {"head_dim": 12},
        {"head_dim": 6, "qk_norm": True, "tied_embeddings": False},
    ],
)
def test_heads_of_any_size_and_their_norms_equal_the_plain_formula(changes):
    shape = replace(SHAPE, **changes)
    random, parameters = np.random.default_rng(5), initial_parameters(shape, 1, 0)
    for block in parameters["blocks"]:
        for name in QK_NORMS if shape.qk_norm else ():
            block[name] = random.uniform(0.5, 2, shape.head_size).astype(np.float32)
    expected, _ = plain_loss(shape, parameters, TOKENS)
    assert float(
        loss(model_of(shape, "f32", "mlp_only"), jax.device_put(parameters))[1]
    ) == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(
        plain_loss(SHAPE, initial_parameters(SHAPE, 1, 0), TOKENS)[0], rel=1e-5
    )


def test_norms_of_queries_and_keys_make_their_size_irrelevant():
    shape = replace(SHAPE, qk_norm=True)
    model, parameters = (
        model_of(shape, "f32", "mlp_only"),
        jax.device_put(initial_parameters(shape, 1, 0)),
    )
    scaled = {
        **parameters,
        "blocks": [
            {**block, "query": 3 * block["query"], "key": block["key"] / 5}
            for block in parameters["blocks"]
        ],
    }
    assert float(loss(model, scaled)[1]) == pytest.approx(
        float(loss(model, parameters)[1]), abs=1e-4
    )


def test_every_gradient_of_a_pass_has_a_number_of_its_own():
    """What the model gives its layers is what the numbers of `training.arithmetic.formats` are made
    of.
    """
    shape = replace(SHAPE, n_layers=3)
    channels = quiet_channel(shape.n_layers, len(PROJECTIONS))

    @jax.jit
    def numbers(parameters):
        seen = []

        def watching(recipe, x, w, key, channel):
            seen.append(key.tensor)
            return linear(recipe, x, w, key, channel)

        model = replace(model_of(shape, "fp8_current", "all_linears"), layer=watching)
        loss_and_lm_loss(
            model, parameters, jnp.asarray(TOKENS), random_bits.key(5), channels, jnp.float32(0)
        )
        return seen

    seen = [int(number) for number in numbers(initial_parameters(shape, 1, 0))]
    assert sorted(seen) == [
        (5 * 3 + block) * 7 + number for block in range(3) for number in range(7)
    ]


@pytest.mark.parametrize(
    "shape",
    [SHAPE, replace(SHAPE, tied_embeddings=False), replace(SHAPE, head_dim=12, qk_norm=True)],
)
def test_number_of_parameters_is_what_the_specification_says(shape):
    leaves = jax.tree.leaves(initial_parameters(shape, 0, 0))
    assert sum(leaf.size for leaf in leaves) == shape.parameters
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}


def remat_gradient(shape, recipe, remat, **settings):
    """The model, and its compiled gradient as a function of parameters."""
    model = model_of(shape, recipe, "mlp_only", remat=remat, **settings)
    return model, jax.jit(jax.grad(lambda p: loss(model, grouped(model, p))[0]))


def test_remat_computes_equal_blocks_in_one_loop_with_the_same_bits():
    shape = replace(SHAPE, n_layers=3, d_ff=32)
    parameters = jax.device_put(initial_parameters(shape, 1, 0))
    (plain, one_by_one), (model, looped) = (
        remat_gradient(shape, "nvfp4", remat, keep_last=1) for remat in (False, True)
    )
    assert model.groups == ((0, 2), (2, 1))
    assert plain.groups == ((0, 1), (1, 1), (2, 1))
    jax.tree.map(np.testing.assert_array_equal, looped(parameters), one_by_one(parameters))


def test_with_remat_the_program_hardly_grows_with_depth():
    sizes = {}
    for remat, depth in itertools.product((True, False), (2, 3)):
        shape = replace(SHAPE, n_layers=depth)
        program = remat_gradient(shape, "bf16", remat)[1].lower(
            jax.eval_shape(lambda shape=shape: initial_parameters(shape, 1, 0))
        )
        sizes[remat, depth] = len(program.as_text())
    assert sizes[True, 3] - sizes[True, 2] < 0.25 * (sizes[False, 3] - sizes[False, 2])


def test_grouped_blocks_come_back_as_they_were():
    model = model_of(SHAPE, "nvfp4", "all_linears", remat=True)
    parameters = initial_parameters(SHAPE, 1, 0)
    tree = {"moments": parameters, "count": np.int32(3)}
    groups = grouped(model, tree)["moments"]["blocks"]
    assert [block["down"].shape for block in groups] == [
        (2, *parameters["blocks"][0]["down"].shape)
    ]
    jax.tree.map(np.testing.assert_array_equal, ungrouped(model, grouped(model, tree)), tree)


def test_bfloat16_matmul_has_bfloat16_operands_in_both_directions():
    a, b = (
        jnp.asarray(np.random.default_rng(i).standard_normal(shape), jnp.bfloat16)
        for i, shape in enumerate(((2, 4, 8), (2, 8, 6)))
    )
    y, pull = jax.vjp(lambda a, b: matmul("bfloat16", a, b), a, b)
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(
        np.asarray(y),
        np.matmul(np.asarray(a, np.float32), np.asarray(b, np.float32)),
        rtol=1e-6,
        atol=1e-6,
    )
    g = jnp.ones_like(y) * 1.001  # rounds to 1 in bfloat16
    da, db = pull(g)
    assert da.dtype == db.dtype == jnp.bfloat16
    expected = np.broadcast_to(np.asarray(b, np.float32).sum(-1)[:, None], da.shape)
    np.testing.assert_allclose(np.asarray(da, np.float32), expected, rtol=2**-7)


def test_projections_and_the_late_forward_pass_decide_which_products_are_quantized():
    model = model_of(
        SHAPE,
        "nvfp4",
        "mlp_only",
        projections=Projections(out="quantized", down="bf16"),
        keep_last=1,
    )
    quantized = {name for name in PROJECTIONS if model.recipe_of(0, name).quantized}
    assert quantized == {"out", "gate", "up"}
    assert not any(model.recipe_of(1, name).quantized for name in PROJECTIONS)
    shape = replace(SHAPE, n_layers=1, d_ff=32)
    parameters = jax.device_put(initial_parameters(shape, 1, 0))
    bf16, late = (
        model_of(shape, recipe, "mlp_only", **settings)
        for recipe, settings in (
            ("bf16", {}),
            ("fp8_current", {"then": LaterRecipe(recipe="bf16", from_step=9, gemms="forward")}),
        )
    )
    (plain, plain_gradient), (forward, gradient) = (
        jax.jit(jax.value_and_grad(lambda p, model=model: loss(model, p)[0]))(parameters)
        for model in (bf16, late)
    )
    assert float(plain) == float(forward)
    assert np.any(
        np.asarray(plain_gradient["blocks"][0]["down"]) != np.asarray(gradient["blocks"][0]["down"])
    )
