"""Write tests/data/trackers: a run that W&B wrote offline, and what the packages of MLflow and
trackio return of a run.

Run: .venv/trackers/bin/python -m tools.make_tracker_fixtures (`make test-trackers` makes that
environment)
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "trackers"
STEPS, NAN_STEP = 120, 70
CONFIG: Mapping[str, Any] = {
    "recipe": "nvfp4",
    "seed": 1,
    "optimizer": {"lr": 3e-4},
    "fp8_recipe": "delayed",
}


def loss(step: int) -> float:
    """The loss of a step; one is NaN."""
    return math.nan if step == NAN_STEP else round(2.5 + 8 * (step + 1) ** -0.5, 6)


def write_wandb(folder: Path) -> None:
    """An offline run of several blocks, with evaluations as rows of their own."""
    os.environ |= {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "WANDB_X_DISABLE_STATS": "true",
    }
    import wandb  # noqa: PLC0415

    settings = wandb.Settings(
        x_disable_stats=True, x_disable_meta=True, disable_git=True, save_code=False, console="off"
    )
    with wandb.init(project="llm", id="small", settings=settings) as run:
        run.config.update(CONFIG)
        for step in range(STEPS):
            run.log({"train/loss": loss(step), "train/global_step": step, "text": "x" * 90})
            if step % 20 == 0:
                run.log({"eval/loss": 3.0, "train/global_step": step})
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    shutil.copy(file, FOLDER / "run-small.wandb")


def record_mlflow(folder: Path) -> dict[str, Any]:
    """What MLflow's client returns of a run in a database."""
    import mlflow  # noqa: PLC0415

    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    run = client.create_run(client.create_experiment("llm")).info.run_id
    for key, value in {"recipe": "nvfp4", "seed": 1, "optimizer.lr": 3e-4}.items():
        client.log_param(run, key, value)
    for step in range(STEPS):
        client.log_metric(
            run,
            "train/loss",
            math.inf if step == NAN_STEP else loss(step),
            1_700_000_000_000 + step,
            step,
        )
    client.set_terminated(run)
    found = client.get_run(run)
    return {
        "info": {
            "run_id": run,
            "status": found.info.status,
            "lifecycle_stage": found.info.lifecycle_stage,
        },
        "params": dict(found.data.params),
        "metrics": dict(found.data.metrics),
        "history": {
            name: [
                [metric.timestamp, metric.step, metric.value]
                for metric in client.get_metric_history(run, name)
            ]
            for name in found.data.metrics
        },
    }


def record_trackio(folder: Path) -> dict[str, Any]:
    """What trackio's API returns of a run on this machine."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio  # noqa: PLC0415
    from trackio import server  # noqa: PLC0415

    trackio.init(project="llm", name="small", config=dict(CONFIG))
    for step in range(STEPS):
        trackio.log({"train/loss": loss(step), "train/global_step": step})
    trackio.finish()
    runs = server.get_runs_for_project("llm")
    return {
        "runs": runs,
        "summary": server.get_run_summary("llm", "small", runs[0]["id"]),
        "rows": server.query_project(
            "llm", "SELECT id, timestamp, step, metrics FROM metrics ORDER BY id"
        )["rows"],
    }


def main() -> None:
    """Write all fixtures, each tracker in a process of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    parts = {"wandb": write_wandb, "mlflow": record_mlflow, "trackio": record_trackio}
    if len(sys.argv) == 2:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HOME"] = folder
            recorded = parts[sys.argv[1]](Path(folder))
        if recorded is not None:
            (FOLDER / f"{sys.argv[1]}.json").write_text(json.dumps(recorded) + "\n")
        return
    for name in parts:
        subprocess.run([sys.executable, "-m", "tools.make_tracker_fixtures", name], check=True)


if __name__ == "__main__":
    main()
