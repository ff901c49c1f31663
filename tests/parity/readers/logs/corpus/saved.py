"""What trackers and trainers save."""

import json

from tests.parity.readers.logs.corpus.form import Losses
from tests.parity.readers.logs.corpus.writers import rows_of


def mlperf_line(step: int, loss: float) -> str:
    about = {
        "file": "/workspace/llm/custom_callbacks.py",
        "lineno": 480,
        "step": float(step),
        "samples_count": float(step),
    }
    stats = {"train_step_time": 0.1427, "reduced_train_loss": loss}
    event = {
        "namespace": "",
        "time_ms": 1759903657145,
        "event_type": "POINT_IN_TIME",
        "key": "tracked_stats",
        "value": stats,
        "metadata": about,
    }
    return f":::MLLOG {json.dumps(event)}"


def golden_values(first: int, losses: Losses) -> str:
    steps = [str(step) for step in range(first, first + len(losses))]
    about = {"start_step": first, "end_step": first + len(losses) - 1, "step_interval": 1}
    return json.dumps(
        {"lm loss": {**about, "values": dict(zip(steps, losses, strict=True))}}, indent=4
    )


def trainer_state(first: int, losses: Losses) -> str:
    history = [
        {"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 2e-05, **row}
        for row in rows_of(first, losses)
    ]
    return json.dumps(
        {
            "epoch": 1.0,
            "global_step": len(losses),
            "log_history": [*history, {"train_loss": 3.0, "step": len(losses)}],
        },
        indent=2,
    )


def maxtext_metrics(step: int, loss: float) -> str:
    return json.dumps(
        {
            "learning/lm_loss": loss,
            "learning/loss": loss + 0.1,
            "perf/step_time_seconds": 0.5,
            "step": float(step),
        }
    )
