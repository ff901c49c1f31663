"""The vector file's inputs and layout, with our own quantizers in the place of Transformer
Engine.
"""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tools import make_reference_vectors
from tools.vectors import VARIANTS, _dense_recipe, compare
from training.arithmetic import random_bits
from training.arithmetic.known_answers import QUANTIZERS
from training.arithmetic.linear import linear, quiet_channel
from training.arithmetic.quantize import quantize

SOURCE = Path(__file__).parents[2] / "tools" / "make_te_vectors.py"
SPEC = importlib.util.spec_from_file_location("make_te_vectors", SOURCE)
assert SPEC is not None
assert SPEC.loader is not None
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


class Ours:
    """Our emulation as the engine of a file; it leaves one format out."""

    def refusal(self, name):
        return "left out on purpose" if name == "mxfp8_e5m2" else None

    def quantized(self, name, x):
        quantizer = QUANTIZERS[name]
        x = jnp.asarray(x, jnp.bfloat16)
        if quantizer.scaling == "tensor":
            made = jax.jit(quantize, static_argnums=(1, 2))(x, 1, quantizer)
            return {"codes": np.asarray(made.codes), "scale_inv": np.asarray(made.scale_inv)[None]}
        parts = {}
        kind = "e4m3" if quantizer.scaling == "nvfp4" else "e8m0"
        for side, axis in (("row", 1), ("col", 0)) if not quantizer.rotated else (("col", 0),):
            made = jax.jit(quantize, static_argnums=(1, 2))(x, axis, quantizer)
            codes, scales = np.asarray(made.codes), np.asarray(made.scales)
            if quantizer.two_dimensional:
                scales = np.repeat(scales, 16, axis=1 - axis)
            if kind == "e4m3":
                codes, scales = (codes, scales) if axis else (codes.T, scales.T)
                parts[f"{side}_amax"] = np.asarray(made.amax)[None]
                pairs = codes[:, 0::2] | (codes[:, 1::2] << 4)  # as the kernels store them
                codes = tool.unpacked(pairs)
            parts |= {f"{side}_codes": codes, f"{side}_scale_{kind}": scales}
        return parts

    def layer(self, name, x, w, g):
        recipe, _ = _dense_recipe(name, through_bfloat16=False)
        x, w, g = (jnp.asarray(part, jnp.bfloat16) for part in (x, w, g))

        @jax.jit
        def products(x, w, g):
            y, pull = jax.vjp(
                lambda x, w: linear(recipe, x, w, random_bits.key(0), quiet_channel()), x, w
            )
            return y, *pull(g)

        return tuple(np.asarray(part, np.float32) for part in products(x, w, g))


def test_every_format_and_layer_has_a_place_in_the_file(monkeypatch):
    cases = {name: tool.inputs()[name] for name in ("normal_128x256", "zeros_64x128")}
    monkeypatch.setattr(tool, "inputs", lambda: cases)
    monkeypatch.setattr(tool, "FORMATS", ("nvfp4_2d", "fp8_cs_e4m3", "mxfp8_e4m3", "mxfp8_e5m2"))
    monkeypatch.setattr(tool, "LAYERS", ("nvfp4_rht_2d",))
    notes = []
    rows = {row.name: row for row in compare(tool.vectors(Ours(), notes.append))}
    assert notes == ["mxfp8_e5m2 is left out: left out on purpose\n"]
    assert len(rows) == len(cases) * (2 + 1 + 2) + 2  # the layer, through both kinds of product
    assert [name for name, row in rows.items() if not row.passed] == []
    assert rows["normal_128x256/nvfp4_2d/col"].codes == 128 * 256


def test_inputs_are_exact_in_bfloat16_and_fit_the_fused_kernel():
    for x in tool.inputs().values():
        np.testing.assert_array_equal(x, x.astype(ml_dtypes.bfloat16).astype(np.float32))
        assert x.shape[0] % 64 == x.shape[1] % 128 == 0
        assert np.isfinite(x).all()


def test_every_name_is_one_that_the_comparison_knows():
    assert set(tool.FORMATS) == set(QUANTIZERS)
    assert {*make_reference_vectors.NVFP4, *make_reference_vectors.FP8_BLOCKS} == set(VARIANTS)
    for name in tool.LAYERS:
        _dense_recipe(name, through_bfloat16=False)


def test_a_machine_without_transformer_engine_is_refused(tmp_path, capsys):
    if tool.missing() is None:
        pytest.skip("this machine can make vectors")
    assert tool.main([str(tmp_path / "vectors.npz")]) == 2
    assert "no vectors are made:" in capsys.readouterr().err
    assert not (tmp_path / "vectors.npz").exists()
