"""Whole runs of a tiny model: repeatability, pairing, replicates, divergence, cancelling, the
manifest.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import jax
import numpy as np
import pytest

from training import segments
from training.arithmetic.layer_statistics import COLUMNS, OPERANDS
from training.later_recipe import LaterRecipe
from training.memory import memory
from training.overrides import GEMMS, Override
from training.spec import Data, Model, RunSpec, Schedule
from training.step_values import PROJECTIONS, DivergedError, layer_names
from training.switches import Switches
from training.trainer import model, run, step
from training.trainer.data import Corpus, VocabularyTooSmallError
from training.trainer.identity import manifest
from training.trainer.loop import DevicesMissingError, OutOfMemoryError, RecipeRefusedError, train
from training.trainer.run import TrainingRun, rounding_words

SPEC = RunSpec(
    recipe="nvfp4",
    engine="emulated",
    model=Model(vocab_size=32, d_model=32, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=32),
    data=Data(source="text", path="given", sequence_length=16, batch_size=2),
    schedule=Schedule(steps=12, warmup_steps=2, learning_rate=1e-2, validation_every=5),
    layer_policy="mlp_only",
    seed=0,
    replicate=0,
    devices=1,
)
BATCH_OF_64 = replace(SPEC.data, batch_size=4)
TOKENS = (np.arange(4000) * 7 % 31).astype(np.uint8)
SNR = [COLUMNS.index(f"{operand}/snr_db") for operand in OPERANDS]
CORPUS = Corpus(
    train=TOKENS[:3500], validation=TOKENS[3500:], largest=30, digest="d1", description="a ramp"
)


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    yield
    jax.clear_caches()


@pytest.mark.parametrize(
    ("batch_size", "most"), [(1, 64), (4096, 64), (4097, 63), (2**17, 2), (2**18, 1), (2**19, 1)]
)
def test_a_block_has_up_to_64_steps_and_4_million_tokens_but_one_step_at_least(batch_size, most):
    """Of 16 tokens a sequence; the tokens of a block are in memory at once."""
    schedule = replace(SPEC.schedule, validation_every=0)
    spec = replace(SPEC, data=replace(SPEC.data, batch_size=batch_size), schedule=schedule)
    assert TrainingRun(spec, CORPUS, fast_bf16=False)._capacity == most


@pytest.mark.parametrize(
    ("statistics_every", "gradients_every"),
    [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 2), (2, 4), (4, 4)],
)
def test_each_kind_of_step_is_compiled_before_the_first_and_no_other(
    statistics_every, gradients_every
):
    schedule = replace(
        SPEC.schedule, statistics_every=statistics_every, gradients_every=gradients_every
    )
    run = TrainingRun(replace(SPEC, schedule=schedule), CORPUS, fast_bf16=False)
    assert run._kinds() == {run._kind(step) for step in range(schedule.steps)}


@pytest.fixture(scope="module")
def steps():
    return list(train(SPEC, CORPUS))


def test_every_step_is_reported_once_and_in_order(steps):
    assert [step.step for step in steps] == list(range(12))
    assert [step.tokens for step in steps] == [32 * (n + 1) for n in range(12)]
    assert all(step.step_seconds > 0 for step in steps)
    assert steps[-1].lm_loss < steps[0].lm_loss
    assert steps[0].lm_loss == pytest.approx(math.log(32), abs=1)
    assert all(step.loss > step.lm_loss for step in steps)
    assert all(step.clipped_grad_norm <= 1.0001 for step in steps)
    assert all(step.nonfinite_inputs == 0 for step in steps)
    assert all(step.data_wait_seconds >= 0 for step in steps)
    assert steps[1].learning_rate == pytest.approx(1e-2)


def test_validation_comes_when_it_is_due_and_after_the_last_step(steps):
    assert [step.step for step in steps if step.validation_loss is not None] == [4, 9, 11]
    assert steps[11].validation_loss < steps[4].validation_loss


def test_gradient_norms_by_layer_are_those_of_their_matrices(steps):
    """The layers' norms and what is left of the whole: embedding and gains."""
    names = layer_names(SPEC.model.n_layers)
    assert names == tuple(f"0.{projection}" for projection in PROJECTIONS)
    for stats in steps:
        assert len(stats.layer_grad_norms) == len(names)
        assert min(stats.layer_grad_norms) > 0
        assert 0 < sum(norm**2 for norm in stats.layer_grad_norms) < stats.grad_norm**2
        assert stats.layers is None


