"""The comparison with Transformer Engine's own vectors, and that it notices a single wrong byte."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_of
from tools import vectors
from tools.vectors import VectorFileError, compare, main
from training.arithmetic import formats
from training.arithmetic.known_answers import QUANTIZERS
from training.arithmetic.quantize import quantize


def test_codes_scales_and_products_equal_transformer_engine(te_vectors):
    rows = list(compare(te_vectors))
    assert [row for row in rows if not row.passed] == []
    assert sum(row.codes for row in rows) > 150_000
    assert sum(row.granted for row in rows) == 0
    recipes = [
        f"dense/{name}/{products}"
        for name in ("nvfp4_rht_2d", "fp8_cs")
        for products in ("float32", "bfloat16")
    ]
    assert {row.name: row.worst_ulp for row in rows if row.allowed_ulp} == dict.fromkeys(
        recipes, 0.0
    )


VARIANTS = (
    "nvfp4_1d_row",
    "nvfp4_1d_rht_row",
    "nvfp4_1d_4over6",
    "nvfp4_1d_4over6_448",
    "nvfp4_1d_4over6_mse",
    "nvfp4_1d_row_4over6",
    "nvfp4_1d_rht_4over6",
    "nvfp4_2d_4over6",
    "nvfp4_2d_4over6_mse",
    "fp8_block_1d_e4m3",
    "fp8_block_1d_e5m2",
    "fp8_block_2d_e4m3",
)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_equal_transformer_engines_pytorch_reference(te_variants, name):
    skipped = () if name in some_of(VARIANTS, 2, 0) else ("f32/",)  # its programs are other ones
    vectors = {
        key: value for key, value in te_variants.items() if key.endswith("/x") or f"/{name}/" in key
    }
    rows = list(
        compare({key: value for key, value in vectors.items() if not key.startswith(skipped)})
    )
    assert [row for row in rows if not row.passed or row.granted] == []
    assert {row.name.split("/")[1] for row in rows} == {name}
    assert sum(row.codes for row in rows) >= 5 * 32 * 144


def test_an_amax_of_every_row_is_compared(te_variants):
    base = "normal/nvfp4_1d_row/row_"
    arrays = {
        key: te_variants[key]
        for key in ("normal/x", f"{base}codes", f"{base}scale_e4m3", f"{base}amax")
    }
    arrays[f"{base}amax"] = arrays[f"{base}amax"] * np.where(np.arange(32) == 7, 2, 1).astype(
        np.float32
    )
    (row,) = compare(arrays)
    assert row.scales_differ == 1
    with pytest.raises(VectorFileError, match="an amax has 1 values, expected 32"):
        list(compare(arrays | {f"{base}amax": np.ones(1, np.float32)}))


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("ties_32x64/nvfp4_1d/row_codes", "codes_differ"),
        ("ties_32x64/nvfp4_2d/col_scale_e4m3", "scales_differ"),
        ("ties_32x64/mxfp8_e4m3/row_scale_e8m0", "scales_differ"),
        ("one_outlier_16x16/fp8_cs_e4m3/scale_inv", "scales_differ"),
        ("fp8_cs/dw", "worst_ulp"),
    ],
)
def test_one_wrong_value_is_detected(te_vectors, tmp_path, capsys, key, column):
    case = key.split("/")[0]
    wrong = {
        name: value
        for name, value in te_vectors.items()
        if name.split("/")[0] == case or (name in ("x", "w", "g") and case == "fp8_cs")
    }
    changed = wrong[key].copy()
    changed.flat[7 % changed.size] += 2
    wrong[key] = changed
    rows = list(compare(wrong))
    assert sum(not row.passed for row in rows) == (2 if column == "worst_ulp" else 1)
    assert max(getattr(row, column) for row in rows) >= 1
    np.savez(tmp_path / "wrong.npz", **wrong)
    assert main([str(tmp_path / "wrong.npz")]) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_scale_on_a_rounding_tie_is_granted_with_its_codes(te_vectors):
    x = np.zeros((16, 32), np.float32)
    x[0] = 1.0
    arrays = {"case/x": te_vectors["outliers_128x128/x"]}
    base = "outliers_128x128/nvfp4_1d/row_"
    arrays |= {
        f"case/nvfp4_1d/row_{part}": te_vectors[base + part].copy()
        for part in ("codes", "scale_e4m3", "amax")
    }
    # a neighbouring scale that no order of multiplication gives
    arrays["case/nvfp4_1d/row_scale_e4m3"][0, 0] += 1
    (row,) = compare(arrays)
    assert (row.scales_differ, row.granted) == (1, 0)


LOST = np.float32(2e-39)  # bfloat16 has it, and XLA on CPUs takes it for zero
SMALL = {"nvfp4_1d": ("e4m3", 7), "nvfp4_1d_4over6": ("e4m3", 7), "mxfp8_e4m3": ("e8m0", 126)}


def _with_lost_elements(name):
    """The answer of another implementation, which keeps them: it gives them the largest code, and
    their block a scale, as the PyTorch reference does.
    """
    scale, largest = SMALL[name]
    x = np.ones((32, 64), np.float32)
    x[0, :32] = LOST
    x[1, 0] = LOST
    ours = jax.jit(quantize, static_argnums=(1, 2))(
        jnp.asarray(x, jnp.bfloat16), 1, vectors.QUANTIZERS[name]
    )
    codes, scales = np.asarray(ours.codes).copy(), np.asarray(ours.scales).copy()
    codes[0, :32] = codes[1, 0] = largest
    scales[0, 0] += 1
    return {
        "case/x": x,
        f"case/{name}/row_codes": codes,
        f"case/{name}/row_scale_{scale}": scales,
    }


@pytest.mark.parametrize("name", SMALL)
def test_elements_that_a_processor_takes_for_zero_are_granted_with_their_scales(name):
    arrays = _with_lost_elements(name)
    (row,) = compare(arrays)
    assert row.passed
    assert row.granted == 33 + 1


@pytest.mark.parametrize("name", SMALL)
def test_what_stands_beside_such_elements_is_not_granted(name):
    arrays = _with_lost_elements(name)
    codes, scales = (key for key in arrays if key != "case/x")
    arrays[codes][1, 1] -= 1  # a larger element of a block with a lost one
    arrays[scales][1, 0] += 1  # the scale of that block
    (row,) = compare(arrays)
    assert (row.codes_differ, row.scales_differ) == (1, 1)


def test_an_amax_that_a_processor_takes_for_zero_is_granted_and_no_other():
    base = "case/nvfp4_1d_row/row_"
    amax = np.where(np.arange(16) == 3, LOST, 0).astype(np.float32)
    arrays = {
        "case/x": np.zeros((16, 16), np.float32),
        f"{base}codes": np.zeros((16, 16), np.uint8),
        f"{base}scale_e4m3": np.zeros((16, 1), np.uint8),
        f"{base}amax": amax,
    }
    (row,) = compare(arrays)
    assert (row.passed, row.granted) == (True, 1)
    amax[4] = 1e-37
    (row,) = compare(arrays)
    assert row.scales_differ == 1


@pytest.mark.parametrize("name", ["nvfp4_1d_4over6", "nvfp4_1d_4over6_mse", "nvfp4_1d_row_4over6"])
def test_a_block_with_an_infinity_is_the_references_under_four_over_six(name):
    """Codes and scale that the reference of Transformer Engine 2.20.2 gave: the infinity is the
    largest code, the rest of its block is zero.
    """
    rest = np.linspace(-1.5, 1.5, 16, dtype=np.float32)
    has_infinity = np.arange(16) == 4
    x = np.where(has_infinity, np.inf, rest).astype(np.float32)
    theirs = np.where(has_infinity, 7, np.where(rest < 0, 8, 0)).astype(np.uint8)
    arrays = {
        "inf/x": np.tile(x, (16, 1)),
        f"inf/{name}/row_codes": np.tile(theirs, (16, 1)),
        f"inf/{name}/row_scale_e4m3": np.full((16, 1), 126, np.uint8),
    }
    (row,) = compare(arrays)
    assert (row.passed, row.granted) == (True, 0)


def test_a_file_without_a_case_is_an_error(tmp_path, capsys):
    np.savez(tmp_path / "empty.npz", anything=np.zeros(3))
    assert main([str(tmp_path / "empty.npz")]) == 2
    assert "holds no case" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected a NumPy .npz archive: .*No such file"),
        (b"", "expected a NumPy .npz archive: "),
        (b"no archive", "expected a NumPy .npz archive: "),
        (b"PK\x03\x04 torn", "expected a NumPy .npz archive: .*not a zip file"),
        ("one", "it holds one array without a name"),
        ({"a/nvfp4_1d/row_codes": np.zeros((16, 16), np.uint8)}, "has no a/x, expected it"),
        (
            {"a/x": np.zeros((16, 16)), "a/nvfp4_1d/row_codes": np.zeros((16, 16), np.uint8)},
            "has no a/nvfp4_1d/row_scale_e4m3",
        ),
        (
            {
                "x": np.ones((32, 32)),
                "w": np.ones((32, 32)),
                "g": np.ones((32, 32)),
                "mxfp8/y": np.ones((2, 32)),
            },
            r"has the shape \(2, 32\)",
        ),
    ],
)
def test_what_is_no_vector_file_is_refused_with_status_2(content, message, tmp_path, capsys):
    path = tmp_path / "file.npz"
    if isinstance(content, dict):
        np.savez(path, **content)
    elif content == "one":
        np.save(tmp_path / "one.npy", np.zeros(3))
        path = tmp_path / "one.npy"
    elif content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    err = capsys.readouterr().err
    assert re.search(message, err)
    assert err.startswith(str(path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_product_that_is_not_finite_differs(te_vectors, value):
    arrays = {key: te_vectors[key] for key in ("x", "w", "g", "fp8_cs/y", "fp8_cs/dx", "fp8_cs/dw")}
    arrays["fp8_cs/y"] = arrays["fp8_cs/y"].copy()
    arrays["fp8_cs/y"][3, 5] = value
    assert [row.passed for row in compare(arrays)] == [False, False]


def test_an_odd_length_loses_its_last_code_and_keeps_its_scale(te_vectors):
    x = te_vectors["outliers_128x128/x"][:33, :17]
    ours = jax.jit(quantize, static_argnums=(1, 2))(
        jnp.asarray(x, jnp.bfloat16), 1, QUANTIZERS["nvfp4_1d"]
    )
    arrays = {
        "odd/x": x,
        "odd/nvfp4_1d/row_codes": np.asarray(ours.codes)[:, :16],
        "odd/nvfp4_1d/row_scale_e4m3": np.asarray(ours.scales),
    }
    (row,) = compare(arrays | {"odd/nvfp4_1d/row_amax": np.asarray(ours.amax)[None]})
    assert (row.codes, row.scales, row.passed) == (33 * 16, 33 * 2 + 1, True)
    (row,) = compare(arrays | {"odd/nvfp4_1d/row_amax": np.asarray(ours.amax)[None] * 2})
    assert row.scales_differ == 1


@pytest.mark.parametrize(
    "name", ["nvfp4_2d", "nvfp4_no_rht_2d", "nvfp4_1d", "nvfp4_rht_2d", "mxfp8", "bf16"]
)
def test_every_recipe_of_a_layer_has_its_name(te_vectors, name):
    arrays = {key: te_vectors[key] for key in ("x", "w", "g")}
    exact = [te_vectors[f"nvfp4_rht_2d/{part}"] for part in ("y", "dx", "dw")]
    arrays |= {
        f"{name}/{part}": value for part, value in zip(("y", "dx", "dw"), exact, strict=True)
    }
    assert [row.worst_ulp == 0 for row in compare(arrays)] == [name == "nvfp4_rht_2d"] * 2


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": 0, "w": 0, "g": 0, "int8/y": 0}, "int8/y is of recipe int8"),
        (
            {
                "a/x": np.ones((16, 32)),
                "a/nvfp4_1d/row_codes": np.zeros((16, 30)),
                "a/nvfp4_1d/row_scale_e4m3": np.zeros((16, 2)),
            },
            (
                r"a/nvfp4_1d/row has codes \(16, 30\) and scales \(16, 2\), expected codes \(16, "
                r"30\)|expected codes \(16, 32\)"
            ),
        ),
    ],
)
def test_a_file_in_another_format_is_refused_by_key(arrays, message, tmp_path, capsys):
    arrays = {key: np.asarray(value) for key, value in arrays.items()}
    with pytest.raises(VectorFileError, match=message):
        list(compare(arrays))
    np.savez(tmp_path / "other.npz", **arrays)
    assert main([str(tmp_path / "other.npz")]) == 2
    assert "expected" in capsys.readouterr().err


@pytest.fixture
def hard_cases(te_vectors, te_variants):
    cases = {
        name: value
        for name, value in te_vectors.items()
        if name.split("/")[0] in ("outliers_128x128", "ties_32x64")
    }
    variants = ("ties/x", "ties/nvfp4_1d_row_4over6/", "ties/nvfp4_2d_4over6/")
    return cases | {name: value for name, value in te_variants.items() if name.startswith(variants)}


@pytest.mark.usefixtures("gpu_program")
@pytest.mark.parametrize("units", some_of([-2, 1], 2, 0))
def test_a_gpus_program_gives_the_same_codes_with_every_quotient_off(
    monkeypatch, hard_cases, units
):
    monkeypatch.setattr(
        formats, "divided", lambda x, y: formats.float_of(formats.bits_of(x / y) + units)
    )
    assert [row for row in compare(hard_cases) if not row.passed] == []


@pytest.mark.usefixtures("gpu_program")
def test_without_the_correction_the_codes_would_differ(monkeypatch, hard_cases):
    monkeypatch.setattr(
        formats, "quotient", lambda x, y: formats.float_of(formats.bits_of(x / y) + 1)
    )
    nvfp4 = {
        key: value for key, value in hard_cases.items() if key.endswith("/x") or "/nvfp4_1d/" in key
    }
    assert sum(row.codes_differ for row in compare(nvfp4)) > 0
