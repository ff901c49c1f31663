"""Which facts on record confound a comparison, by what it compares."""

import pytest

from parity.judging.curves.context import Comparison, confounding_keys
from parity.judging.curves.curve import RECORDED_RECIPE, START_PRECISION


@pytest.mark.parametrize("key", [RECORDED_RECIPE, START_PRECISION])
@pytest.mark.parametrize(
    ("compares", "confounds"), [("recipe", False), ("revision", True), ("environment", True)]
)
def test_recipes_on_record_confound_all_but_a_comparison_of_recipes(
    key: str, compares: Comparison, confounds: bool
) -> None:
    contexts = [{key: "bf16", "engine": "a"}, {key: "nvfp4", "engine": "a"}]
    assert (confounding_keys(contexts, compares=compares) == [key]) == confounds