def test_layers_are_watched_when_it_is_due_and_no_bit_moves(steps):
    spec = replace(SPEC, schedule=replace(SPEC.schedule, statistics_every=4))
    watched = list(train(spec, CORPUS))
    assert [step.step for step in watched if step.layers is not None] == [0, 4, 8]
    table = np.array(watched[4].layers)
    assert table.shape == (len(PROJECTIONS), len(COLUMNS))
    quantized = np.array([name in ("gate", "up", "down") for name in PROJECTIONS])
    assert np.isnan(table[~quantized]).all()
    snr = table[quantized][:, SNR]
    assert ((snr > 8) & (snr < 30)).all()
    assert np.isnan(table[quantized][:, COLUMNS.index("kernel_grad/cosine")]).all()
    assert [step.loss for step in watched] == [step.loss for step in steps]


def test_gradients_are_compared_when_it_is_due_and_no_bit_moves(steps):
    spec = replace(SPEC, schedule=replace(SPEC.schedule, statistics_every=2, gradients_every=4))
    compared = list(train(spec, CORPUS))
    quantized = np.array([name in ("gate", "up", "down") for name in PROJECTIONS])
    tables = {
        step.step: np.array(step.layers)[quantized] for step in compared if step.layers is not None
    }
    assert list(tables) == [0, 2, 4, 6, 8, 10]
    for at, table in tables.items():
        cosine = table[:, COLUMNS.index("kernel_grad/cosine")]
        assert ((cosine > 0.9) & (cosine < 1)).all() if at % 4 == 0 else np.isnan(cosine).all()
        assert np.isfinite(table[:, SNR]).all()
    assert [step.loss for step in compared] == [step.loss for step in steps]


def test_a_repeated_run_is_bitwise_the_same_whatever_its_blocks(steps, monkeypatch):
    monkeypatch.setattr(run, "_BLOCK_SECONDS", 1e-9)  # blocks of one step
    again = list(train(SPEC, CORPUS))
    for name in ("loss", "lm_loss", "grad_norm", "param_norm", "update_norm", "validation_loss"):
        assert [getattr(step, name) for step in again] == [getattr(step, name) for step in steps]


def test_replicates_share_data_and_differ_in_rounding_and_a_millionth(steps):
    other = [step.lm_loss for step in train(replace(SPEC, replicate=1), CORPUS)]
    assert 0 < abs(other[0] - steps[0].lm_loss) < 1e-2
    assert len({rounding_words(0, 0), rounding_words(0, 1), rounding_words(1, 0)}) == 3
    seeded = [step.lm_loss for step in train(replace(SPEC, seed=1), CORPUS)]
    assert seeded[0] != steps[0].lm_loss


def test_arms_start_from_the_same_point_and_see_the_same_tokens():
    """At step 0 the recipes see one batch through one set of weights: the loss differs by rounding
    only.
    """
    first = {
        recipe: next(train(replace(SPEC, recipe=recipe), CORPUS)).lm_loss
        for recipe in ("f32", "bf16")
    }
    assert abs(first["bf16"] - first["f32"]) < 0.01
    first_again = next(
        train(
            replace(SPEC, recipe="bf16", schedule=replace(SPEC.schedule, learning_rate=0.5)), CORPUS
        )
    ).lm_loss
    assert first_again == first["bf16"]  # the schedule is an argument, not part of the first loss


def test_rounding_is_random_in_the_gradient_only(steps, monkeypatch):
    monkeypatch.setattr(run, "rounding_words", lambda *_: (123, 45))
    other = list(islice(train(SPEC, CORPUS), 3))
    assert other[0].loss == steps[0].loss  # the forward pass and the first weights are the same
    assert other[0].grad_norm != steps[0].grad_norm
    assert other[2].loss != steps[2].loss


def test_a_switch_to_bf16_changes_nothing_before_its_step(steps):
    switched = list(train(replace(SPEC, then=LaterRecipe(recipe="bf16", from_step=7)), CORPUS))
    assert [step.loss for step in switched[:7]] == [step.loss for step in steps[:7]]
    assert switched[7].loss != steps[7].loss  # the same weights, another arithmetic
    assert switched[7].lm_loss == pytest.approx(steps[7].lm_loss, abs=0.3)
    assert len(switched) == 12


