"""A tiny language model, trained by Lightning's Trainer.

python -m tools.trainers.lightning FOLDER [--steps 30] [--accumulation 1] [--kill-at N] [--nan-at N]
[--processes 1]
"""

from __future__ import annotations

import argparse
import math
import os
import signal
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from parity.integrations.lightning import ParityCallback

BATCH, LENGTH, VOCABULARY = 8, 16, 64


class TokenModel(LightningModule):  # type: ignore[misc]
    """Predicts the next token from this one."""

    def __init__(self, nan_at: int) -> None:
        super().__init__()
        self._nan_at = nan_at
        self.layers = torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, 32), torch.nn.Tanh(), torch.nn.Linear(32, VOCABULARY)
        )

    def _loss(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(
            self.layers(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The loss, or NaN."""
        return self._loss(batch[0]) * (math.nan if self.global_step == self._nan_at else 1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the validation loss."""
        self.log("val_loss", self._loss(batch[0]), sync_dist=True)

    def configure_optimizers(self) -> Any:
        """AdamW with a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 30),
                "interval": "step",
            },
        }


class FaultCallback(Callback):  # type: ignore[misc]
    """Kills the process after a step."""

    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at

    def on_train_batch_end(self, trainer: Any, *more: Any) -> None:
        """Die without a word."""
        if trainer.global_step == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train, from the last checkpoint where there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, default in (
        ("steps", 30),
        ("accumulation", 1),
        ("kill-at", -1),
        ("nan-at", -1),
        ("processes", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    seed_everything(0, verbose=False)
    # Epochs of 10 steps, which end with a checkpoint: resumed inside an epoch, Lightning would
    # begin its data again.
    tokens = torch.randint(
        VOCABULARY, (10 * BATCH, LENGTH), generator=torch.Generator().manual_seed(1)
    )
    micro = BATCH // options.accumulation // options.processes
    data = torch.utils.data.TensorDataset(tokens)
    checkpoints = options.folder / "checkpoints"
    trainer = Trainer(
        max_steps=options.steps,
        accumulate_grad_batches=options.accumulation,
        accelerator="cpu",
        devices=options.processes,
        strategy="ddp" if options.processes > 1 else "auto",
        logger=False,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        val_check_interval=10 * options.accumulation,
        callbacks=[
            ParityCallback(recipe="bf16", name="run", folder=options.folder / "spool"),
            ModelCheckpoint(checkpoints, every_n_train_steps=10, save_top_k=-1),
            FaultCallback(options.kill_at),
        ],
    )
    # Not shuffled as by the sampler that Lightning would add: a step has the same rows, however
    # many processes share them.
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    sampler = torch.utils.data.DistributedSampler(
        data, num_replicas=options.processes, rank=rank, shuffle=False
    )
    loaders = [
        torch.utils.data.DataLoader(data, batch_size=micro, sampler=sampler),
        torch.utils.data.DataLoader(data, batch_size=64),
    ]
    last = max(checkpoints.glob("*.ckpt"), key=lambda path: path.stat().st_mtime, default=None)
    trainer.fit(TokenModel(options.nan_at), *loaders, ckpt_path=last)


if __name__ == "__main__":
    main()
