"""Floating-point operations of training, counted from the shape alone.

What it answers: how much arithmetic does a token cost, and which share of it does a recipe make cheaper?

    a matrix of K x N      2 K N to go forward, 2 K N for dgrad, 2 K N for wgrad: 6 K N a token
    attention              scores and mixing, 4 T d_model forward, three times that in all: 12 T d_model a token and block

The embedding lookup, norms, rotary positions and softmax are not counted; attention counts the whole square of T, as
published figures do, though half of it is masked. Source: Chowdhery et al., PaLM (arXiv 2204.02311), appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.rules import LayerPolicy
from training.spec import Model

_PASSES = 3  # forward, dgrad, wgrad


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Operations of training a token: in the linear layers that a recipe quantizes, and elsewhere."""

    quantized: int
    other: int

    @property
    def total(self) -> int:
        return self.quantized + self.other


def flops_per_token(model: Model, sequence_length: int, layer_policy: LayerPolicy = "all_linears") -> Flops:
    """Forward and backward operations of one token in sequences of that length, every block quantized."""
    keys = model.n_kv_heads * model.head_dim
    projections = 2 * model.d_model**2 + 2 * model.d_model * keys
    mlp = 3 * model.d_model * model.d_ff
    scores = 2 * sequence_length * model.d_model
    logits = model.d_model * model.vocab_size
    quantized = mlp + (projections if layer_policy == "all_linears" else 0)
    everything = model.n_layers * (projections + mlp + scores) + logits
    weight = 2 * _PASSES
    return Flops(quantized=weight * model.n_layers * quantized, other=weight * (everything - model.n_layers * quantized))
