"""The known answers: that our codes are theirs, that one wrong byte is counted, and which formats a
recipe has.
"""

import numpy as np
import pytest

from training.arithmetic import known_answers
from training.arithmetic.known_answers import (
    KINDS,
    QUANTIZERS,
    answers,
    difference,
    differing_formats,
    formats_of,
)
from training.arithmetic.recipes import linear_recipe
from training.switches import Switches


def test_our_codes_are_the_known_ones():
    assert differing_formats() == {}
    assert {answer.format for answer in answers()} == set(QUANTIZERS)
    assert sum(answer.copy.codes.size for answer in answers()) > 150_000


@pytest.mark.parametrize("part", ["codes", "scales", "scalar"])
def test_one_wrong_value_is_counted(part):
    answer = next(answer for answer in answers() if answer.format == "nvfp4_1d")
    value = np.array(getattr(answer.copy, part))
    value[(3, 3) if value.ndim else ()] += 1
    total = difference(answer, answer.copy._replace(**{part: value}))
    assert tuple(total.differing[kind] for kind in KINDS) == tuple(
        int(part == name) for name in ("codes", "scales", "scalar")
    )
    assert not difference(answer, answer.copy)


def test_a_copy_of_another_shape_differs_everywhere():
    answer = answers()[0]
    assert (
        difference(answer, answer.copy._replace(codes=answer.copy.codes.T)).differing["codes"]
        == answer.copy.codes.size
    )


def test_the_sign_of_an_fp4_zero_is_free():
    answer = next(
        answer
        for answer in answers()
        if answer.format == "nvfp4_1d" and (answer.copy.codes == 0).any()
    )
    assert not difference(
        answer, answer.copy._replace(codes=np.where(answer.copy.codes == 0, 8, answer.copy.codes))
    )


def test_a_difference_is_said_in_numbers(monkeypatch):
    monkeypatch.setattr(
        known_answers,
        "copy_of",
        lambda made, _quantizer: known_answers.QuantizedCopy(
            np.asarray(made.codes) ^ 1, None, None
        ),
    )
    assert set(differing_formats()) == set(QUANTIZERS)
    assert "codes" in differing_formats()["mxfp8_e4m3"]


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        ("bf16", set()),
        ("fp8_delayed", {"fp8_cs_e4m3", "fp8_cs_e5m2"}),
        ("mxfp8", {"mxfp8_e4m3"}),
        ("fp8_block", {"mxfp8_e4m3"}),
        ("nvfp4", {"nvfp4_1d", "nvfp4_2d", "nvfp4_1d_rht"}),
        ("nvfp4_no_rht", {"nvfp4_1d", "nvfp4_2d"}),
    ],
)
def test_a_recipe_has_the_formats_of_its_operands(recipe, names):
    assert formats_of(linear_recipe(recipe, fast_bf16=True).quantizers) == names


def test_a_variant_stands_for_the_format_that_it_varies():
    switches = Switches(row_scaled_activation=True, nvfp4_4over6="all", sr_bits=8, nan="hardware")
    assert formats_of(linear_recipe("nvfp4", switches, fast_bf16=True).quantizers) == {
        "nvfp4_1d",
        "nvfp4_2d",
        "nvfp4_1d_rht",
    }
