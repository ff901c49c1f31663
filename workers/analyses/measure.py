"""One analysis, or the forks of a search, in a training process: measures what the record lacks and sends each result as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parity.search.setup import Forks
from parity.why.search import Measurement, next_measurement
from parity.why.setup import MeasureRequest, Setup, setup_from
from training.spec import RunSpec
from workers.protocol import Message, TrainRequest

if TYPE_CHECKING:
    from training.why.program import Program

Read = Callable[[Any], RunSpec]


class ForksTellNothingError(Exception):
    """The noise of the forks cannot be estimated."""

    code = "FORKS_TELL_NOTHING"


def measure(request: TrainRequest, candidate: RunSpec, read: Read, send: Callable[[Message], None]) -> None:
    """Measure everything that the results on record lack. `read` makes a specification of its document."""
    folders = Path(request["checkpoints"]["folder"]).parent
    analyse(cast("MeasureRequest", request["measure"]), candidate, folders, read, send)


def analyse(request: MeasureRequest, candidate: RunSpec, folders: Path, read: Read, send: Callable[[Message], None]) -> None:
    """Measure everything that `request.results` lacks, from checkpoints of the parents in `folders`, by id."""
    from training.trainer.fingerprint import manifest  # noqa: PLC0415 (the core must be set before jax counts the processors)
    from training.why.program import Program  # noqa: PLC0415

    parents = [(read(spec), folders / parent) for parent, spec in request["parents"].items()]
    if request["policies"] is not None:
        _train_forks(request, parents, {name: read(spec) for name, spec in request["policies"].items()}, send)
        return
    setup, results = setup_from(request["setup"]), dict(request["results"])
    baseline = None if request["baseline"] is None else read(request["baseline"])
    program = Program(parents, candidate, baseline, setup.fork_step, setup.fork_steps)
    send({"kind": "manifest", "manifest": manifest(candidate, program.corpus), "rounding": candidate.rounding})
    while (wanted := _next(setup, results)) is not None:
        value = _value(program, setup, wanted, lambda: send({"kind": "alive"}))
        results[wanted.key] = value
        send({"kind": "result", "key": wanted.key, "value": value, "steps": wanted.steps})


def _train_forks(
    request: MeasureRequest, parents: Sequence[tuple[RunSpec, Path]], runs: Mapping[str, RunSpec], send: Callable[[Message], None]
) -> None:
    """Train the forks of a search that the record lacks: one program computes them all."""
    from training.trainer.fingerprint import manifest  # noqa: PLC0415
    from training.why.program import Checkpoints  # noqa: PLC0415
    from training.why.subject import policies  # noqa: PLC0415

    forks = Forks.read(request["setup"])
    menu, choices = policies(runs, forks.fork_step, forks.fork_steps)
    program = Checkpoints(parents, menu, [*choices.values()], forks.fork_step, forks.fork_steps)
    spec = parents[0][0]
    send({"kind": "manifest", "manifest": manifest(spec, program.corpus), "rounding": spec.rounding})
    for each in forks.forks:
        if each.key not in request["results"]:
            value = program.fork(choices[each.policy], forks.parents.index(each.parent), each.draw, lambda: send({"kind": "alive"}))
            send({"kind": "result", "key": each.key, "value": value, "steps": forks.fork_steps})


def _next(setup: Setup, results: dict[str, Any]) -> Measurement | None:
    try:
        return next_measurement(setup, results)
    except ValueError as error:
        raise ForksTellNothingError(str(error)) from error


def _value(program: Program, setup: Setup, wanted: Measurement, alive: Callable[[], None]) -> Any:
    if wanted.kind == "gradients":
        return program.gradients(wanted.batch, setup.seeds)
    if wanted.ingredient is not None:
        choice = program.without_ingredient(wanted.ingredient)
    else:
        choice = program.without(wanted.units) if wanted.way == "without" else program.alone(wanted.units)
    if wanted.kind == "instant":
        return program.losses(choice, setup.batches)
    return program.fork(choice, wanted.parent, wanted.draw, alive)
