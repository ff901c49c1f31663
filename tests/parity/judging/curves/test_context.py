"""Which facts on record differ between arms, and which of them confound a comparison."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.context import (
    NOT_SET,
    Comparison,
    confounding_keys,
    differing_context,
    parameter_count,
    same_data_recorded,
    values_by_key,
    without_assumed_noise,
)
from parity.judging.curves.curve import RECORDED_RECIPE, START_PRECISION, Curve, curve_from_arrays

CONTEXTS = st.lists(
    st.dictionaries(
        st.sampled_from(["engine", "env.A", "env.B", "data_digest", "device_class"]),
        st.sampled_from(["H100", "h100", "H100 80GB", "H100 PCIe"]),
    ),
    min_size=1,
    max_size=4,
)


def run(**context: str) -> Curve:
    return curve_from_arrays(
        [0, 1],
        [2.0, 1.0],
        context={key.replace("__", "."): value for key, value in context.items()},
    )


def test_a_variable_that_one_run_lacks_was_not_set_and_any_other_fact_says_nothing() -> None:
    assert values_by_key([{"engine": "a", "env.X": "1"}, {"device": "b"}]) == {
        "device": {"b"},
        "engine": {"a"},
        "env.X": {"1", NOT_SET},
    }
    # nothing was recorded of the second run
    assert values_by_key([{"env.X": "1"}, {}]) == {"env.X": {"1"}}
    assert differing_context([run(engine="a", env__X="1"), run(engine="b")]) == (
        "engine: a | b",
        "env.X: 1 | not set",
    )


def test_what_the_policy_lets_differ_does_not_confound() -> None:
    assert confounding_keys(
        [{"engine": "a", "threads": "1"}, {"engine": "b", "threads": "2"}], ["threads"]
    ) == ["engine"]
    assert differing_context([run(engine="a"), run(engine="b")], ["engine"]) == ()


@given(CONTEXTS)
def test_keys_confound_exactly_where_some_pair_of_runs_does(contexts: list[dict[str, str]]) -> None:
    pairs = [set(confounding_keys(pair)) for pair in itertools.combinations(contexts, 2)]
    assert set(confounding_keys(contexts)) == set().union(*pairs)
    assert confounding_keys(contexts) == confounding_keys(contexts[::-1])


def test_equal_data_is_recorded_only_where_every_run_has_the_digest() -> None:
    assert same_data_recorded([run(data_digest="d"), run(data_digest="d")])
    assert not same_data_recorded([run(data_digest="d"), run()])
    assert not same_data_recorded([run(), run()])


@pytest.mark.parametrize(
    ("key", "first", "second", "differ"),
    [
        ("device_class", "H100", "h100", False),
        ("device_class", " H100 ", "H100", False),
        ("device_class", "NVIDIA H100 80GB HBM3", "H100", False),
        ("device_class", "NVIDIA-H100", "h100", False),
        ("device_class", "H100 PCIe", "NVIDIA H100 80GB HBM3", True),
        ("device_class", "H100", "H200", True),
        ("device_class", "GB200", "B200", True),
        ("device_class", "nvidia", "NVIDIA H100", True),
        ("engine", "TorchTitan", "torchtitan", False),
        ("engine", "megatron", "megatron bridge", True),
        ("data_digest", "AB", "ab", True),
    ],
)
def test_one_name_spelled_in_two_ways_does_not_confound(
    key: str, first: str, second: str, differ: bool
) -> None:
    assert bool(differing_context([run(**{key: first}), run(**{key: second})])) is differ


@pytest.mark.parametrize(
    ("context", "recipe", "unknown"),
    [
        ({"parameters": "4000000"}, None, True),
        ({"parameters": "4M"}, None, True),
        ({"parameters": "9,999,999"}, None, True),
        ({"parameters": "1e7"}, None, False),
        ({"parameters": "124M"}, None, False),
        ({"parameters": "many"}, None, False),
        ({"architecture": "BertForMaskedLM"}, None, True),
        ({"architecture": "flan-t5"}, None, True),
        ({"architecture": "encoder-decoder"}, None, True),
        ({"architecture": "llama"}, None, False),
        ({"architecture": "decoder"}, None, False),
        ({"architecture": "gpt2"}, None, False),
        ({"weights": "binary"}, None, True),
        ({"weights": "bf16"}, None, False),
        ({}, "other:xnor", True),
        ({}, "other:int1_hadamard", True),
        ({}, "other:int16", False),
        ({"engine": "emulated"}, None, True),
        ({"engine": "maxtext"}, "nvfp4", False),
    ],
)
def test_models_whose_run_noise_nobody_may_assume(
    context: dict[str, str], recipe: str | None, unknown: bool
) -> None:
    one = curve_from_arrays([0, 1], [2.0, 1.0], context=context, recipe=recipe)
    assert (without_assumed_noise([run(), one]) is not None) is unknown


@pytest.mark.parametrize("key", [RECORDED_RECIPE, START_PRECISION])
@pytest.mark.parametrize(
    ("compares", "confounds"), [("recipe", False), ("revision", True), ("environment", True)]
)
def test_recipes_on_record_confound_all_but_a_comparison_of_recipes(
    key: str, compares: Comparison, confounds: bool
) -> None:
    contexts = [{key: "bf16", "engine": "a"}, {key: "nvfp4", "engine": "a"}]
    assert (confounding_keys(contexts, compares=compares) == [key]) == confounds


@pytest.mark.parametrize(
    ("parameters", "small"),
    [("9999999", True), ("10000000", False), ("9.99M", True), ("10M", False), ("1e7", False)],
)
def test_a_model_below_ten_million_parameters_is_small(parameters: str, small: bool) -> None:
    made = curve_from_arrays([0, 1], [2.0, 1.0], context={"parameters": parameters})
    assert (without_assumed_noise([made]) is not None) == small


@pytest.mark.parametrize(
    ("text", "count"),
    [("2", 2.0), ("2k", 2e3), ("2M", 2e6), ("2b", 2e9), ("2T", 2e12), ("2,000", 2e3), ("2x", None)],
)
def test_a_number_of_parameters_as_people_write_it(text: str, count: float | None) -> None:
    assert parameter_count(text) == count
