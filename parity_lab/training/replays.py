"""Trains recorded steps again, by the trainer itself: its own program, arithmetic and random
numbers.

What it answers: does the record of a run follow from its specification? (`parity_lab.replay`)

Equal bits are expected where the manifest is that of the record, on CPUs; no GPU has been tried.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity_lab.replay import WINDOW, RecordRequest, Replay, ReplayResult
from training.device import describe
from training.forks import Fork
from training.spec import RunSpec
from training.step_values import DivergedError
from training.trainer.checkpoint import CheckpointNotFoundError, CheckpointRefusedError, read_kept
from training.trainer.data import Corpus
from training.trainer.identity import identity, manifest
from training.trainer.run import TrainingRun
from workers.protocol import Message

Read = Callable[[Any], RunSpec]
"""Makes the specification of a run of its document."""
_FIRST_RERUN = 1 << 20  # replicates of reruns from step 0; those of a job count from 0


class Replays:
    """Runs on record by id: their specifications, manifests and losses, and the folders of their
    kept checkpoints.
    """

    def __init__(
        self, records: Mapping[str, RecordRequest], folders: Path, read: Read, corpus: Corpus
    ) -> None:
        self._records, self._folders, self._corpus = records, folders, corpus
        self._specs = {run: read(record["spec"]) for run, record in records.items()}
        self._machine = describe()

    def replay(self, replay: Replay, alive: Callable[[], None]) -> ReplayResult:
        """Train the steps again, to the end of the window in which one differs from the record."""
        losses = self._records[replay.run]["losses"][str(replay.first)][: replay.steps]
        result: ReplayResult = {
            "compared": 0,
            "departs": None,
            "by": None,
            "first": 0.0,
            "mean": 0.0,
            "exact": self._is_exact(replay.run),
            "missing": None,
        }
        total = 0.0
        for loss, replayed in zip(losses, self._losses(replay, 0, alive), strict=False):
            difference = loss - replayed
            if difference != 0.0 and result["departs"] is None:  # NaN differs from 0 too
                result["departs"], result["by"] = replay.first + result["compared"], difference
            total += difference
            result["compared"] += 1
            if result["compared"] == 1:
                result["first"] = difference
            if result["compared"] == replay.window:
                result["mean"] = total / replay.window
            if result["departs"] is not None and result["compared"] >= replay.window:
                break
        if not all(map(math.isfinite, (result["by"] or 0.0, result["first"], result["mean"]))):
            result |= {"by": None, "first": 0.0, "mean": 0.0}
        return result

    def rerun(self, replay: Replay, draw: int, alive: Callable[[], None]) -> dict[str, float]:
        """How far the record is from the same steps with other random numbers: at the first step,
        and in the mean over the window.
        """
        losses = self._records[replay.run]["losses"][str(replay.first)][: replay.window]
        differences = [
            loss - replayed
            for loss, replayed in zip(losses, self._losses(replay, draw, alive), strict=False)
        ]
        return {"first": differences[0], "mean": sum(differences) / len(differences)}

    def _losses(self, replay: Replay, draw: int, alive: Callable[[], None]) -> Iterator[float]:
        """The losses from step `first` on, with the random numbers of a draw; those of the run for
        draw 0.
        """
        spec = self._specs[replay.run]
        fork = Fork(parent=spec, step=replay.first, draw=draw) if replay.first else None
        rerun = replace(spec, replicate=_FIRST_RERUN + draw) if draw and fork is None else spec
        run = TrainingRun(rerun, self._corpus, fast_bf16=self._machine.fast_bf16, fork=fork)
        if fork is not None:
            folder = self._folders / replay.run
            run.start_from(read_kept(folder, replay.first, identity(spec, self._corpus), run.state))
        try:
            for number, step in enumerate(run.steps()):
                if number % WINDOW == 0:
                    alive()
                yield step.lm_loss
        except DivergedError:
            yield math.nan

    def _is_exact(self, run: str) -> bool:
        return self._machine.platform == "cpu" and self._records[run]["manifest"] == manifest(
            self._specs[run], self._corpus
        )


def replayed(
    replays: Replays,
    replay: Replay,
    draw: int,
    forked: Collection[str],
    send: Callable[[Message], None],
) -> Any:
    """The result of a replay or, with a draw, of a rerun; `missing` for a checkpoint that cannot be
    used, which the `forked` runs need.
    """

    def alive() -> None:
        send({"kind": "alive"})

    if draw:
        return replays.rerun(replay, draw, alive)
    try:
        return replays.replay(replay, alive)
    except (CheckpointNotFoundError, CheckpointRefusedError) as error:
        if replay.run in forked:
            raise
        nothing = {
            "compared": 0,
            "departs": None,
            "by": None,
            "first": 0.0,
            "mean": 0.0,
            "exact": False,
        }
        return {**nothing, "missing": str(error)}
