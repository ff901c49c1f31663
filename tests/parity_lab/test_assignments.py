"""An assignment gives the overrides of a job file, and they reach the GEMMs that it takes back."""

import pytest

from parity_lab.assignments import Space, Switch, all_assignments, alone, without
from training.rules import PROJECTIONS
from training.segments import Plan, resolve
from training.switches import NO_SWITCHES, features, from_document

MLP = ["gate", "up", "down"]
SPACE = Space(
    switches=(
        Switch(
            name="wgrad of the MLP",
            override={"projections": MLP, "gemms": ["wgrad"], "recipe": "fp8_current"},
        ),
        Switch(
            name="last block", override={"blocks": ["last 1"], "projections": MLP, "recipe": "bf16"}
        ),
        Switch(name="the end", override={"projections": MLP, "recipe": "bf16", "from_step": 80}),
        Switch(name="rotation", override={"switches": {"rht": False}}),
    )
)


def cells(assignment):
    """(first step, block of two, projection, GEMM) -> recipe and switches, as the trainer resolves
    the assignment's overrides.
    """
    plan = Plan(
        recipe="nvfp4",
        switches=NO_SWITCHES,
        overrides=tuple(map(from_document, SPACE.overrides(assignment))),
        bf16_from_step=None,
        bf16_scope="all",
        quantized=frozenset(MLP),
        keep_first=0,
        keep_last=0,
        n_layers=2,
        steps=100,
    )
    result = {}
    for part in resolve(plan):
        ends = {span.first: span.last for span in part.spans}
        for first, projection, gemm, arithmetic in part.cells():
            for block in range(first, ends[first] + 1):
                result[part.first_step, block, projection, gemm] = arithmetic
    return result


def test_every_assignment_resolves_and_leaves_attention_alone():
    for assignment in all_assignments(SPACE.size):
        own = cells(assignment)
        assert {own[place].recipe for place in own if place[2] not in MLP} == {"bf16"}
        assert {place[2] for place in own} == set(PROJECTIONS)


def test_the_candidate_has_no_overrides_and_each_bit_has_its_own():
    assert SPACE.overrides("1111") == []
    assert cells("0111")[0, 0, "up", "wgrad"].recipe == "fp8_current"
    assert cells("0111")[0, 0, "up", "fprop"].recipe == "nvfp4"
    assert (
        cells("1011")[0, 1, "up", "fprop"].recipe
        == "bf16"
        != cells("1011")[0, 0, "up", "fprop"].recipe
    )
    late = cells("1101")
    assert late[0, 0, "down", "fprop"].recipe == "nvfp4"
    assert late[80, 0, "down", "fprop"].recipe == "bf16"
    assert not features(*cells("1110")[0, 0, "down", "wgrad"]).rht
    # an ingredient stands before the recipes
    assert not features(*cells("1010")[0, 0, "down", "wgrad"]).rht


def test_one_switch_alone_and_one_taken_back():
    assert [alone(3, at) for at in range(3)] == ["100", "010", "001"]
    assert [without(3, at) for at in range(3)] == ["011", "101", "110"]


def test_a_recipe_without_projections_and_an_override_of_nothing_are_refused():
    with pytest.raises(ValueError, match="projections"):
        Switch(name="all", override={"recipe": "bf16"})
    with pytest.raises(ValueError, match="recipe or switches"):
        Switch(name="nothing", override={"projections": MLP})


def test_a_space_has_at_most_12_switches_with_different_names():
    one = SPACE.switches[0]
    with pytest.raises(ValueError, match="2 switches"):
        Space(switches=(one, one))
    with pytest.raises(ValueError, match="13 switches"):
        Space(switches=tuple(Switch(name=str(at), override=one.override) for at in range(13)))
    with pytest.raises(ValueError, match="'01'"):
        SPACE.overrides("01")
