"""Which of several processes of a training writes: rank 0, whatever launched them.

PARITY_RANK decides where it is set, such as for several independent trainings under one `srun`.
Else a framework that has its process group decides, and before that the launchers' variables, the
innermost first: `srun torchrun` sets SLURM_PROCID to the node and RANK to the process.
"""

import os
import sys
from collections.abc import Mapping

STATED = "PARITY_RANK"
# torchrun and accelerate; Open MPI's mpirun; MPICH's and Intel's (Hydra); Slurm's srun.
LAUNCHERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
# What Lightning's own launcher sets in each process: the number of its node, and its number there.
# It sets no RANK.
NODE, LOCAL = "NODE_RANK", "LOCAL_RANK"


class RankError(ValueError):
    """A launcher's variable that is not a number from 0."""


def is_writer(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is rank 0, or the only one. Raises RankError if the launcher's variable
    is not a number.
    """
    if environ.get(STATED):
        return _number(STATED, environ[STATED]) == 0
    rank = _torch_rank()
    if rank is None:
        rank = _jax_rank()
    if rank is None:
        rank = _launched_rank(environ)
    return rank == 0


def _torch_rank() -> int | None:
    """The rank in PyTorch's process group, or None without one. Does not import PyTorch."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def _jax_rank() -> int | None:
    """The index among several processes of jax; None where jax is not there or runs in one. No
    device is touched for this.
    """
    jax = sys.modules.get("jax")
    bridge = sys.modules.get("jax._src.xla_bridge")
    if jax is None or not (jax.distributed.is_initialized() or getattr(bridge, "_backends", None)):
        return None
    if jax.process_count() > 1:
        return int(jax.process_index())
    return None


def _launched_rank(environ: Mapping[str, str]) -> int:
    """The rank that the innermost launcher gave this process; 0 without a launcher."""
    for name in LAUNCHERS:
        if environ.get(name):
            return _number(name, environ[name])
    return max(
        (_number(name, environ[name]) for name in (NODE, LOCAL) if environ.get(name)), default=0
    )


def _number(name: str, value: str) -> int:
    try:
        if (number := int(value)) >= 0:
            return number
    except ValueError:
        pass
    raise RankError(f"{name} is {value!r:.40}; expected the number of this process, from 0")
