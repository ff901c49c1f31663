"""The training process: reads one run from its input, trains it, and writes a line of JSON for each
step.

Every run gets a new process (never forked: jax's threads do not survive a fork) in its own process
group, with its environment set before jax is imported. It ends when its input closes, so it can't
outlive its supervisor. Under a wrapper (`PARITY_WRAPPER`) the request is its argument (or, where it
is large, in the file that the argument names), and several of these processes may train one run
together: the first reads, writes and ends as above, the others only train and end with the wrapper.
`workers.protocol` has the request and the messages.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from parity.extensions import lab
from training.engines import maxtext
from training.engines.maxtext_follow import ACTIVATION_STATISTICS
from training.environment import processes
from training.environment.maxtext_options import MaxTextOptions
from training.environment.processes import Processes, WrapperError
from training.forks import Fork
from training.later_recipe import later_recipe
from training.overrides import from_document
from training.spec import Data, Model, Projections, RunSpec, Schedule
from training.step_values import StepStats, layer_names
from training.switches import Switches
from workers.protocol import CRASHED, Message, TrainRequest, claim_stdout

if TYPE_CHECKING:
    from training.trainer.checkpoint import Checkpointing
    from training.trainer.data import Corpus
    from training.trainer.loop import ForkStart

Send = Callable[[Message], None]


def main() -> int:
    """Train the run on standard input, in the argument, or in the file that it names; exits 0 after
    its end or its error was sent.
    """
    request: TrainRequest = json.loads(
        _argument(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin.readline()
    )
    process = processes.processes(os.environ) if len(sys.argv) > 1 else processes.ALONE
    if process.is_first:
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
    out = claim_stdout()
    # Imports and the tracing of a program make objects by the million and few cycles; looking for
    # those took a tenth of a run's start.
    gc.set_threshold(50_000, 10, 10)
    if request["core"] is not None:
        os.sched_setaffinity(0, {request["core"]})
    _train(_spec(request["spec"]), request, out, process)
    return 0


def _argument(text: str) -> str:
    """The request in an argument, or in the file that it names after an `@`."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise SystemExit(
            f"{text[1:]}: {error.strerror}; every machine of the wrapper must see the worker's "
            "PARITY_STATE_DIR"
        ) from error


def _train(spec: RunSpec, request: TrainRequest, out: IO[str], process: Processes) -> None:
    def send(message: Message) -> None:
        if process.is_first:
            out.write(json.dumps(message) + "\n")
            out.flush()
        elif message["kind"] == "error":
            sys.stderr.write(f"process {process.number} of {process.count}: {message['message']}\n")

    engine = _maxtext if spec.engine == "maxtext" else _own_engine
    try:
        if request["measure"] is not None:
            _measure(spec, request, send)
            send({"kind": "end"})
            return
        trained = engine(spec, request, send, process)
        # MaxText stops itself, and then shows that no step was lost.
        is_whole = spec.engine == "maxtext" or request["steps"] >= spec.schedule.steps
        for step in trained if is_whole else _up_to(trained, request["steps"]):
            send({"kind": "step", "values": dataclasses.asdict(step)})
    except OSError as error:
        send(
            {
                "kind": "error",
                "code": getattr(error, "code", "DATA_NOT_READABLE"),
                "message": str(error),
            }
        )
    except Exception as error:
        # Training raises expected errors with a code; any other error is a crash, with its
        # traceback in the log.
        code, is_retryable = getattr(error, "code", None), getattr(error, "transient", False)
        # a process that fails makes the wrapper end the others
        if not isinstance(code, str) or (is_retryable and not process.is_first):
            raise
        send(
            {"kind": "broke_off" if is_retryable else "error", "code": code, "message": str(error)}
        )
    else:
        send({"kind": "end"})


def _measure(spec: RunSpec, request: TrainRequest, send: Send) -> None:
    """Measure what a run of the lab asks for, from checkpoints of other runs."""
    module = lab().part("measure")
    if module is None:
        raise LookupError("this run needs the lab, which this installation has not")
    module.measure(request, spec, _spec, send)


def _up_to(trained: Iterator[StepStats], steps: int) -> Iterator[StepStats]:
    """The steps before step `steps`; a run that was stopped there and resumes has nothing left to
    train.
    """
    for step in trained:
        if step.step < steps:
            yield step
        if step.step + 1 >= steps:
            break


def _own_engine(
    spec: RunSpec, request: TrainRequest, send: Send, process: Processes
) -> Iterator[StepStats]:
    with processes.joined(process):
        yield from _trained(spec, request, send, process)


