"""Meshes of MaxText: ours are MaxText's own on every machine, and what it refuses is refused with
the reason.
"""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest

from training.environment.maxtext_installed import VARIABLE
from training.environment.maxtext_mesh import (
    DCN,
    ICI,
    MeshError,
    check_sizes,
    filled,
    refusal,
    shape,
    uneven,
)
from training.environment.maxtext_options import NO_OPTIONS, MaxTextOptions, sizes
from training.rules import SpecError

ROOT = Path(__file__).parents[3]
RECORDED = json.loads((ROOT / "tests" / "data" / "maxtext_meshes.json").read_text())
DEFAULT = sizes(NO_OPTIONS)


def _axes(slices, changed):
    """Our mesh as MaxText names it: {axis: size}, without axes of size 1."""
    by_option = filled(DEFAULT | changed, slices)
    axes = {}
    for name, size in by_option.items():
        axis = name.split("_")[1]
        axes[axis] = axes.get(axis, 1) * size
    return {axis: size for axis, size in axes.items() if size > 1}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['slices']}{case['sizes']}")
def test_a_mesh_is_maxtexts_own(case):
    if "mesh" in case:
        assert _axes(case["slices"], case["sizes"]) == case["mesh"]
        return
    with pytest.raises(MeshError):
        filled(DEFAULT | case["sizes"], case["slices"])


def test_machines_that_people_have_are_among_the_recorded_ones():
    by_machine = {}
    for case in RECORDED:
        by_machine.setdefault(shape(case["slices"]) or str(case["slices"][0]), []).append(case)
    assert {"8", "16x8", "32x4", "2x64", "72+56"} <= by_machine.keys()
    assert not any("mesh" in case for case in by_machine["72+56"])
    assert all(any("mesh" in case for case in by_machine[name]) for name in ("16x8", "32x4"))


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_maxtext_still_says_what_was_recorded():
    asked = [{name: case[name] for name in ("slices", "sizes")} for case in RECORDED]
    answer = subprocess.run(
        [os.environ[VARIABLE], ROOT / "tools" / "maxtext_meshes.py"],
        input=json.dumps(asked),
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert json.loads(answer.stdout) == RECORDED


def test_uneven_nodes_are_refused_with_what_would_fit():
    assert refusal(DEFAULT, [72, 56]) == uneven([72, 56])
    assert uneven([72, 56]) == (
        "its nodes have 72 + 56 devices, and MaxText needs equally many on each: 56 of each are "
        "112 devices"
    )
    assert uneven([64, 64]) is None


@pytest.mark.parametrize(
    ("changed", "slices", "message"),
    [
        (
            {"ici_fsdp_parallelism": 128},
            [8] * 16,
            (
                "maxtext's ici sizes multiply to 128, expected 8 devices of a node of its 16 x 8; "
                "the rest goes to dcn sizes, and -1 takes what is left (ici_fsdp_parallelism: -1)"
            ),
        ),
        (
            {"dcn_data_parallelism": 1},
            [8] * 16,
            (
                "maxtext's dcn sizes multiply to 1, expected 16, the nodes of its 16 x 8; the "
                "devices of a node go to ici sizes, and -1 takes what is left "
                "(dcn_fsdp_parallelism: -1)"
            ),
        ),
        (
            {"dcn_fsdp_parallelism": 2},
            [8],
            (
                "maxtext's dcn sizes multiply to 2, expected 1, the nodes of its 1 x 8; the "
                "devices of a node go to ici sizes, and -1 takes what is left "
                "(dcn_fsdp_parallelism: -1)"
            ),
        ),
    ],
)
def test_a_mesh_of_other_machines_is_refused_with_the_reason(changed, slices, message):
    assert refusal(DEFAULT | changed, slices) == message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ici_tensor_parallelism": 3}, "sizes whose product is devices = 8"),
        ({"ici_fsdp_parallelism": 4, "dcn_data_parallelism": 1}, "sizes whose product is"),
        ({"ici_data_parallelism": 0}, "ici_data_parallelism is 0, expected a number from 1, or -1"),
        ({"ici_tensor_parallelism": -1}, "ici_tensor_parallelism is -1, expected a number from 1$"),
        ({"ici_data_parallelism": -1}, "fsdp_parallelism is -1, .* ici_data_parallelism: 1"),
        ({"dcn_fsdp_parallelism": -1}, "one of them may be -1; say dcn_data_parallelism: 1"),
    ],
)
def test_sizes_that_no_machines_could_hold_are_refused_at_once(changed, message):
    with pytest.raises(SpecError, match=message):
        check_sizes(DEFAULT | changed, 8, one_slice=False)


def test_one_process_has_one_node():
    across = DEFAULT | {"dcn_fsdp_parallelism": 2}
    check_sizes(across, 8, one_slice=False)
    with pytest.raises(SpecError, match="several nodes need hardware: gpu_multiprocess"):
        check_sizes(across, 8, one_slice=True)


@pytest.mark.parametrize("devices", [1, 6, 8, 12])
def test_what_is_refused_at_once_fits_no_machines_and_the_rest_fits_some(devices):
    choices = [
        {"ici_tensor_parallelism": tensor, "ici_fsdp_parallelism": fsdp, "dcn_fsdp_parallelism": d}
        for tensor in (1, 2, 3, 4, 5)
        for fsdp in (-1, 1, 2, 4)
        for d in (1, 2, 3)
    ]
    for changed in choices:
        stated = DEFAULT | changed
        try:
            check_sizes(stated, devices, one_slice=False)
            taken = True
        except SpecError:
            taken = False
        machines = [[devices // n] * n for n in range(1, devices + 1) if devices % n == 0]
        fitting = [slices for slices in machines if refusal(stated, slices) is None]
        assert bool(fitting) == taken, (changed, fitting)
        for slices in fitting:
            mesh = filled(stated, slices)
            assert math.prod(mesh[name] for name in ICI) == slices[0]
            assert math.prod(mesh[name] for name in DCN) == len(slices)


def test_a_job_that_says_nothing_of_nodes_shares_the_batch_among_them():
    assert filled(DEFAULT, [8] * 16)["dcn_data_parallelism"] == 16
    over_all = sizes(MaxTextOptions(dcn_fsdp_parallelism=-1))
    assert [filled(over_all, [8] * 16)[name] for name in DCN] == [1, 16]
