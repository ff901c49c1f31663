"""A tiny Llama from a config, trained by transformers' Trainer.

python -m tools.trainers.huggingface FOLDER [--steps 30] [--accumulation 1] [--kill-at N] [--nan-at
N] [--logging-steps 1]
"""

from __future__ import annotations

import argparse
import math
import os
import signal
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from parity.integrations.huggingface import ParityCallback

BATCH, LENGTH, VOCABULARY = 8, 16, 64


class Faults(TrainerCallback):  # type: ignore[misc]
    """Kills the process after a step was logged."""

    def __init__(self, kill_at: int) -> None:
        self._kill_at = kill_at

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Die without a word."""
        if state.global_step == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Losing(Trainer):  # type: ignore[misc]
    """A Trainer whose loss at one step is NaN."""

    nan_at = -1

    def compute_loss(self, *arguments: Any, **more: Any) -> Any:
        """The model's loss, or NaN."""
        loss = super().compute_loss(*arguments, **more)
        return (
            loss * math.nan
            if self.model.training
            and self.state.global_step + 1 == self.nan_at
            and not more.get("return_outputs")
            else loss
        )


def main() -> None:
    """Train, from the last checkpoint where there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, default in (
        ("steps", 30),
        ("accumulation", 1),
        ("kill-at", -1),
        ("nan-at", -1),
        ("logging-steps", 1),
        ("filter", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    set_seed(0)
    tokens = torch.randint(VOCABULARY, (512, LENGTH), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    arguments = TrainingArguments(
        str(options.folder / "out"),
        max_steps=options.steps,
        per_device_train_batch_size=BATCH // options.accumulation // processes,
        gradient_accumulation_steps=options.accumulation,
        learning_rate=3e-3,
        logging_steps=options.logging_steps,
        logging_nan_inf_filter=bool(options.filter),
        eval_strategy="steps",
        eval_steps=10,
        save_steps=10,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        max_grad_norm=0.0 if options.nan_at > 0 else 1.0,
    )
    trainer = Losing(
        LlamaForCausalLM(config),
        arguments,
        train_dataset=rows,
        eval_dataset=rows[:16],
        callbacks=[
            ParityCallback(recipe="bf16", folder=options.folder / "spool"),
            Faults(options.kill_at),
        ],
    )
    trainer.nan_at = options.nan_at
    trainer.train(resume_from_checkpoint=any((options.folder / "out").glob("checkpoint-*")))


if __name__ == "__main__":
    main()
