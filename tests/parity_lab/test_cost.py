"""Step times follow from FLOPs by format, checked against a sum by hand, or from measured gains."""

import numpy as np
import pytest

from parity_lab.assignments import Shape, Space, Switch, measured_times, modelled_times
from training.gemm_time import GB300

MLP = ["up", "down"]
SPACE = Space(
    switches=(
        Switch(
            name="wgrad", override={"projections": MLP, "gemms": ["wgrad"], "recipe": "fp8_current"}
        ),
        Switch(
            name="last block", override={"blocks": ["last 1"], "projections": MLP, "recipe": "bf16"}
        ),
        Switch(
            name="the end", override={"projections": ["down"], "recipe": "bf16", "from_step": 75}
        ),
        Switch(name="rotation", override={"switches": {"rht": False}}),
    )
)
SHAPE = Shape(weights={"up": 6, "down": 10}, n_layers=3, steps=100, recipe="nvfp4", end_to_end=1.5)


def slow(assignment):
    """GEMM time of an assignment, place by place and step by step."""
    wgrad, last, late, _ = (bit == "0" for bit in assignment)
    total = 0.0
    for step in range(100):
        for block in range(3):
            for name, size in SHAPE.weights.items():
                for gemm in ("fprop", "dgrad", "wgrad"):
                    recipe = "fp4"
                    recipe = "fp8" if wgrad and gemm == "wgrad" else recipe
                    recipe = "bf16" if last and block == 2 else recipe
                    recipe = "bf16" if late and name == "down" and step >= 75 else recipe
                    total += size / GB300[recipe] / 100
    return total


def test_modelled_times_are_the_sum_over_places_and_steps():
    times = modelled_times(SPACE, SHAPE)
    everything = 3 * 3 * 16
    other = (everything / 2 - 1.5 * everything / 6) / 0.5
    for assignment in ("1111", "0111", "1011", "1101", "1110", "0000"):
        assert times[int(assignment, 2)] == pytest.approx(
            (slow(assignment) + other) / (everything / 2 + other)
        )
    assert 1.0 / times[-1] == pytest.approx(1.5)


@pytest.mark.parametrize("blocks", [[1, 2], ["1-2"], ["last 2"], ["1 - 2"]])
def test_blocks_are_read_as_the_trainer_reads_them(blocks):
    space = Space(
        switches=(
            Switch(
                name="a", override={"blocks": blocks, "projections": MLP, "recipe": "fp8_current"}
            ),
        )
    )
    first = Space(
        switches=(
            Switch(name="a", override={"blocks": [0], "projections": MLP, "recipe": "fp8_current"}),
        )
    )
    whole = modelled_times(space, SHAPE)[0] - modelled_times(space, SHAPE)[1]
    assert whole == pytest.approx(
        2 * (modelled_times(first, SHAPE)[0] - modelled_times(first, SHAPE)[1])
    )


def test_an_impossible_speed_and_an_unknown_recipe_are_refused():
    with pytest.raises(ValueError, match="at most 3"):
        modelled_times(
            SPACE,
            Shape(
                weights={"up": 1, "down": 1}, n_layers=1, steps=10, recipe="nvfp4", end_to_end=3.5
            ),
        )
    with pytest.raises(ValueError, match="int3"):
        modelled_times(
            SPACE, Shape(weights={"up": 1, "down": 1}, n_layers=1, steps=10, recipe="int3")
        )


def test_measured_times_add_up_what_each_switch_gains():
    space = Space(switches=SPACE.switches[:2])
    assert measured_times(space, 2.0, {"wgrad": 0.2, "last block": 0.5}) == pytest.approx(
        np.array([1.0, 0.75, 0.9, 0.65])
    )
    with pytest.raises(ValueError, match="wgrad"):
        measured_times(space, 2.0, {"last block": 0.5})
    with pytest.raises(ValueError, match="less than the baseline"):
        measured_times(space, 0.5, {"wgrad": 0.2, "last block": 0.5})
