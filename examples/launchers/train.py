"""A PyTorch loop of one's own; the only line for `parity` is the last one."""

import argparse
import json
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
for name, kind, default in (
    ("steps", int, 300),
    ("seed", int, 0),
    ("out", Path, Path()),
    ("layers", int, 4),
    ("recipe", str, "bf16"),
):
    parser.add_argument(f"--{name}", type=kind, default=default)
options = parser.parse_args()
torch.manual_seed(options.seed)
text = torch.randint(0, 8, (65_536,), generator=torch.Generator().manual_seed(1)).cumsum(0) % 64
layers = [
    torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(options.layers)
]
model = torch.nn.Sequential(torch.nn.Embedding(64, 64), *layers, torch.nn.Linear(64, 64))
model = model.to(torch.bfloat16) if options.recipe == "bf16" else model
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
with (options.out / "metrics.jsonl").open("w", buffering=1) as log:
    for step in range(options.steps):
        at = torch.randint(0, len(text) - 65, (32, 1)) + torch.arange(65)
        loss = torch.nn.functional.cross_entropy(
            model(text[at[:, :-1]]).flatten(0, 1).float(), text[at[:, 1:]].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        log.write(
            json.dumps(
                {"step": step, "loss": loss.item(), "learning_rate": schedule.get_last_lr()[0]}
            )
            + "\n"
        )
        optimizer.step()
        schedule.step()
