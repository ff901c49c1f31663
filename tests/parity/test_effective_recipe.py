"""What an arm does from which step on, in one text: written, read, checked, and compared with what
a name claims.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.effective_recipe import Phase, base_of, is_written, not_claimed, phases, title, written
from parity.recipes import (
    RECIPES,
    RecipeError,
    check_recipe,
    forward_differs,
    rounds_to_nearest,
    width_of,
)

LATE = "nvfp4 then bf16 from step 1,600"
PARTS = st.sampled_from(
    [
        *RECIPES,
        "nvfp4+no_rht+block_size=32",
        "nvfp4+bf16@blocks:last2.down.wgrad",
        "mxfp8+gradient_format=e5m2",
    ]
)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), PARTS), unique_by=lambda each: each[0], max_size=6),
    PARTS,
)
def test_what_is_written_is_read_back(later, first):
    given_phases = [(0, first), *sorted(later)]
    text = written(given_phases)
    merged = [
        each
        for number, each in enumerate(given_phases)
        if number == 0 or given_phases[number - 1][1] != each[1]
    ]
    assert is_written(text)
    assert [(phase.first_step, phase.recipe) for phase in phases(text)] == merged


def test_neighbours_that_do_the_same_are_one():
    assert written([(0, "nvfp4"), (40, "nvfp4"), (1600, "bf16")]) == LATE
    assert written([(0, "bf16")]) == "bf16"


@pytest.mark.parametrize(
    "text",
    [
        "nvfp4 then bf16",
        "nvfp4 then bf16 from step",
        "nvfp4 then bf16 from step -1",
        "nvfp4 then bf16 from step 16,00",
        "nvfp4 then bf16 from step 5 then fp8 from step 3",
        "nvfp4 then \x1b[31mbf16 from step 5",
        "nvfp4+<b>",
        "nvfp4 then bf16 from step 5\nPASS",
        "nvfp4 then bf16 from step 5 and more",
    ],
)
def test_a_text_that_only_looks_so_is_refused(text):
    assert not is_written(text)
    with pytest.raises(RecipeError):
        check_recipe(text)


@pytest.mark.parametrize("text", ["other:my\x1b[31m", "other:a\nb", "other: "])
def test_a_recipe_of_ones_own_can_be_shown_on_one_line(text):
    with pytest.raises(RecipeError):
        check_recipe(text)


@pytest.mark.parametrize(
    "text",
    [LATE, "nvfp4+no_rht", "nvfp4+bf16@blocks:0-1.down", "other:größer then better", None, "bf16"],
)
def test_honest_recipes_are_taken(text):
    check_recipe(text)


def test_a_late_recipe_begins_as_its_first_part_and_never_has_the_smaller_noise():
    assert (base_of(LATE), width_of(LATE)) == ("nvfp4", 4)
    assert forward_differs(LATE, "bf16")
    assert not forward_differs(LATE, "nvfp4")
    assert not rounds_to_nearest("bf16 then fp8_current from step 5")


@pytest.mark.parametrize(
    ("name", "recipe", "first", "last", "expected"),
    [
        ("nvfp4", LATE, 1200, 1500, None),  # judged before the switch
        ("nvfp4", LATE, 1200, 1599, None),
        ("nvfp4", LATE, 1200, 1600, 1600),  # one step of the other recipe is enough
        ("nvfp4", LATE, 1700, 1999, 1600),
        ("nvfp4", LATE, 0, None, 1600),
        ("nvfp4-then-bf16", LATE, 1600, 1999, None),  # named after what it did
        ("nvfp4.then-bf16.from-step-1600", LATE, 0, 1999, None),
        ("head", LATE, 0, 1999, None),  # claims nothing
        ("NVFP4", "bf16", 0, 9, 0),
        ("n-v-f-p-4", "bf16", 0, 9, 0),
        ("ｎｖｆｐ４", "bf16", 0, 9, 0),  # full-width letters
        ("nvfp4", "nvfp4+bf16@blocks:last2", 0, 9, None),  # honest: the last blocks are in bf16
        ("fp8", "mxfp8", 0, 9, None),
        ("fp8", "fp8_delayed", 0, 9, None),
        ("mxfp8", "fp8_current", 0, 9, 0),
        ("fp4", "mxfp4_rht_sr", 0, 9, None),
        ("bf16-baseline", "fp8_current", 0, 9, 0),
        ("bf16-params-nvfp4", "nvfp4", 0, 9, None),
        ("nvfp4", "other:theirs", 0, 9, None),
        ("nvfp4", None, 0, 9, None),
        ("学習", LATE, 0, 1999, None),
    ],
)
def test_whether_the_judged_steps_are_those_of_the_recipe_that_a_name_claims(
    name, recipe, first, last, expected
):
    phase = not_claimed(name, recipe, first, last)
    assert (None if phase is None else phase.first_step) == expected


@pytest.mark.parametrize(
    ("name", "recipe", "expected"),
    [
        ("nvfp4", "nvfp4", "nvfp4"),
        ("nvfp4", LATE, f"nvfp4 ({LATE})"),
        ("nvfp4.then-bf16.from-step-1600", LATE, LATE),
        ("nvfp4.no_rht.block_size-32", "nvfp4+no_rht+block_size=32", "nvfp4+no_rht+block_size=32"),
        ("head", "nvfp4", "head"),
        ("head", "nvfp4+no_rht", "head (nvfp4+no_rht)"),
        ("nvfp4", "bf16", "nvfp4 (bf16)"),
        # a Cyrillic letter claims nothing, and what it did stands next to it
        ("nvfр4", LATE, f"nvfр4 ({LATE})"),
        ("head", None, "head"),
        ("head", "other:x+y then z", "head"),
    ],
)
def test_an_arm_is_shown_with_what_it_did_unless_its_name_says_it(name, recipe, expected):
    assert title(name, recipe) == expected


def test_a_text_that_is_not_written_so_is_one_phase():
    assert phases("nvfp4 then bf16") == (Phase(first_step=0, recipe="nvfp4 then bf16"),)
