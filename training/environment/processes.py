"""A run of several processes, started by a wrapper such as srun or mpirun: the number of this
process and how processes connect.

What it answers: does this process report the training, or does it only train?

Each wrapper sets a process's number and the number of processes in its own variables (VARIABLES;
the first pair that is set counts). An operator can set PARITY_PROCESS_ID and PARITY_PROCESSES by
hand, as in Kubernetes. Only the first process reports. Under Slurm and Open MPI jax finds the
coordinator itself; elsewhere PARITY_COORDINATOR is its address, host:port.

Under both, jax 0.12 takes the GPU of the task's number on its node (SLURM_LOCALID) among those that
the process sees. Where each task sees only the GPU that it was allotted, as with --gpus-per-task=1,
no task but the first would find one (`local_devices`).

The assumption that can fail: the wrapper starts every process with the same request, at about the
same time, on a shared folder.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from training.frozen import frozen

COORDINATOR = "PARITY_COORDINATOR"
LOCAL_DEVICES = "JAX_LOCAL_DEVICE_IDS"
# (number of this process, how many there are)
VARIABLES = (
    ("PARITY_PROCESS_ID", "PARITY_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JOB_COMPLETION_INDEX", "PARITY_PROCESSES"),
)


class WrapperError(Exception):
    """The wrapper's variables are invalid or do not match the run."""

    code = "WRAPPER"


@frozen
class Processes:
    """This process's number, from 0, and the number of processes; the coordinator's address, or ""
    if jax finds it.
    """

    number: int = 0
    count: int = 1
    coordinator: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reports for all."""
        return self.number == 0


ALONE = Processes()


def processes(environment: Mapping[str, str]) -> Processes:
    """Returns the process that the wrapper's variables describe, ALONE if none are set; raises
    WrapperError for invalid values.
    """
    for number_name, count_name in VARIABLES:
        if number_name not in environment or count_name not in environment:
            continue
        values = environment[number_name], environment[count_name]
        if not all(value.isdecimal() for value in values) or not int(values[0]) < int(values[1]):
            raise WrapperError(
                f"{number_name} is {values[0]!r} and {count_name} is {values[1]!r}, expected a "
                "process number from 0 and the number of processes"
            )
        return Processes(
            number=int(values[0]),
            count=int(values[1]),
            coordinator=environment.get(COORDINATOR, ""),
        )
    return ALONE


def local_devices(environment: Mapping[str, str]) -> list[int] | None:
    """Which of the GPUs that a process sees it takes, counted from 0: the one that it sees. None
    where jax decides, by LOCAL_DEVICES or by the process's number on its node.
    """
    seen = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return [0] if len(seen) == 1 and not environment.get(LOCAL_DEVICES) else None


@contextmanager
def joined(process: Processes) -> Iterator[None]:
    """Context in which jax sees the devices of all processes; enter it before jax first lists
    devices. No effect for one process.

    Raises WrapperError if the processes do not find each other.
    """
    if process.count == 1:
        yield
        return
    import jax  # noqa: PLC0415

    try:
        jax.distributed.initialize(
            process.coordinator or None,
            num_processes=process.count,
            process_id=process.number,
            local_device_ids=local_devices(os.environ),
        )
    except (RuntimeError, ValueError) as error:
        raise WrapperError(
            f"process {process.number} of {process.count} did not find the others: {error}; set "
            f"{COORDINATOR}=host:port of the first"
        ) from error
    try:
        yield
    finally:
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