def _trained(
    spec: RunSpec, request: TrainRequest, send: Send, process: Processes
) -> Iterator[StepStats]:
    # Imported here, because the core must be set before jax counts the processors.
    import jax  # noqa: PLC0415

    from training.arithmetic.layer_statistics import COLUMNS  # noqa: PLC0415
    from training.trainer import data, identity, profiling  # noqa: PLC0415
    from training.trainer.checkpoint import Checkpointing, kept_steps  # noqa: PLC0415

    checkpoints = request["checkpoints"]
    folder = Path(checkpoints["folder"])
    plan = Checkpointing(
        folder=folder,
        every_seconds=checkpoints["seconds"],
        resume_at_most=checkpoints["resume_at_most"],
        keep=tuple(checkpoints["keep"]),
    )
    if process.count > 1 and spec.devices != jax.device_count():
        raise WrapperError(
            f"devices is {spec.devices}, expected {jax.device_count()}, the number of devices of "
            f"the {process.count} processes of the wrapper"
        )
    corpus = data.load(spec.data, spec.model.vocab_size)
    _send_manifest(spec, identity.manifest(spec, corpus), process, send)
    names = layer_names(spec.model.n_layers)
    send({"kind": "layers", "layers": [*names], "columns": [*COLUMNS]})
    tracing = profiling.Tracing(
        folder=Path(request["artifacts"]), steps=request["profile_steps"] if process.is_first else 0
    )
    yield from profiling.profiled(
        _steps(spec, corpus, plan, _fork_start(request), send, process),
        tracing,
        partial(_send_profile, send),
    )
    if checkpoints["keep"]:
        send({"kind": "kept", "steps": kept_steps(folder)})


def _fork_start(request: TrainRequest) -> ForkStart | None:
    """Where a run starts that goes on from another one; all have their checkpoints in one
    folder.
    """
    from training.trainer.loop import ForkStart  # noqa: PLC0415

    fork = request["fork"]
    if fork is None:
        return None
    folder = Path(request["checkpoints"]["folder"]).parent / fork["parent"]
    return ForkStart(fork=Fork(parent=_spec(fork["spec"]), step=fork["step"]), folder=folder)


def _steps(
    spec: RunSpec,
    corpus: Corpus,
    plan: Checkpointing,
    start: ForkStart | None,
    send: Send,
    process: Processes,
) -> Iterator[StepStats]:
    from training.trainer import loop  # noqa: PLC0415
    from training.trainer.checkpoint import CheckpointRefusedError  # noqa: PLC0415

    if process.count > 1:
        # All processes would have to write a checkpoint together; instead, such a run starts again
        # after a failure.
        yield from loop.train(spec, corpus, start=start)
        return
    try:
        yield from loop.train(spec, corpus, checkpointing=plan, start=start)
    except CheckpointRefusedError as refused:
        if not any(plan.folder.glob("step-*")):
            raise  # of the parent's checkpoint: the run has none of its own
        # Raised before the first step: a run does not resume from a checkpoint of other code or
        # libraries.
        first = 0 if start is None else start.fork.step
        send({"kind": "note", "message": f"trained again from step {first}: {refused}"})
        shutil.rmtree(plan.folder)
        yield from loop.train(spec, corpus, checkpointing=plan, start=start)


def _send_manifest(spec: RunSpec, manifest: dict[str, str], process: Processes, send: Send) -> None:
    if process.count > 1:
        manifest |= {"processes": str(process.count)}  # the order of their sums decides bits
    send({"kind": "manifest", "manifest": manifest, "rounding": spec.rounding})


def _maxtext(
    spec: RunSpec, request: TrainRequest, send: Send, process: Processes
) -> Iterator[StepStats]:
    checkpoints = request["checkpoints"]
    slices = tuple(request["slices"])
    _send_manifest(spec, maxtext.manifest(spec, slices), process, send)
    place = maxtext.MaxTextPlace(
        folder=Path(checkpoints["folder"]),
        slices=slices,
        resume_at_most=checkpoints["resume_at_most"],
        stop_after=request["steps"] if request["steps"] < spec.schedule.steps else None,
        # Before the supervisor does, whose message would lack the end of MaxText's log.
        silence_seconds=0.9 * request["silence_seconds"],
        processes=process,
    )
    named = False
    for step in maxtext.train(
        spec,
        place,
        note=lambda text: send({"kind": "note", "message": text}),
        profile=partial(_send_profile, send),
        validated=lambda step, loss: send(
            {"kind": "row", "name": "validation", "step": step, "columns": {"loss": loss}}
        ),
        alive=lambda: send({"kind": "alive"}),
    ):
        if step.layers and not named:
            named = True
            names = [str(layer) for layer in range(len(step.layers))]
            send(
                {
                    "kind": "layers",
                    "layers": names,
                    "columns": [f"output/{name}" for name in ACTIVATION_STATISTICS],
                }
            )
        yield step


def _send_profile(send: Send, step: int, columns: Mapping[str, float]) -> None:
    send({"kind": "row", "name": "profile", "step": step, "columns": dict(columns)})


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
    overrides = tuple(from_document(override) for override in values.get("overrides", ()))
    then = later_recipe(values.get("then"))
    return RunSpec(**{**values, **parts, "overrides": overrides, "then": then})


def _end_with_supervisor() -> None:
    # The raw descriptor: a thread that waits inside a buffered reader would hold its lock at exit.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.write(
        2,
        b"standard input was closed: the supervisor is gone, or the wrapper does not pass input "
        b"on (docker run -i, kubectl exec -i)\n",
    )
    os._exit(CRASHED)


if __name__ == "__main__":
    sys.exit(main())
