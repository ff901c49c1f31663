"""Proposed switches: boxes that share no cell, have all of them, and put what was named first."""

import itertools

import numpy as np
import pytest

from parity_lab.assignments import GEMMS, GROUPS, MOST_SWITCHES, Box, boxes, proposals

MLP = [(block, name, gemm) for block in range(2) for name in GROUPS["mlp"] for gemm in GEMMS]
PROJECTIONS = (*GROUPS["attention"], *GROUPS["mlp"])


def names(parts):
    return [box.name for box in parts]


def test_a_named_unit_is_a_switch_of_its_own_and_the_rest_follows_by_blocks():
    assert names(proposals(MLP, [[(1, "down", "wgrad")]])) == [
        "1.down.wgrad",
        "0.mlp",
        "1.mlp.fprop+dgrad",
        "1.gate+up.wgrad",
    ]
    assert names(proposals(MLP, [])) == ["0.mlp", "1.mlp"]


def test_a_cluster_of_neighbours_is_one_box_where_it_can_be():
    fprop = [cell for cell in MLP if cell[2] == "fprop"]
    assert names(proposals(MLP, [fprop])) == [
        "0-1.mlp.fprop",
        "0.mlp.dgrad+wgrad",
        "1.mlp.dgrad+wgrad",
    ]
    ragged = [*fprop, (0, "gate", "dgrad")]
    assert names(proposals(MLP, [ragged]))[:3] == [
        "0-1.mlp.fprop",
        "0.gate.dgrad",
        "0.up+down.dgrad",
    ]


def test_ranges_of_blocks_as_a_job_file_writes_them():
    assert Box(blocks=(0, 1, 2, 5), projections=("down",), gemms=("fprop",)).ranges == ["0-2", "5"]


@pytest.mark.parametrize("seed", range(40))
def test_every_cell_is_in_one_box_and_what_was_named_shares_none_with_the_rest(seed):
    random = np.random.default_rng(seed)
    blocks = int(random.integers(1, 9))
    everything = list(itertools.product(range(blocks), PROJECTIONS, GEMMS))
    changed = [cell for cell in everything if random.random() < 0.8]
    named = [[everything[at] for at in random.integers(0, len(everything), 3)] for _ in range(2)]
    most = int(random.integers(1, 40))
    parts = proposals(changed, named, most)
    if not parts:
        return
    assert len(parts) <= most
    cells = [cell for box in parts for cell in box.cells()]
    assert sorted(cells) == sorted(changed)
    assert len(set(names(parts))) == len(parts)
    wanted = {cell for cluster in named for cell in cluster} & set(changed)
    assert all(set(box.cells()) <= wanted or not set(box.cells()) & wanted for box in parts)


def test_more_boxes_than_switches_are_not_proposed():
    scattered = [[(block, "down", "wgrad")] for block in range(0, 40, 2)]
    changed = list(itertools.product(range(40), PROJECTIONS, GEMMS))
    assert proposals(changed, scattered, MOST_SWITCHES) == []
    assert len(boxes(changed)) == 1
