"""The inputs of the reference vectors and what the tool says where the references are missing; the
file itself is in tests/data.
"""

from pathlib import Path

import numpy as np
import pytest

from tools import make_reference_vectors as tool
from tools.vectors import VARIANTS

FILE = Path(__file__).parents[1] / "data" / "te_variants.npz"


@pytest.fixture(scope="module")
def te_variants():
    with np.load(FILE) as archive:
        return {key: archive[key] for key in archive.files}


def test_every_format_has_a_quantizer_here():
    assert {*tool.NVFP4, *tool.FP8_BLOCKS} == VARIANTS.keys()


def test_inputs_are_those_of_the_file_in_the_tree(te_variants):
    inputs = tool.inputs(many=False)
    assert {f"{case}/x" for case in inputs} == {key for key in te_variants if key.endswith("/x")}
    for case, x in inputs.items():
        np.testing.assert_array_equal(te_variants[f"{case}/x"], x)
    assert len(tool.inputs(many=True)) > len(inputs)


def test_codes_in_pairs_are_unpacked_low_half_first():
    assert tool.unpacked(np.array([[0x21, 0xF3]], np.uint8)).tolist() == [[1, 2, 3, 15]]


def test_without_torch_it_says_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    assert tool.main([str(tmp_path / "out.npz")]) == 2
    assert "torch and transformer_engine not installed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fp8_block_1d_e4m3", "fp8_block_1d_e5m2"])
def test_a_block_of_zeros_has_scale_one(name, te_variants):
    assert (te_variants["dead_blocks/x"][3] == 0).all()
    assert (te_variants[f"dead_blocks/{name}/row_scale_e8m0"][3] == 127).all()