def test_an_override_changes_nothing_before_its_step_and_is_watched_like_any_layer(steps):
    late = Override(projections=("gate",), gemms=("fprop",), recipe="bf16", from_step=7)
    # one program for each arithmetic: every step is watched
    every_step = replace(SPEC.schedule, statistics_every=1, validation_every=0)
    switched = list(train(replace(SPEC, overrides=(late,), schedule=every_step), CORPUS))
    assert [step.loss for step in switched[:7]] == [step.loss for step in steps[:7]]
    assert switched[7].loss != steps[7].loss
    both = replace(
        SPEC, overrides=(late, replace(late, projections=("up",), from_step=9)), schedule=every_step
    )
    twice = list(train(both, CORPUS))
    assert [step.loss for step in twice[:9]] == [step.loss for step in switched[:9]]
    assert twice[9].loss != switched[9].loss
    gate, up = PROJECTIONS.index("gate"), PROJECTIONS.index("up")
    is_watched = [[not np.isnan(step.layers[name][0]) for name in (gate, up)] for step in twice]
    # x of their fprop
    assert is_watched == [[True, True]] * 7 + [[False, True]] * 2 + [[False, False]] * 3
    assert [segment.first_step for segment in both.segments] == [0, 7, 9]


def test_a_model_that_spells_out_its_recipe_layer_by_layer_is_the_same_to_the_bit(
    steps, monkeypatch
):
    """The default, written as rules; a specification refuses rules that change nothing, so they are
    made below it.
    """
    whole = [
        Override(projections=(name,), gemms=(gemm,), recipe="nvfp4")
        for name in ("gate", "up", "down")
        for gemm in GEMMS
    ]
    resolve = segments.resolve
    monkeypatch.setattr(
        segments,
        "resolve",
        lambda plan: resolve(plan._replace(overrides=(*whole, *plan.overrides))),
    )
    again = list(train(SPEC, CORPUS))
    for name in ("loss", "grad_norm", "param_norm", "validation_loss"):
        assert [getattr(step, name) for step in again] == [getattr(step, name) for step in steps]


DELAYED = replace(
    SPEC,
    recipe="fp8_delayed",
    model=replace(SPEC.model, tied_embeddings=False),
    schedule=replace(SPEC.schedule, validation_every=0),
)


def test_delayed_scaling_learns_its_scales_and_repeats_to_the_bit():
    trained = TrainingRun(DELAYED, CORPUS, fast_bf16=True)
    first = list(trained.steps())
    assert first[-1].lm_loss < first[0].lm_loss
    scale = np.asarray(trained._state.scales.scale)[0]
    quantized = [PROJECTIONS.index(name) for name in ("gate", "up", "down")]
    assert np.all(scale[quantized] != 1)
    # the attention projections are not quantized
    assert np.all(np.delete(scale, quantized, axis=0) == 1)
    again = TrainingRun(trained._spec, CORPUS, fast_bf16=True)
    assert [step.loss for step in again.steps()] == [step.loss for step in first]


def test_delayed_scaling_in_some_gemms_has_the_history_of_its_own_tensors():
    """gate: x and w by fprop, g by dgrad; up: x and g by wgrad; down: nothing, so its scales stay
    1.
    """
    other = Override(recipe="nvfp4", projections=("gate",), gemms=("wgrad",))
    nvfp4 = Override(recipe="nvfp4", projections=("up",), gemms=("fprop", "dgrad"))
    bf16 = Override(recipe="bf16", projections=("down",))
    mixed, whole = (
        TrainingRun(replace(DELAYED, overrides=overrides), CORPUS, fast_bf16=True)
        for overrides in ((other, nvfp4, bf16), ())
    )
    rows = [np.asarray(run.advance(0, 1).rows)[0] for run in (mixed, whole)]
    gate, up, down = (PROJECTIONS.index(name) for name in ("gate", "up", "down"))
    history, full = (np.asarray(run._state.scales.history)[0, :, :, -1] for run in (mixed, whole))
    # x of gate and up is the same tensor in both runs
    np.testing.assert_array_equal(history[[gate, up], 0], full[[gate, up], 0])
    np.testing.assert_allclose(history[gate], full[gate], rtol=0.3)
    assert (history[[gate, up]] > 0).all()
    assert (history[down] == 0).all()
    assert (np.asarray(mixed._state.scales.scale)[0, down] == 1).all()
    assert rows[0][-1] == 0  # nothing that is not finite
    assert rows[0][0] != rows[1][0]


