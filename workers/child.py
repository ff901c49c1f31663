"""The training process: reads one run from its input, trains it, and writes a line of JSON for each step.

It is started anew for every run (never forked: jax's threads do not survive a fork), in a process group of its own, with
its environment set before jax is imported. It ends when its input closes, so it can't outlive its supervisor.
Lines out: `{"kind": "manifest", …}` and `layers` (what the numbers by layer are called) once, `{"kind": "step", …}` for each
step (the first says from where the run goes on), `note` for what a reader of the attempt should know, then `end` or `error`
with a code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from training.engines import maxtext
from training.engines.maxtext_options import MaxTextOptions
from training.spec import Data, Model, Projections, RunSpec, Schedule
from training.statistics import StepStats, layer_names
from training.switches import Switches

CRASHED = 70
Tell = Callable[[str, Mapping[str, Any]], None]


def main() -> int:
    """Train the run on standard input; exit 0 when its end or its error was told."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    out = _claim_stdout()
    if request["core"] is not None:
        os.sched_setaffinity(0, {request["core"]})
    _train(_spec(request["spec"]), request, out)
    return 0


def _train(spec: RunSpec, request: Mapping[str, Any], out: IO[str]) -> None:
    def tell(kind: str, values: Mapping[str, Any]) -> None:
        out.write(json.dumps({"kind": kind, **values}) + "\n")
        out.flush()

    engine = _maxtext if spec.engine == "maxtext" else _own_engine
    try:
        for step in engine(spec, request, tell):
            tell("step", dataclasses.asdict(step))
    except OSError as error:
        tell("error", {"code": getattr(error, "code", "DATA_NOT_READABLE"), "message": str(error)})
    except Exception as error:
        # An error with a code is one that training foresees and explains; any other is a crash, with its traceback in the log.
        code = getattr(error, "code", None)
        if not isinstance(code, str) or getattr(error, "transient", False):
            raise
        tell("error", {"code": code, "message": str(error)})
    else:
        tell("end", {})


def _own_engine(spec: RunSpec, request: Mapping[str, Any], tell: Tell) -> Iterator[StepStats]:
    # Imported here: the core must be chosen before jax counts the processors.
    from training import data, fingerprint, loop  # noqa: PLC0415
    from training.checkpoint import Checkpointing, CheckpointRefusedError  # noqa: PLC0415
    from training.layer_statistics import OPERANDS, STATISTICS  # noqa: PLC0415

    checkpoints = request["checkpoints"]
    folder = Path(checkpoints["folder"])
    plan = Checkpointing(folder=folder, every_seconds=checkpoints["seconds"], resume_at_most=checkpoints["resume_at_most"])
    corpus = data.load(spec.data)
    tell("manifest", {"manifest": fingerprint.manifest(spec, corpus)})
    tell("layers", {"layers": layer_names(spec.model.n_layers), "operands": OPERANDS, "statistics": STATISTICS})
    try:
        yield from loop.train(spec, corpus, checkpointing=plan)
    except CheckpointRefusedError as refused:
        # Raised before the first step. What was trained with other code or libraries is trained again as a whole.
        tell("note", {"message": f"trained anew from step 0: {refused}"})
        shutil.rmtree(folder)
        yield from loop.train(spec, corpus, checkpointing=plan)


def _maxtext(spec: RunSpec, request: Mapping[str, Any], tell: Tell) -> Iterator[StepStats]:
    checkpoints = request["checkpoints"]
    tell("manifest", {"manifest": maxtext.manifest(spec)})
    place = maxtext.Place(
        folder=Path(checkpoints["folder"]),
        resume_at_most=checkpoints["resume_at_most"],
        # Earlier than the supervisor, which would say the same without the end of MaxText's log.
        silence_seconds=0.9 * request["silence_seconds"],
    )
    yield from maxtext.train(spec, place, note=lambda text: tell("note", {"message": text}))


def _spec(values: Mapping[str, Any]) -> RunSpec:
    kinds = {
        "model": Model,
        "data": Data,
        "schedule": Schedule,
        "switches": Switches,
        "projections": Projections,
        "maxtext": MaxTextOptions,
    }
    parts = {name: kind(**values[name]) for name, kind in kinds.items()}
    return RunSpec(**{**values, **parts})


def _claim_stdout() -> IO[str]:
    """The stream for our lines; whatever else prints goes to the log, so that it can't garble them."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def _end_with_supervisor() -> None:
    # The raw descriptor: a thread that waits inside a buffered reader would hold its lock at exit.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(CRASHED)


if __name__ == "__main__":
    sys.exit(main())
