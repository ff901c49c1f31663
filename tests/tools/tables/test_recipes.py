from dataclasses import fields

import pytest

from tools.tables.recipes import SWITCHES, recipe_table, switch_table
from training.rules import RECIPES, SpecError
from training.switches import Switches, features


def test_every_switch_has_its_effect() -> None:
    assert list(SWITCHES) == [field.name for field in fields(Switches)]


def test_a_recipe_is_written_as_its_quantizers() -> None:
    row = (
        "| `nvfp4` | E2M1 1x16 | E2M1 16x16 | E2M1 1x16 SR | E2M1 1x16 RHT | E2M1 1x16 RHT SR | "
        "TE, MaxText |"
    )
    assert row in recipe_table()
    assert recipe_table().count("| `") == len(RECIPES)


def test_a_switch_is_shown_with_the_recipes_that_take_it() -> None:
    assert "| `margin` | 0 to 16 | `fp8_delayed` |" in switch_table()
    assert features("fp8_delayed", Switches(margin=16)) is not None
    with pytest.raises(SpecError, match="margin"):
        features("fp8_current", Switches(margin=1))
