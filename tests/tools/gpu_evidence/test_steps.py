"""The steps themselves: each can be begun, and the dearest comes first."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import pytest

from server.settings import CHECKOUT
from tools.gpu_evidence.steps import rehearsal, steps

OUT = Path("/out")


def test_the_order_is_that_of_value():
    order = [step.name for step in steps(OUT, None)]
    assert order.index("device") == 0
    assert (
        order.index("pair")
        < order.index("te_layers")
        < order.index("te_pair")
        < order.index("speeds_20m")
        < order.index("speeds_1b")
    )


@pytest.mark.parametrize("made", [steps(OUT, OUT / "tokens.npy"), rehearsal(OUT, None, 5)])
def test_each_step_runs_a_program_of_this_checkout(made):
    assert len({step.name for step in made}) == len(made)
    for step in made:
        if step.module[0] == "-m":
            assert importlib.util.find_spec(step.module[1]) is not None
        else:
            assert (CHECKOUT / step.module[0]).is_file()


def test_a_step_takes_the_largest_size_that_can_end():
    pair = next(step for step in steps(OUT, None) if step.name == "pair")
    assert all(larger.seconds > smaller.seconds for larger, smaller in pairwise(pair.sizes))
    assert pair.fitting(1e9) == pair.sizes[0]
    assert pair.fitting(pair.sizes[0].seconds) == pair.sizes[0]
    assert pair.fitting(pair.sizes[0].seconds - 1) == pair.sizes[1]
    assert pair.fitting(pair.sizes[-1].seconds - 1) is None


def test_no_limit_is_below_what_a_step_needs():
    for step in steps(OUT, None):
        assert step.limit is None or step.limit > step.sizes[0].seconds


def test_a_rehearsal_needs_no_gpu_and_leaves_out_no_kind_of_step():
    names = {step.name for step in rehearsal(OUT, None, 120)}
    assert (
        {"device", "pair", "te_layers", "te_vectors", "te_pair", "speeds_20m", "te_speeds"}
        <= names
        <= {step.name for step in steps(OUT, None)}
    )
    # no verdict on a slow host's speed
    assert not any(step.limit for step in rehearsal(OUT, None, 120) if step.name != "device")
