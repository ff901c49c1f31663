"""A run of several processes, started by a launcher such as srun or mpirun: the number of this process and how processes connect.

What it answers: does this process report the training, or does it only train?

The launcher sets a process's number and how many there are, each by variables of its own (VARIABLES, the first pair that is set
counts; PARITY_PROCESS_ID and PARITY_PROCESSES where the operator sets them by hand, as in Kubernetes). The first process is the
one that reports. jax finds the place where they meet by itself under Slurm and Open MPI; elsewhere PARITY_COORDINATOR names it, host:port.

The assumption that can fail: that the launcher starts every process with the same request, at about the same time, on a shared folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

COORDINATOR = "PARITY_COORDINATOR"
# (number of this process, how many there are)
VARIABLES = (
    ("PARITY_PROCESS_ID", "PARITY_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JOB_COMPLETION_INDEX", "PARITY_PROCESSES"),
)


class LauncherError(Exception):
    """The launcher's variables are invalid or do not match the run."""

    code = "LAUNCHER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """This process's number, from 0, and the number of processes; the coordinator's address, or "" if jax finds it."""

    number: int = 0
    count: int = 1
    coordinator: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reports for all."""
        return self.number == 0


ALONE = Processes()


def processes(environment: Mapping[str, str]) -> Processes:
    """The process as the launcher's variables describe it; ALONE where there are none.

    Raises LauncherError where they contradict themselves.
    """
    for of_this, of_all in VARIABLES:
        if of_this not in environment or of_all not in environment:
            continue
        values = environment[of_this], environment[of_all]
        if not all(value.isdecimal() for value in values) or not int(values[0]) < int(values[1]):
            raise LauncherError(
                f"{of_this} is {values[0]!r} and {of_all} is {values[1]!r}, expected a process number from 0 and the number of processes"
            )
        return Processes(number=int(values[0]), count=int(values[1]), coordinator=environment.get(COORDINATOR, ""))
    return ALONE


@contextmanager
def joined(own: Processes) -> Iterator[None]:
    """Where jax sees the devices of all processes; call it before jax counts any. Does nothing for a process that is alone."""
    if own.count == 1:
        yield
        return
    import jax  # noqa: PLC0415 - only here, so that the variables can be read without it

    try:
        jax.distributed.initialize(own.coordinator or None, num_processes=own.count, process_id=own.number)
    except (RuntimeError, ValueError) as error:
        raise LauncherError(
            f"process {own.number} of {own.count} did not find the others: {error}; set {COORDINATOR}=host:port of the first"
        ) from error
    try:
        yield
    finally:
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
