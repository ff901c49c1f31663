"""What a run's config states: only what is written as it is meant, shown, and overridden by what a
person states.
"""

import dataclasses

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.readers.errors import ReadError
from parity.readers.run_config import apply_config, config_facts


def facts(**config):
    return config_facts(config, "mlflow:1")


def curve(option=None, **config):
    return apply_config(curve_from_arrays(np.arange(3), np.ones(3)), facts(**config), option)


@pytest.mark.parametrize(
    "config",
    [
        {"recipe": "nvfp4", "seed": 1, "optimizer": {"lr": 3e-4}},
        {"recipe": "nvfp4", "seed": "1", "optimizer.lr": "0.0003"},
        {"parity": {"recipe": "nvfp4"}, "train/seed": 1.0, "learning-rate": "3e-4"},
        {"parity_recipe": "nvfp4", "recipe": "sft", "args": {"seed": 1}, "LR": 0.0003},
    ],
)
def test_one_thing_is_read_alike_however_a_tracker_stores_it(config):
    run = apply_config(curve_from_arrays(np.arange(3), np.ones(3)), config_facts(config, "x"), None)
    assert (run.recipe, run.seed, run.context) == ("nvfp4", 1, {"learning_rate": "0.0003"})
    assert run.notes == ("from the run's config: recipe nvfp4, seed 1, learning_rate 0.0003",)


@pytest.mark.parametrize(
    "word", ["NVFP4", "te_nvfp4", "sft", "configs/llama.yaml", "fp4", "other:"]
)
def test_a_word_that_is_no_recipe_is_shown_and_not_guessed(word):
    run = curve(recipe=word)
    assert run.recipe is None
    assert any(repr(word) in note and "not taken" in note for note in run.notes)


def test_names_that_resemble_a_recipe_are_shown_only():
    run = curve(fp8_recipe="mxfp8", precision="bf16", fp8=True)
    assert (run.recipe, run.rounding) == (None, None)
    assert any("fp8_recipe 'mxfp8', fp8 'true', precision 'bf16'" in note for note in run.notes)


@pytest.mark.parametrize(
    ("config", "rounding"),
    [
        ({"rounding": "nearest"}, "nearest"),
        ({"rounding": "stochastic", "recipe": "bf16"}, "stochastic"),
        ({"stochastic_rounding": True}, "stochastic"),
        ({"stochastic_rounding": "True", "rounding": "nearest"}, "stochastic"),
        # it may be the optimizer's, and nearest is the smaller noise
        ({"stochastic_rounding": False}, None),
        ({"rounding": "up"}, None),
        ({}, None),
    ],
)
def test_rounding(config, rounding):
    assert curve(**config).rounding == rounding


def test_a_config_that_contradicts_itself_is_refused():
    with pytest.raises(
        ReadError,
        match="rounding in the run's config is nearest, but recipe nvfp4 rounds stochastically",
    ):
        facts(recipe="nvfp4", rounding="nearest")


def test_what_a_person_states_counts_more_and_never_gets_the_smaller_noise():
    run = curve("nvfp4", recipe="bf16", rounding="nearest")
    assert (run.recipe, run.rounding) == ("nvfp4", None)
    assert "recipe nvfp4 was stated instead of the config's bf16" in run.notes


def test_a_key_that_says_two_things_equals_only_the_same_two():
    twice = {"train": {"seed": 1}, "model": {"seed": 2}, "lr": 1e-3, "optimizer": {"lr": 2e-3}}
    run = curve(**twice)
    assert run.context == {"learning_rate": "0.001 and 0.002"}
    assert run.seed not in (0, 1, 2)
    assert run.seed == curve(**twice).seed
    assert sum("more than once" in note for note in run.notes) == 2
    assert (
        curve(recipe="nvfp4", parity={"rounding": "stochastic"}, train={"recipe": "mxfp8"}).recipe
        is None
    )


@pytest.mark.parametrize(
    "pair",
    [(2**53, 2**53 + 1), (2**64 - 1, 2**64 - 2), (10**22, 10**22 + 1), ("one", "two"), ("one", 0)],
)
def test_seeds_that_differ_stay_different(pair):
    first, second = (curve(seed=seed).seed for seed in pair)
    assert first != second
    assert curve(seed=str(pair[0])).seed == first


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"seed": 1}, {"seed": 1, "data_seed": 1}, True),
        ({"seed": 1}, {"seed": 1, "data_seed": None}, True),
        ({"data_seed": 3}, {"data": {"seed": 3}}, True),
        ({"seed": 1, "data_seed": 2}, {"seed": 1, "data_seed": 3}, False),
        ({"seed": 1, "data_seed": 2}, {"seed": 2, "data_seed": 2}, False),
        ({"seed": 1, "data_seed": 2}, {"seed": 2, "data_seed": 1}, False),
        ({"seed": "one"}, {}, False),
        ({"seed": "one"}, {"seed": "one"}, True),
        ({"eval": {"seed": 5}}, {}, True),  # of a group that is not the run's
    ],
)
def test_runs_have_one_seed_only_where_both_of_their_seeds_are_equal(one, other, equal):
    assert (curve(**one).seed == curve(**other).seed) is equal


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({"global_batch_size": 512, "batch_size": 8}, {"batch_size": "512"}),
        (
            {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
            {"micro_batch_size": "8", "gradient_accumulation": "4"},
        ),
        (
            {"max_seq_len": 4096, "warmup_steps": 0, "weight_decay": 0.1},
            {"sequence_length": "4096", "warmup_steps": "0", "weight_decay": "0.1"},
        ),
        ({"parity_family": "my-700M", "family": "llama"}, {"family": "my-700M"}),
        ({"lr": [1, 2], "layers": {"0": {"lr": 1}}}, {}),
    ],
)
def test_what_must_be_equal_in_both_arms(config, context):
    assert curve(**config).context == context


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.5", 0.5), (2, 2.0), ("fast", None), (0, None), ("inf", None), ("nan", None)],
)
def test_step_time(text, seconds):
    assert facts(step_seconds=text).step_seconds == seconds


def test_a_config_of_nothing_changes_nothing():
    run = curve()
    assert dataclasses.asdict(facts()) == dataclasses.asdict(config_facts({}, "x"))
    assert (run.recipe, run.rounding, run.seed, run.context, run.notes) == (None, None, 0, {}, ())


@pytest.mark.parametrize(
    ("config", "planned"),
    [
        ({"max_steps": 763}, "763"),
        ({"trainer": {"max_steps": 20_000.0}}, "20000"),
        ({"train_iters": "10000"}, "10000"),
        ({"max_steps": -1}, None),
        ({"max_steps": 0.5}, None),
        ({"max_steps": 10, "trainer": {"max_steps": 20}}, None),
    ],
)
def test_the_planned_length(config, planned):
    assert curve(**config).context.get("planned_steps") == planned
