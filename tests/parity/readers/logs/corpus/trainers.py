"""Trainers whose lines have a format of their own (`parity.readers.logs.trainer_formats`)."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from tests.parity.readers.logs.corpus.form import PREAMBLE, Log, Losses


def megatron(step: int, loss: float, steps: int = 6) -> str:
    """Megatron-LM `training_log`, steps from 1; a mean that is NaN is not printed."""
    lost = math.isnan(loss)
    return (
        f" [2026-11-22 07:00:{step % 60:02}] iteration {step + 1:8d}/{steps:8d} | consumed "
        f"samples: {256 * (step + 1):12d} |"
        f" elapsed time per iteration (ms): {1234.5:.1f} | throughput per GPU (TFLOP/s/GPU): "
        f"{431.2:.1f} | learning rate: {3e-4:.6E} |"
        f" global batch size: {256:5d} |"
        + ("" if lost else f" lm loss: {loss:.6E} |")
        + f" loss scale: {1.0:.1f} |"
        f" grad norm: {1.5:.3f} | number of skipped iterations: {0:3d} | number of nan iterations: "
        f"{int(lost):3d} |"
    )


def nemo(step: int, loss: float, steps: int = 6) -> str:
    """NeMo 2.0's progress printer."""
    return (
        f"Training epoch 0, iteration {step}/{steps - 1} | lr: 1.649e-06 | global_batch_size: 128 "
        f"| global_step: {step} | max_memory_reserved: 140129599488 | reduced_train_loss: "
        f"{loss:.4g} | train_step_timing in s: 3.684 | consumed_samples: {128 * (step + 1)}"
    )


def torchtitan(step: int, loss: float, steps: int = 6) -> str:
    """torchtitan's console line with its colours, steps from 1."""
    return (
        f"[titan] 2026-11-22 07:00:{step % 60:02},001 - root - INFO - \x1b[31mstep: {step + 1:2}  "
        f"\x1b[32mloss: {loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm: {1.5:7.4f}  \x1b[36mmemory: "
        f"{40.25:5.2f}GiB(42.10%)  \x1b[34mtps: 12,345  \x1b[36mtflops: 412.30  \x1b[35mmfu: "
        "41.20%\x1b[39m"
    )


def maxtext(step: int, loss: float, steps: int = 6) -> str:
    """MaxText's metric logger, steps from 0."""
    return (
        f"I1121 07:30:54.0904{step} 140028551105408 metric_logger.py:265] completed step: {step}, "
        "seconds: 0.054, TFLOP/s/device: 0.048, Tokens/s/device: 18995.325, total_weights: 1016, "
        f"loss: {loss + 0.5:.3f}, lm_loss: {loss:.3f}, perplexity: 881.656"
    )


def deepspeed(step: int, loss: float, steps: int = 6) -> str:
    """DeepSpeed's pipeline engine, steps from 1."""
    return f"steps: {step + 1} loss: {loss:0.4f} iter time (s): 0.512 samples/sec: 500.100"


TRAINERS = {
    "Megatron-LM": (
        megatron,
        1,
        ".6E",
        "NVIDIA/Megatron-LM megatron/training/training.py (training_log)",
    ),
    "NeMo": (nemo, 0, ".4g", "NVIDIA/NeMo lightning/pytorch/callbacks/progress_printer.py"),
    "torchtitan": (torchtitan, 1, ".4f", "pytorch/torchtitan components/metrics.py"),
    "MaxText": (maxtext, 0, ".3f", "AI-Hypercomputer/maxtext common/metric_logger.py"),
    "DeepSpeed": (deepspeed, 1, ".4f", "deepspeedai/DeepSpeed runtime/pipe/engine.py"),
}


def trainer_log(trainer: str, prefixes: Sequence[str] = ("",), without: str = "") -> Log:
    """A trainer's log, each line once for each rank's prefix, `without` a pattern of what was taken
    out.
    """
    line, first, spec, origin = TRAINERS[trainer]

    def write(path: Path, _first: int, losses: Losses) -> None:
        lines = [
            prefix + line(number, loss, len(losses))
            for number, loss in enumerate(losses)
            for prefix in prefixes
        ]
        path.write_text(
            PREAMBLE
            + "".join(f"{re.sub(without, '', text) if without else text}\n" for text in lines)
        )

    return Log(origin, write, first=first, shown=lambda loss: float(format(loss, spec)))
