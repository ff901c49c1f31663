"""What a job will take of machines and disk, in words: parameters, memory of a device, checkpoints;
and whether a machine can't hold it, with the change of the job file that it could hold.

A run is refused only where `training.memory` says that every compiler needs more than a device has.
Where it probably needs more, the sentence says so. What a device has is what its worker registered:
on a GPU what jax may take of it, three quarters unless XLA_PYTHON_CLIENT_MEM_FRACTION says
otherwise.
"""

from collections.abc import Iterator, Sequence

from server.database.tables import Worker
from server.jobs.workers import slices_of
from training import memory
from training.environment.maxtext_mesh import MeshError
from training.memory import Memory
from training.spec import JobSpec, RunSpec

_GIB = 2.0**30
# Of a GPU's memory: what jax takes, and what it can be told to take.
_SHARE_UNLESS_SET, _SHARE = 0.75, 0.9

_NOT_COUNTED = (  # by `training.memory`
    "quantized copies of operands, workspaces of Transformer Engine and cuBLAS, NCCL's buffers"
)


def sentences(spec: JobSpec, workers: Sequence[Worker]) -> Iterator[str]:
    """What each device and the disk will hold, by the first of the workers that have the job's
    devices; with none, as on one node. None of a trainer of the user's own. And that MaxText cuts
    documents, which only a worker can count.
    """
    slices = slices_of(workers[0]) if workers else (spec.devices,)
    try:
        largest = _largest(spec, slices)
    except MeshError:  # the nodes are not known, or a refusal says why they do not fit
        largest = None
    if largest is not None:
        yield _memory_sentence(spec, *largest) + _tight(*largest, slices, workers)
    disk = memory.disk(spec.run_of(spec.baseline, 0), len(spec.keep_checkpoints))
    if disk is not None and disk.checkpoints:
        yield (
            f"Disk: a run keeps up to {disk.checkpoints} checkpoints of "
            f"{_bytes(disk.bytes_each)} while it trains, "
            f"{_bytes(disk.checkpoints * disk.bytes_each)}."
        )
    if spec.engine == "maxtext":
        yield (
            f"MaxText cuts each document to its first {spec.data.sequence_length:,} tokens; "
            "`parity preflight --job FILE` on a worker counts how many it cuts."
        )


def too_large(spec: JobSpec, worker: Worker) -> str | None:
    """Why a worker's devices can't hold a run of a job, with what they could hold, or None."""
    has, slices = worker.device.get("memory_bytes"), slices_of(worker)
    try:
        largest = _largest(spec, slices)
    except MeshError as error:
        return str(error)
    if largest is None or has is None or largest[1].least <= has:
        return None
    run, needed = largest
    return (
        f"a run takes at least {_gib(needed.least)} GiB of a device ({_parts(needed)}), which has "
        f"{_gib(has)}; {_remedy(run, slices, has, on_gpu=_on_gpu(worker))}"
    )


def _largest(spec: JobSpec, slices: Sequence[int]) -> tuple[RunSpec, Memory] | None:
    """The run that takes most of a device; None where nothing is known. Raises MeshError."""
    known = [
        (run, taken)
        for run in (spec.run_of(arm, 0) for arm in spec.arms)
        if (taken := memory.memory(run, slices)) is not None
    ]
    return max(known, key=lambda each: each[1].likely, default=None)


def _memory_sentence(spec: JobSpec, run: RunSpec, taken: Memory) -> str:
    return (
        f"{spec.model.parameters:,} parameters take about {_gib(taken.likely)} GiB of "
        f"{'each device' if run.devices > 1 else 'the device'} ({_parts(taken)}"
        + (f", at work {_gib(taken.working)}" if taken.working else "")
        + (f"; not counted: {_NOT_COUNTED}" if _trains_on_gpus(run) else "")
        + ")."
    )


def _trains_on_gpus(run: RunSpec) -> bool:
    return run.engine == "transformer_engine" or (
        run.engine == "maxtext" and run.maxtext.hardware != "cpu"
    )


def _parts(taken: Memory) -> str:
    return ", ".join(
        f"{name} {_gib(size)}"
        for name, size in (
            ("weights", taken.weights),
            ("optimizer", taken.optimizer),
            ("gradients", taken.gradients),
            ("kept for the backward pass", taken.kept),
            ("logits", taken.logits),
        )
    )


def _tight(run: RunSpec, taken: Memory, slices: Sequence[int], workers: Sequence[Worker]) -> str:
    """A sentence where the device probably has too little for what is not surely too much."""
    has = workers[0].device.get("memory_bytes") if workers else None
    if has is None or taken.most <= has:
        return ""
    remedy = _remedy(run, slices, has, on_gpu=_on_gpu(workers[0]))
    return f" A device of {workers[0].name} has {_gib(has)}, which may be too little: {remedy}."


def _on_gpu(worker: Worker) -> bool:
    return str(worker.device.get("device_class", "")).startswith("gpu:")


def _remedy(run: RunSpec, slices: Sequence[int], has: int, *, on_gpu: bool) -> str:
    """What would make a run fit, in words: changes of the job file, else a larger share of a
    GPU.
    """
    for words, changed in memory.smaller(run, slices):
        try:
            taken = memory.memory(changed, slices)
        except MeshError:
            continue
        if taken is not None and taken.most <= has:
            return f"{words} would take about {_gib(taken.likely)}"
    taken = memory.memory(run, slices)
    if on_gpu and taken is not None and taken.most <= has * _SHARE / _SHARE_UNLESS_SET:
        return (
            f"XLA_PYTHON_CLIENT_MEM_FRACTION={_SHARE} at the worker gives its runs as much, if jax "
            f"had {_SHARE_UNLESS_SET} of the GPU"
        )
    return "it needs more devices, a smaller model or shorter sequences"


def _gib(size: float) -> str:
    return f"{size / _GIB:,.1f}" if size < 100 * _GIB else f"{size / _GIB:,.0f}"


def _bytes(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1e6:.3g} MB"
