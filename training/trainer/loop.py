"""Training as a generator: the caller pulls steps, and cancels a run when it stops pulling.

What it answers: what did each step of this run do? If the run cannot be trained: why not, and
what helps?

`training.trainer.loop` computes the steps. With the same number of threads their bits are the
same in every process.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import jax

from training import device
from training.device import Device
from training.engines import transformer_engine
from training.forks import Fork
from training.frozen import frozen
from training.memory import memory
from training.spec import RunSpec
from training.step_values import StepStats
from training.trainer import data
from training.trainer.checkpoint import Checkpointing, Checkpoints, read_kept
from training.trainer.data import Corpus
from training.trainer.identity import identity
from training.trainer.run import TrainingRun


class RecipeRefusedError(Exception):
    """This machine or this trainer cannot run the recipe; the message has the reason. There is no
    fallback.
    """

    code = "RECIPE_REFUSED"


class DevicesMissingError(Exception):
    """The run needs more devices than this process has."""

    code = "DEVICES_MISSING"


class OutOfMemoryError(Exception):
    """The device does not have enough memory for the run."""

    code = "OUT_OF_MEMORY"


@frozen
class ForkStart:
    """Where a fork starts: in the `folder` of its parent's checkpoints."""

    fork: Fork
    folder: Path


def train(
    spec: RunSpec,
    corpus: Corpus | None = None,
    *,
    checkpointing: Checkpointing | None = None,
    start: ForkStart | None = None,
) -> Iterator[StepStats]:
    """Train the run step by step; stop iterating to cancel it.

    With `checkpointing` the run resumes from the newest intact checkpoint that it allows: the first
    step that is yielded shows where, and all steps have the same bits as those of an uninterrupted
    run. With `start` it goes on from a kept checkpoint of another run, and its first step is the
    one after it.

    Raises before the first step RecipeRefusedError if the machine cannot run the recipe,
    DevicesMissingError if it has too few devices, the errors of `training.trainer.data.load` if the
    data cannot be read, CheckpointRefusedError if another run made the checkpoint, and
    CheckpointNotFoundError if that of `start` is missing. Raises OutOfMemoryError if the device is
    too small, DivergedError after the first step whose loss is not finite.
    """
    machine = device.describe()
    for recipe in spec.recipes:
        ok, reason = device.can_run(spec.engine, recipe, machine)
        if not ok:
            raise RecipeRefusedError(
                f"recipe {recipe} cannot run on engine {spec.engine} here: {reason}"
            )
    if spec.devices > jax.device_count():
        raise DevicesMissingError(
            f"devices is {spec.devices}, expected at most {jax.device_count()}, the number of "
            f"{machine.device_class} devices here"
        )
    if _least(spec) > machine.memory_bytes:
        raise _out_of_memory(spec, machine)
    corpus = data.load(spec.data, spec.model.vocab_size) if corpus is None else corpus
    data.check_vocabulary(corpus, spec.model.vocab_size)
    checkpoints = (
        Checkpoints(checkpointing, identity(spec, corpus)) if checkpointing is not None else None
    )
    try:
        with transformer_engine.kernels() if spec.engine == "transformer_engine" else nullcontext():
            yield from _started(spec, corpus, start, machine).steps(checkpoints)
    except MemoryError as error:
        raise _out_of_memory(spec, machine) from error
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise _out_of_memory(spec, machine) from error
    finally:
        if checkpoints is not None:
            checkpoints.close()


def _started(
    spec: RunSpec, corpus: Corpus, start: ForkStart | None, machine: Device
) -> TrainingRun:
    fork = start.fork if start is not None else None
    run = TrainingRun(spec, corpus, fast_bf16=machine.fast_bf16, fork=fork)
    if start is not None:
        made_by = identity(start.fork.parent, corpus)
        run.start_from(read_kept(start.folder, start.fork.step, made_by, run.state))
    return run


def _least(spec: RunSpec) -> int:
    taken = memory(spec)
    assert taken is not None  # noqa: S101  # it is known of our own trainer
    return taken.least


def _out_of_memory(spec: RunSpec, machine: Device) -> OutOfMemoryError:
    remat = "" if spec.remat else ", set remat: true"
    return OutOfMemoryError(
        f"{spec.model.parameters:,} parameters with {spec.data.tokens_per_step:,} tokens a step do "
        "not fit into the memory of "
        f"{machine.device_class} ({machine.memory_bytes / 2**30:.0f} GiB; weights, gradients, "
        "moments and activations need at least "
        f"{_least(spec) / 2**30:.1f}); reduce data.batch_size, data.sequence_length or the "
        "model"
        f"{remat}, or raise gradient_accumulation"
    )
