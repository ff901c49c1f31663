"""Held-out loss of a MaxText run: after the training has ended, a separate process evaluates each
checkpoint.

What it answers: what is the loss on the evaluation data after the steps n, 2 n, ...
(`schedule.validation_every`)?

MaxText 0.2.5 empties metrics_file at each evaluation inside the training process, and records
that were not read in time are lost. It does not empty event files, but without Google Cloud they
go into the installation's own folder, under a name that runs share. So the training process saves
its state every n steps, and afterwards a second process resumes from each checkpoint: one step at
learning rate 0, which does not change the parameters, then an evaluation into its own
metrics_file. Resuming also restores the state of delayed scaling, which loading the parameters
alone would lose. A checkpoint is deleted once it has been evaluated. Processes that train together
evaluate together: the first tells the others which checkpoints, in a file of the run's folder.

The assumption that can fail: the disk has room for every checkpoint of a run.

Source: MaxText 0.2.5, trainers/pre_train/train.py (the evaluation follows the step),
common/metric_logger.py (the summary is the record with eval/total_loss).
"""

import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from training.engines.maxtext_command import Launch, evaluation_command
from training.engines.maxtext_process import LOOK_SECONDS, SilenceLimit, run_to_its_end
from training.environment.maxtext_errors import EvaluationFailedError


def evaluations(launch: Launch, patience: SilenceLimit) -> Iterator[tuple[int, float]]:
    """Yields (step, mean loss in nats per token) for every checkpoint of a run that has ended;
    raises a MaxTextError if a process fails.
    """
    steps = sorted(
        int(folder.name) for folder in launch.checkpoints.glob("*") if folder.name.isdecimal()
    )
    steps = [step for step in steps if step]
    _tell(launch, steps)
    for step in steps:
        yield step, _evaluated(launch, step, patience)
        # renamed first, so that `put_back` never restores a half-deleted checkpoint
        done = launch.folder / "evaluated"
        shutil.rmtree(done, ignore_errors=True)
        shutil.rmtree(launch.evaluation.rename(done))


def forget_told(launch: Launch) -> None:
    """Remove what an earlier attempt told the other processes; before the training begins, which
    no process ends before all have begun it.
    """
    _told(launch).unlink(missing_ok=True)


def told_steps(launch: Launch) -> list[int]:
    """The steps that the first of several processes will evaluate, once it knows them: each
    evaluation needs all of them. The wrapper ends the others if it fails.
    """
    while not _told(launch).exists():
        time.sleep(LOOK_SECONDS)
    steps: list[int] = json.loads(_told(launch).read_text(encoding="utf-8"))
    return steps


def _tell(launch: Launch, steps: list[int]) -> None:
    written = _told(launch).with_suffix(".written")
    written.write_text(json.dumps(steps), encoding="utf-8")
    written.rename(_told(launch))


def _told(launch: Launch) -> Path:
    return launch.folder / "to-evaluate.json"


def put_back(launch: Launch) -> None:
    """Move the checkpoint of an interrupted evaluation back to the checkpoints that wait for
    theirs.
    """
    for folder in launch.evaluation.glob("checkpoints/*"):
        if folder.name.isdecimal() and not (launch.checkpoints / folder.name).exists():
            launch.checkpoints.mkdir(parents=True, exist_ok=True)
            folder.rename(launch.checkpoints / folder.name)
    shutil.rmtree(launch.evaluation, ignore_errors=True)


def summary(metrics: Path) -> float:
    """Returns the loss (nats per token, may be NaN) of the only evaluation in a metrics_file;
    raises EvaluationFailedError without one.
    """
    losses = []
    for line in metrics.read_bytes().splitlines() if metrics.exists() else []:
        try:
            record = json.loads(line)
            if "eval/total_loss" in record:  # the summary; the records of each batch have none
                losses.append(float(record["eval/avg_loss"]))
        except (ValueError, TypeError, KeyError) as error:
            message = (
                f"{metrics} has the line {line[:80]!r}, expected a JSON object of an evaluation: "
                f"{error!r}"
            )
            raise EvaluationFailedError(message) from None
    if not losses:
        raise EvaluationFailedError(
            f"MaxText wrote no summary of an evaluation into {metrics}; does maxtext.eval_path "
            "have at least one whole batch?"
        )
    return losses[-1]


def _evaluated(launch: Launch, step: int, patience: SilenceLimit) -> float:
    inside = launch.evaluation / "checkpoints"
    shutil.rmtree(launch.evaluation, ignore_errors=True)
    inside.mkdir(parents=True)
    (launch.checkpoints / str(step)).rename(inside / str(step))
    command, log = evaluation_command(launch, step), launch.folder / f"evaluation-{step}.log"
    run_to_its_end(
        command, log, launch.environment, patience, f"evaluated step {step}", transient=False
    )
    loss = summary(launch.evaluated_metrics)
    return loss if math.isfinite(loss) else math.nan