def test_the_history_of_delayed_scaling_has_the_length_of_its_switch():
    def made(**switches):
        schedule = replace(SPEC.schedule, steps=6, validation_every=0)
        return TrainingRun(
            replace(SPEC, recipe="fp8_delayed", switches=Switches(**switches), schedule=schedule),
            CORPUS,
            fast_bf16=False,
        )

    assert made()._state.scales.history.shape[-1] == 1024
    short, recent = made(amax_history_len=1), made(amax_compute_algo="most_recent")
    assert short._state.scales.history.shape[-1] == 1
    assert [step.loss for step in short.steps()] == [step.loss for step in recent.steps()]


@pytest.mark.parametrize(
    ("recipe", "switches"),
    [
        ("fp8_block", {"gradient_format": "e5m2", "nan": "hardware"}),
        (
            "nvfp4",
            {"row_scaled_activation": True, "nvfp4_4over6": "all", "rht": False, "sr_bits": 8},
        ),
    ],
)
def test_new_arithmetic_trains_watched_and_on_pieces(recipe, switches):
    spec = replace(
        SPEC,
        recipe=recipe,
        switches=Switches(**switches),
        model=Model(vocab_size=32, d_model=128, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=128),
        data=Data(source="text", path="given", sequence_length=128, batch_size=2),
        # one program: every step is watched
        schedule=replace(SPEC.schedule, steps=5, validation_every=0, statistics_every=1),
        gradient_accumulation=2,
    )
    stats = list(train(spec, CORPUS))
    assert stats[-1].lm_loss < stats[0].lm_loss
    assert all(step.nonfinite_inputs == 0 for step in stats)
    table = np.array(stats[4].layers)[[name in ("gate", "up", "down") for name in PROJECTIONS]]
    snr = table[:, SNR]
    assert ((snr > 8) & (snr < 45)).all()


def test_pieces_of_a_batch_are_a_batch():
    """The mean gradient of two pieces is that of the batch, their largest amax is its own; the
    first piece is watched.
    """
    # one program each: every step is watched
    schedule = replace(DELAYED.schedule, steps=2, warmup_steps=0, statistics_every=1)
    spec = replace(DELAYED, schedule=schedule)
    whole, halves = (
        TrainingRun(replace(spec, gradient_accumulation=pieces), CORPUS, fast_bf16=True)
        for pieces in (1, 2)
    )
    (expected, _), (first, _) = list(whole.steps()), list(halves.steps())
    for name in ("loss", "lm_loss", "grad_norm", "param_norm", "update_norm"):
        assert getattr(first, name) == pytest.approx(getattr(expected, name), rel=1e-2)
    gate = PROJECTIONS.index("gate")
    amax = np.asarray(whole._state.scales.history)[0, gate, 0, -2:]
    np.testing.assert_allclose(
        np.asarray(halves._state.scales.history)[0, gate, 0, -2:], amax, rtol=0.02
    )
    assert 0 < first.layers[gate][0] <= expected.layers[gate][0]


def _programs() -> int:
    block: Any = step.block
    return block._cache_size()


def test_seeds_salts_and_schedules_share_one_program(steps):
    before = _programs()
    list(
        islice(
            train(
                replace(
                    SPEC, seed=5, replicate=2, schedule=replace(SPEC.schedule, learning_rate=1e-3)
                ),
                CORPUS,
            ),
            2,
        )
    )
    assert _programs() == before


def test_a_run_is_cancelled_by_not_pulling():
    steps = train(SPEC, CORPUS)
    next(steps)
    assert isinstance(steps, Generator)
    steps.close()
    with pytest.raises(StopIteration):
        next(steps)


def test_a_loss_that_is_no_number_is_yielded_and_ends_the_run(monkeypatch):
    sick = model.initial_parameters(SPEC.model, 0, 0)
    sick["blocks"][0]["gate"][0, :3] = np.nan
    monkeypatch.setattr(run, "initial_parameters", lambda *_: sick)
    steps = train(SPEC, CORPUS)
    first = next(steps)
    assert math.isnan(first.loss)
    assert first.nonfinite_inputs >= 3
    with pytest.raises(DivergedError, match="loss of step 0 is not finite") as raised:
        next(steps)
    assert (raised.value.step, raised.value.code) == (0, "DIVERGED")


