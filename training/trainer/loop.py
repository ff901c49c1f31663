"""Training as a generator: the caller pulls steps, and cancels a run when it stops pulling.

What it answers: what did each step of this run do? If the run cannot be trained: why not, and
what helps?

`training.trainer.loop` computes the steps. With the same number of threads their bits are the
same in every process.
"""

from collections.abc import Iterator
from contextlib import nullcontext

import jax

from training import device
from training.device import Device
from training.engines import transformer_engine
from training.memory import memory
from training.spec import RunSpec
from training.step_values import StepStats
from training.trainer import data
from training.trainer.checkpoint import Checkpointing, Checkpoints
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


def train(
    spec: RunSpec, corpus: Corpus | None = None, *, checkpointing: Checkpointing | None = None
) -> Iterator[StepStats]:
    """Train the run step by step; stop iterating to cancel it.

    With `checkpointing` the run resumes from the newest intact checkpoint that it allows: the first
    step that is yielded shows where, and all steps have the same bits as those of an uninterrupted
    run.

    Raises before the first step RecipeRefusedError if the machine cannot run the recipe,
    DevicesMissingError if it has too few devices, the errors of `training.trainer.data.load` if the
    data cannot be read, and CheckpointRefusedError if another run made the checkpoint. Raises
    OutOfMemoryError if the device is too small, DivergedError after the first step whose loss is
    not finite.
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
            yield from TrainingRun(spec, corpus, fast_bf16=machine.fast_bf16).steps(checkpoints)
    except MemoryError as error:
        raise _out_of_memory(spec, machine) from error
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise _out_of_memory(spec, machine) from error
    finally:
        if checkpoints is not None:
            checkpoints.close()


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
