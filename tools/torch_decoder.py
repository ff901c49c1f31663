"""The demo's model in PyTorch, for examples/questions/frameworks: `python tools/torch_decoder.py
START.npz RUN.csv [--neighbours]`, in an environment with PyTorch and NumPy.

START.npz has the initial weights, the batches and the learning rates of a run of
`training.trainer` (tools/make_question_curves.py writes it), so that both frameworks train one
model. It shares no code with that trainer: a second implementation is what the example is about.

`--neighbours` turns the pairs (2 i, 2 i + 1) of a head in place of (i, i + half), as other
checkpoints do whose query and key weights were not permuted: the mistake that the page shows.

Linear layers and attention take bfloat16 operands; the residual stream, norms, weights and
optimizer are float32.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

BLOCKS, HEADS, HEAD_SIZE = 3, 3, 32
THETA = 10_000.0
Z_LOSS = 1e-4

Weights = Mapping[str, torch.Tensor]


def logits_of(weights: Weights, tokens: torch.Tensor, *, neighbours: bool) -> torch.Tensor:
    """The logits (batch, length, vocabulary) of the tokens (batch, length)."""
    x = weights["embed"][tokens]
    for number in range(BLOCKS):
        start = f"blocks.{number}."
        block = {
            name.removeprefix(start): weight
            for name, weight in weights.items()
            if name.startswith(start)
        }
        x = x + attention(block, norm(x, block["attention_norm"]), neighbours=neighbours)
        n = norm(x, block["mlp_norm"])
        hidden = functional.silu(linear(n, block["gate"]).float()) * linear(n, block["up"]).float()
        x = x + linear(hidden, block["down"]).float()
    return linear(norm(x, weights["final_norm"]), weights["embed"].T).float()


def attention(block: Weights, n: torch.Tensor, *, neighbours: bool) -> torch.Tensor:
    """What causal attention with one key-value head adds to the residual stream."""
    query, key, value = (
        linear(n, block[name]).unflatten(-1, (-1, HEAD_SIZE)).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    query, key = (rotated(part, neighbours=neighbours) for part in (query, key))
    key, value = (part.expand(-1, HEADS, -1, -1) for part in (key, value))
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return linear(mixed.transpose(1, 2).flatten(2), block["out"]).float()


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product of bfloat16 operands; the weight is (inputs, outputs)."""
    return x.bfloat16() @ weight.bfloat16()


def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """RMSNorm."""
    return functional.rms_norm(x, (x.shape[-1],), gain, eps=1e-5)


def rotated(x: torch.Tensor, *, neighbours: bool) -> torch.Tensor:
    """Rotary positions: each pair of a head's numbers turns by its angle."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * THETA ** (-torch.arange(half) / half)
    cos, sin = angle.cos(), angle.sin()
    pairs = x.float().unflatten(-1, (half, 2) if neighbours else (2, half))
    left, right = pairs.unbind(-1 if neighbours else -2)
    turned = left * cos - right * sin, right * cos + left * sin
    return torch.stack(turned, dim=-1 if neighbours else -2).flatten(-2).bfloat16()


def train(
    start: dict[str, npt.NDArray[np.generic]], *, neighbours: bool
) -> Iterator[tuple[float, float, float]]:
    """The loss (nats per token), the learning rate and the gradient norm before clipping of each
    step.
    """
    batches, rates = start.pop("batches"), start.pop("learning_rates")
    weights = {name: torch.from_numpy(value).requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [w for w in weights.values() if w.ndim > 1], "weight_decay": 0.1},
            {"params": [w for w in weights.values() if w.ndim == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    for batch, rate in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        tokens = torch.from_numpy(batch).long()
        logits = logits_of(weights, tokens[:, :-1], neighbours=neighbours)
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        (loss + Z_LOSS * logits.logsumexp(-1).square().mean()).backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        yield loss.item(), float(rate), grad_norm.item()


def main() -> None:
    """Train the run and write its steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("start", type=Path, help="what the other framework's run began with")
    parser.add_argument("run", type=Path, help="the CSV file to write")
    parser.add_argument("--neighbours", action="store_true", help="turn other pairs of a head")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(options.start) as start, options.run.open("w", encoding="utf-8") as file:
        file.write("step,loss,learning_rate,grad_norm\n")
        for step, (loss, rate, grad_norm) in enumerate(
            train(dict(start), neighbours=options.neighbours)
        ):
            file.write(f"{step},{loss:.6f},{rate:.6g},{grad_norm:.6f}\n")


if __name__ == "__main__":
    main()