def test_a_device_that_is_too_small_says_what_to_reduce(monkeypatch):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")

    monkeypatch.setattr(step, "block", exhausted)
    with pytest.raises(
        OutOfMemoryError,
        match=r"32 tokens a step do not fit.*reduce data\.batch_size.*raise gradient_acc",
    ) as raised:
        next(train(SPEC, CORPUS))
    assert raised.value.code == "OUT_OF_MEMORY"
    # refused before a byte of it is allocated
    large = replace(SPEC, model=Model(preset="llama3-405b"))
    for changes, words in (
        ({}, "the model, set remat: true, or raise"),
        ({"remat": True}, "the model, or raise"),
    ):
        with pytest.raises(
            OutOfMemoryError,
            match=rf"405,853,388,800 parameters .* at least [0-9.]+\); reduce .*{words}",
        ):
            next(train(replace(large, **changes), CORPUS))
    batches = replace(
        SPEC, model=Model(preset="llama3-1b"), data=replace(SPEC.data, batch_size=1 << 16)
    )
    with pytest.raises(OutOfMemoryError, match=r"1,048,576 tokens a step do not fit"):
        next(train(batches, CORPUS))


def test_what_a_run_needs_at_the_least_is_below_what_xla_takes(monkeypatch):
    analyses = []

    def measured(*arguments):
        analyses.append(block.lower(*arguments).compile().memory_analysis())
        raise MemoryError

    block = step.block
    monkeypatch.setattr(step, "block", measured)
    wide = Model(d_model=64, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=192)
    spec = replace(
        SPEC, recipe="f32", model=wide, data=replace(SPEC.data, batch_size=2, sequence_length=256)
    )
    with pytest.raises(OutOfMemoryError):
        next(train(spec, CORPUS))
    taken = analyses[0].temp_size_in_bytes + analyses[0].argument_size_in_bytes
    assert taken / 6 < memory(spec).least < taken


def test_what_cannot_run_is_refused_before_the_first_step():
    with pytest.raises(RecipeRefusedError, match="needs an NVIDIA GPU") as raised:
        next(
            train(
                replace(
                    SPEC,
                    engine="transformer_engine",
                    model=Model(preset="llama3-0.3m-by128"),
                    data=BATCH_OF_64,
                ),
                CORPUS,
            )
        )
    assert raised.value.code == "RECIPE_REFUSED"
    with pytest.raises(DevicesMissingError, match="devices is 2, expected at most 1"):
        next(train(replace(SPEC, devices=2, data=replace(SPEC.data, batch_size=4)), CORPUS))
    with pytest.raises(VocabularyTooSmallError):
        next(train(replace(SPEC, model=replace(SPEC.model, vocab_size=16)), CORPUS))


def test_manifest_is_flat_and_the_same_for_every_arm(monkeypatch):
    monkeypatch.setenv("NVTE_ANSWER", "42")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    facts = manifest(SPEC, CORPUS)
    assert facts == manifest(
        replace(
            SPEC,
            recipe="fp8_current",
            then=LaterRecipe(recipe="bf16", from_step=3),
            seed=4,
            replicate=3,
        ),
        CORPUS,
    )
    assert all(isinstance(value, str) for value in facts.values())
    assert facts["env.NVTE_ANSWER"] == "42"
    assert "env.JAX_COMPILATION_CACHE_DIR" not in facts
    assert facts["data_digest"] == "d1"
    assert len(facts["code_sha256"]) == 64
    assert not [name for name in facts if name.startswith("not_te_parity")]
    ours_alone = manifest(replace(SPEC, switches=Switches(weight_scaling="1d")), CORPUS)
    assert ours_alone["not_te_parity.nvfp4+weight_scaling=1d"].startswith(
        "Transformer Engine refuses 1D weight scales"
    )
    rule = Override(projections=("down",), gemms=("wgrad",), recipe="bf16")
    named = manifest(replace(SPEC, overrides=(rule,)), CORPUS)
    arm_name = "nvfp4+bf16@down.wgrad"
    assert named == facts | {
        f"overrides.{arm_name}": "wgrad of down in all blocks: bf16",
        f"not_te_parity.{arm_name}": named[f"not_te_parity.{arm_name}"],
    }
    assert named[f"not_te_parity.{arm_name}"].startswith("wgrad of down in block 0: recipe is bf16")
    longer = manifest(replace(SPEC, schedule=replace(SPEC.schedule, steps=13)), CORPUS)
    assert {name for name in facts if facts[name] != longer[name]} == {"spec_sha256"}
