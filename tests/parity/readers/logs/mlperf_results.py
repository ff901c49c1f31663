"""Folders of MLPerf results, as their trainers write them, and reference convergence points."""

import json

GRID = 12_288  # samples between two evaluations
TARGET = 3.3


def event(key, value, **about):
    """A line of a log."""
    return f":::MLLOG {json.dumps({'key': key, 'value': value, 'metadata': about})}"


def log(evaluations, *, status="success", last_loss=3.29, noise=0.0, **facts):
    """The log of a run with so many evaluations; `noise` is added to each but the last."""
    stated = {
        "submission_benchmark": "llama31_8b",
        "submission_platform": "8xB200",
        "global_batch_size": 16,
        "lowest_numerical_precision_linear": "NVFP4",
        "target_accuracy": TARGET,
        **facts,
    }
    lines = [event(key, value) for key, value in stated.items() if value is not None]
    for number in range(1, evaluations + 1):
        loss = last_loss if number == evaluations else 3.31 + 1 / number + noise
        lines.append(event("eval_accuracy", loss, samples_count=number * GRID))
    if status is not None:
        lines.append(event("run_stop", None, status=status))
    return "\n".join([*lines, ""])


def write_results(folder, evaluations, **changes):
    """A run for each number of evaluations, with seeds of their own; `changes` are keyword
    arguments of `log`, by the number of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, count in enumerate(evaluations):
        about = {"seed": 100 + number, "noise": 1e-4 * number, **changes.get(f"run_{number}", {})}
        (folder / f"result_{number}.txt").write_text(log(count, **about))
    return folder


def write_reference(path, evaluations=(13,) * 17 + (14,) * 3, batch_size=16, **changes):
    """Reference convergence points at one batch size."""
    record = {
        "Benchmark": "llama31_8b",
        "Precision": "BF16",
        "BS": batch_size,
        "Hyperparams": {},
        "Epochs to converge": [count * GRID for count in evaluations],
        **changes,
    }
    path.write_text(json.dumps({f"llama31_8b_ref_{batch_size}": record}))
    return path
