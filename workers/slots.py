"""Slots of a worker, one core or one GPU each, and the environment of the training process in a
slot.

The environment is part of a run: one variable such as NVTE_NVFP4_DISABLE_RHT=1 silently turns
nvfp4 into another recipe. So a training process gets only the variables listed here; those that
affect bits are recorded with the run (`training.trainer.identity.manifest`), and no secret of
the service reaches it.
"""

import os
from collections.abc import Mapping

from parity.frozen import frozen
from server.settings import Settings
from training.command import ENGINE as COMMAND

# Paths of programs, libraries, certificates and temporary files, and the language of messages.
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "LD_LIBRARY_PATH",
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
)
# Settings of jax, XLA, CUDA and Transformer Engine; the manifest records those that affect bits.
_PREFIXES = (
    "LC_",
    "NVTE_",
    "XLA_",
    "JAX_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "OMP_",
    "TF_CPP_",
    "DECOUPLE_",
    "HF_HOME",
    "HF_HUB_OFFLINE",
)
# For a wrapper to find its allocation, and for its processes to find each other
# (training.environment.processes).
_WRAPPERS = (
    "SLURM_",
    "PMI",
    "OMPI_",
    "PRTE_",
    "HYDRA_",
    "KUBE",
    "PARITY_PROCESS",
    "PARITY_COORDINATOR",
    "JOB_COMPLETION_INDEX",
    "MUNGE_",
)
_ENGINES = ("PARITY_MAXTEXT_PYTHON",)  # the path of an engine's own trainer

# XLA frees its buffers after every block of steps and allocates them again. With 4 KiB pages, the
# page faults cost half a step of 1 M parameters (131 ms instead of 94 ms for a block of one step).
# This changes no bits, and has no effect without glibc.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


@frozen
class Slot:
    """One processor core or one GPU (an entry of CUDA_VISIBLE_DEVICES); None: not pinned."""

    core: int | None = None
    gpu: str | None = None


def slots(settings: Settings) -> list[Slot]:
    """The slots of this worker: one core each for emulated runs, one GPU each on a GPU machine; not
    pinned under a wrapper, which places its processes itself, and for the trainers of launchers.

    Raises ValueError if CUDA_VISIBLE_DEVICES names fewer GPUs than there are slots. A GPU named
    twice counts once.
    """
    if settings.wrapper or settings.capability == COMMAND:
        return [Slot()] * settings.slots
    if settings.capability != "cpu":
        named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(settings.slots))))
        gpus = list(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))
        if len(gpus) < settings.slots:
            raise ValueError(
                f"PARITY_SLOTS is {settings.slots}, expected at most the {len(gpus)} GPUs of "
                f"CUDA_VISIBLE_DEVICES={named}"
            )
        return [Slot(gpu=gpus[slot]) for slot in range(settings.slots)]
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [
        Slot(core=usable[slot] if len(usable) >= settings.slots else None)
        for slot in range(settings.slots)
    ]


def environment(
    settings: Settings, slot: Slot, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The complete environment of a training process in this slot."""
    prefixes = (*_PREFIXES, *_WRAPPERS) if settings.wrapper else _PREFIXES
    variables = {
        name: value
        for name, value in inherited.items()
        if name in _NAMES or name in _ENGINES or name.startswith(prefixes)
    }
    variables |= {
        # An absolute path without links: the path is part of jax's cache key, so another name for
        # the same folder would find nothing.
        "JAX_COMPILATION_CACHE_DIR": str((settings.state_dir / "jax-cache").resolve()),
        # Explicit, so that a machine without its GPU fails the run instead of training it on the
        # CPU.
        "JAX_PLATFORMS": "cpu" if settings.capability == "cpu" else "cuda",
        "PYTHONUNBUFFERED": "1",
        "GLIBC_TUNABLES": inherited.get("GLIBC_TUNABLES", HUGE_PAGES),
    }
    return variables | ({"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu is not None else {})
