"""Model shapes by name: Llama 3 as published, and smaller models of similar proportions that a CPU
can train.

The models of up to 75 M parameters read bytes (vocabulary 256) and share input and output
embedding; each size is a multiple of 32, so the emulation can quantize every linear layer with
every recipe. From 20 M on, and in the presets whose name ends in -by128, inputs and outputs of
every linear layer (keys and values included) are multiples of 128, which Transformer Engine's
kernels need for NVFP4 with the Hadamard rotation (`training.gemm_sizes`).

Source: the published configurations of Llama 3.2 1B, Llama 3.1 8B and 405B (arXiv 2407.21783,
table 3).
"""

from collections.abc import Mapping
from typing import Literal, get_args

Preset = Literal[
    "llama3-0.3m",
    "llama3-1m",
    "llama3-3m",
    "llama3-5m",
    "llama3-20m",
    "llama3-75m",
    "llama3-1b",
    "llama3-8b",
    "llama3-405b",
    "llama3-0.3m-by128",
    "llama3-1m-by128",
    "llama3-3m-by128",
    "llama3-5m-by128",
]
Shape = Mapping[str, float]
DEFAULT: Preset = "llama3-0.3m"
NAMES: tuple[Preset, ...] = get_args(Preset)


def _bytes(d_model: int, n_layers: int, n_heads: int, n_kv_heads: int, d_ff: int) -> Shape:
    return {
        "vocab_size": 256,
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "d_ff": d_ff,
        "rope_theta": 10_000.0,
        "tied_embeddings": True,
    }


def _llama3(d_model: int, n_layers: int, n_heads: int, d_ff: int, *, tied: bool) -> Shape:
    shape = _bytes(d_model, n_layers, n_heads, 8, d_ff)
    return {**shape, "vocab_size": 128_256, "rope_theta": 500_000.0, "tied_embeddings": tied}


PRESETS: Mapping[Preset, Shape] = {
    "llama3-0.3m": _bytes(96, 3, 3, 1, 256),
    "llama3-1m": _bytes(128, 5, 4, 2, 384),
    "llama3-3m": _bytes(192, 8, 6, 2, 512),
    "llama3-5m": _bytes(256, 6, 8, 2, 768),
    "llama3-20m": _bytes(512, 6, 8, 2, 1792),
    "llama3-75m": _bytes(768, 12, 12, 4, 2048),
    "llama3-1b": _llama3(2048, 16, 32, 8192, tied=True),
    "llama3-8b": _llama3(4096, 32, 32, 14336, tied=False),
    "llama3-405b": _llama3(16384, 126, 128, 53248, tied=False),
    "llama3-0.3m-by128": _bytes(128, 2, 4, 4, 256),
    "llama3-1m-by128": _bytes(128, 5, 4, 4, 384),
    "llama3-3m-by128": _bytes(256, 5, 8, 4, 512),
    "llama3-5m-by128": _bytes(256, 6, 8, 4, 768),
}
