"""Engine transformer_engine: our wiring against Transformer Engine's own Python code, whose
compiled extension is stubbed.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from training.arithmetic import linear as emulated
from training.arithmetic import random_bits
from training.arithmetic.linear import quiet_channel
from training.arithmetic.recipes import linear_recipe
from training.device import Device
from training.engines import transformer_engine
from training.later_recipe import LaterRecipe
from training.rules import SpecError
from training.spec import ArmSpec, Data, JobSpec, Model, Projections, Schedule
from training.switches import NO_SWITCHES, Switches
from training.trainer import identity, loop
from training.trainer.data import Corpus

# Transformer Engine 2.20.2 uses names that jax 0.10.2 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:jax.interpreters.pxla:DeprecationWarning")
X, W, G = (
    np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for shape in ((64, 32), (32, 96), (64, 96))
)
NO_SR = Switches(stochastic_rounding=False)


# Compiled in a hurry: it runs once.
@partial(jax.jit, static_argnums=(0, 1), compiler_options={"xla_backend_optimization_level": 0})
def products(linear, recipe, x, w, g, key, channel):
    y, pull = jax.vjp(lambda x, w, channel: linear(recipe, x, w, key, channel), x, w, channel)
    return (y, *pull(g))


def layer(linear, recipe, seed=7, scale=(1.0, 1.0, 1.0), g=G):
    """y, dx, dw as float64 and the report of one linear layer."""
    channel = quiet_channel()._replace(scale=jnp.asarray(scale, jnp.float32))
    y, dx, dw, pulled = products(
        linear,
        recipe,
        *(jnp.asarray(part, jnp.bfloat16) for part in (X, W, g)),
        random_bits.key(seed),
        channel,
    )
    return [np.asarray(part, np.float64) for part in (y, dx, dw)], np.asarray(pulled.report)


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("fp8_current", NO_SWITCHES),
        ("fp8_delayed", NO_SWITCHES),
        ("fp8_current", Switches(gradient_format="e4m3")),
        ("fp8_delayed", Switches(gradient_format="e4m3", margin=1)),
        ("mxfp8", NO_SWITCHES),
        ("mxfp8", Switches(gradient_format="e5m2")),
        ("nvfp4", NO_SR),
        ("nvfp4", Switches(stochastic_rounding=False, rht=False, weight_scaling="1d")),
    ],
)
def test_its_layer_computes_what_the_emulation_computes(name, switches, stubbed_te):
    stubbed_te(100)
    recipe, scale = linear_recipe(name, switches, fast_bf16=True), (2.0, 32.0, 1024.0)
    with transformer_engine.kernels():
        native, report = layer(transformer_engine.linear, recipe, scale=scale)
    ours, expected = layer(emulated.linear, recipe, scale=scale)
    for native_product, product in zip(native, ours, strict=True):
        # Two roundings to bfloat16 on either side: TE's own CPU path rounds before and after the
        # scales.
        assert np.abs(native_product - product).max() <= 2.0**-7 * np.abs(product).max()
        assert np.sqrt(np.mean((native_product - product) ** 2)) <= 2.0**-8 * np.sqrt(
            np.mean(product**2)
        )
    if recipe.delayed:
        # the amaxes from which `training.arithmetic.quantize` makes the next scales
        np.testing.assert_allclose(report, expected)


def test_rounding_follows_the_seed_and_what_is_not_finite_is_counted(stubbed_te):
    stubbed_te(100)
    recipe = linear_recipe("nvfp4", fast_bf16=True)
    with transformer_engine.kernels():
        (y, dx, dw), report = layer(transformer_engine.linear, recipe, seed=1)
        (y_again, dx_again, dw_again), _ = layer(transformer_engine.linear, recipe, seed=1)
        (y_other, dx_other, dw_other), _ = layer(transformer_engine.linear, recipe, seed=2)
        broken = G.copy()
        broken[3, 5], broken[4, 4] = np.nan, np.inf
        _, counted = layer(
            transformer_engine.linear, linear_recipe("fp8_current", fast_bf16=True), g=broken
        )
    assert (dx == dx_again).all()
    assert (dw == dw_again).all()
    assert (y == y_other).all()
    assert (y == y_again).all()
    assert (dx != dx_other).any()
    assert (dw != dw_other).any()
    assert report.tolist() == [0, 0, 0, 0]
    assert counted[3] == 2


def test_the_recipe_is_made_from_the_operands_and_not_from_the_environment(stubbed_te, monkeypatch):
    monkeypatch.setenv("NVTE_NVFP4_DISABLE_RHT", "1")
    stubbed_te(100)

    def made(name, switches=NO_SWITCHES):
        te_recipe = transformer_engine.te_recipe(linear_recipe(name, switches, fast_bf16=True))
        return (
            te_recipe.disable_rht,
            te_recipe.disable_stochastic_rounding,
            te_recipe.disable_2d_quantization,
        )

    assert made("nvfp4") == (False, False, False)
    assert made("nvfp4_no_rht") == (True, False, False)
    assert made("nvfp4_no_sr") == (False, True, False)
    assert made("nvfp4_no_rht_no_sr") == (True, True, False)
    assert made("nvfp4", Switches(rht=False, weight_scaling="1d")) == (True, False, True)
    for name, kind in (
        ("fp8_current", "Float8CurrentScaling"),
        ("fp8_delayed", "DelayedScaling"),
        ("mxfp8", "MXFP8BlockScaling"),
    ):
        assert (
            type(transformer_engine.te_recipe(linear_recipe(name, fast_bf16=True))).__name__ == kind
        )
    for name, switches, expected in (
        ("mxfp8", NO_SWITCHES, "E4M3"),
        ("mxfp8", Switches(gradient_format="e5m2"), "HYBRID"),
        ("fp8_current", NO_SWITCHES, "HYBRID"),
        ("fp8_delayed", Switches(gradient_format="e4m3"), "E4M3"),
    ):
        assert (
            transformer_engine.te_recipe(
                linear_recipe(name, switches, fast_bf16=True)
            ).fp8_format.name
            == expected
        )
    delayed = Switches(margin=2, amax_history_len=16, amax_compute_algo="most_recent")
    made_delayed = transformer_engine.te_recipe(
        linear_recipe("fp8_delayed", delayed, fast_bf16=True)
    )
    assert (made_delayed.margin, made_delayed.amax_history_len, made_delayed.amax_compute_algo) == (
        2,
        16,
        "most_recent",
    )
    for name in ("mxfp4", "fp8_block", "bf16"):
        with pytest.raises(ValueError, match=name):
            transformer_engine.te_recipe(linear_recipe(name, fast_bf16=True))


JOB = JobSpec(
    name="native",
    engine="transformer_engine",
    layer_policy="mlp_only",
    projections=Projections(gate="bf16", up="bf16"),
    baseline=ArmSpec(recipe="fp8_delayed"),
    candidates=(ArmSpec(recipe="nvfp4", then=LaterRecipe(recipe="bf16", from_step=5)),),
    model=Model(vocab_size=64, d_model=128, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=128),
    data=Data(sequence_length=32, batch_size=4),
    schedule=Schedule(steps=6, warmup_steps=1),
    gradient_accumulation=2,
)
TOKENS = np.random.default_rng(1).integers(0, 64, 4400).astype(np.uint8)
CORPUS = Corpus(
    train=TOKENS[:4000], validation=TOKENS[4000:], largest=63, digest="d", description="noise"
)
BLACKWELL = Device(
    platform="gpu",
    device_kind="NVIDIA B200",
    device_class="gpu:sm100",
    sm="100",
    memory_bytes=180 << 30,
    cpu_count=8,
    threads=8,
    versions={},
    fast_bf16=True,
    slices=(1,),
)


@pytest.fixture
def on_blackwell(stubbed_te, monkeypatch):
    installed = stubbed_te(100)
    monkeypatch.setattr("training.device.describe", lambda: BLACKWELL)
    # the stub is what this variable would put in the place of the kernels
    monkeypatch.setattr(installed, "_CUSTOM_CALLS", ())
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def test_a_run_trains_with_its_layers_as_it_does_with_the_emulation(on_blackwell, monkeypatch):
    layers = []
    forward = transformer_engine._dense
    monkeypatch.setattr(
        transformer_engine,
        "_dense",
        lambda x, w, quantizers: layers.append(w.shape) or forward(x, w, quantizers),
    )
    (_, spec), *_ = JOB.runs()
    native = list(loop.train(spec, CORPUS))
    ours = list(loop.train(replace(spec, engine="emulated"), CORPUS))
    assert set(layers) == {(128, 128)}  # `down` alone; what the job keeps in bf16 is XLA's
    assert [step.step for step in native] == list(range(6))
    # each rounds at random by its own numbers; bf16 and FP8 are 0.01 and more away
    assert [step.lm_loss for step in native] == pytest.approx(
        [step.lm_loss for step in ours], abs=6e-3
    )
    assert all(step.nonfinite_inputs == 0 for step in native)
    facts = identity.manifest(spec, CORPUS)
    assert (
        facts["transformer_engine.transformer_engine"]
        == facts["version.transformer_engine"]
        == "2.20.2"
    )
    assert (facts["transformer_engine.cuda"], facts["transformer_engine.cublaslt"]) == (
        "13000",
        "130100",
    )


@pytest.mark.parametrize(
    ("sm", "recipe", "message"),
    [(89, "mxfp8", "9.9 or higher"), (90, "nvfp4", "10.0 or higher"), (80, "fp8_current", "8.9")],
)
def test_transformer_engines_own_test_of_a_recipe_decides(sm, recipe, message, stubbed_te):
    ok, reason = stubbed_te(sm).can_run(recipe, {})
    assert not ok
    assert message in reason


def test_a_variable_that_replaces_its_kernels_is_refused(stubbed_te):
    installed = stubbed_te(100)
    assert installed.can_run("nvfp4", {"NVTE_JAX_CUSTOM_CALLS": "GemmPrimitive=false"})[
        1
    ].startswith("NVTE_JAX_CUSTOM_CALLS is set")
    ok, reason = installed.can_run("nvfp4", {})
    assert ok
    assert reason == "transformer_engine 2.20.2, cuda 13000, cublaslt 130100, driver unknown"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 2}, "devices is 2, expected 1 under engine transformer_engine"),
        (
            {"schedule": Schedule(statistics_every=5)},
            r"schedule\.statistics_every is 5, expected 0 under engine transformer_engine",
        ),
        (
            {
                "candidates": (
                    ArmSpec(
                        recipe="nvfp4",
                        then=LaterRecipe(recipe="bf16", from_step=2, gemms="forward"),
                    ),
                )
            },
            "expected all under engine transformer_engine",
        ),
        ({"candidates": (ArmSpec(recipe="mxfp4"),)}, "no MXFP4 recipe; use engine: emulated"),
        (
            {"candidates": (ArmSpec(recipe="fp8_block"),)},
            "PyTorch only; the nearest that it has for JAX is mxfp8; use engine: emulated",
        ),
        (
            {
                "candidates": (
                    ArmSpec(recipe="nvfp4", switches=Switches(row_scaled_activation=True)),
                )
            },
            (
                "has row_scaled_activation for PyTorch only; the nearest that it has for JAX is "
                "nvfp4 without this switch"
            ),
        ),
    ],
)
def test_what_it_can_not_do_is_refused_with_the_reason(changes, message):
    with pytest.raises(SpecError, match=message):
        replace(JOB, **changes)
    layered = replace(
        JOB,
        model=Model(preset="llama3-0.3m-by128", n_layers=3),
        projections=Projections(out="bf16"),
        keep_first=1,
        keep_last=1,
        remat=True,
    )
    assert layered.candidates[0].then == LaterRecipe(recipe="bf16", from_step=5)
