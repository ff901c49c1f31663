"""A place to train on one machine: one core, or one GPU, and the environment that a training process gets there.

The environment is part of a run: one variable such as NVTE_NVFP4_DISABLE_RHT=1 silently makes another recipe of nvfp4. So a
training process gets the variables that are named here and no others, those that decide bits are recorded with the run
(`training.trainer.fingerprint.manifest`), and no secret of the service ever reaches it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from server.settings import Settings

# Where programs, libraries, certificates and temporary files are found, and in which words they speak.
_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
# What decides how jax, XLA, CUDA and Transformer Engine compute; the manifest records those that decide bits.
_PREFIXES = ("LC_", "NVTE_", "XLA_", "JAX_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "TF_CPP_", "DECOUPLE_", "HF_HOME", "HF_HUB_OFFLINE")
# What a launcher needs to find its allocation, and its processes each other (training.environment.distributed).
_LAUNCHERS = ("SLURM_", "PMI", "OMPI_", "PRTE_", "HYDRA_", "KUBE", "PARITY_PROCESS", "PARITY_COORDINATOR", "JOB_COMPLETION_INDEX", "MUNGE_")
_ENGINES = ("PARITY_MAXTEXT_PYTHON",)  # where an engine's own trainer is

# XLA gives its buffers back after every block of steps and takes them anew: the page faults of 4 KiB pages cost half a step of
# 1 M parameters (131 ms for a block of one step, 94 so). No other bits, and nothing where the C library is not glibc.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One core of a processor, or one GPU (an entry of CUDA_VISIBLE_DEVICES); None: not pinned."""

    core: int | None = None
    gpu: str | None = None


def slots(settings: Settings) -> list[Slot]:
    """The slots of this worker: a core each for emulated runs, a GPU each where the capability is one of a GPU; a launcher places its
    processes itself.

    Raises ValueError where CUDA_VISIBLE_DEVICES names fewer GPUs than there are slots.
    """
    if settings.launcher:
        return [Slot()] * settings.slots
    if settings.capability != "cpu":
        named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(settings.slots))))
        gpus = [name.strip() for name in named.split(",") if name.strip()]
        if len(gpus) < settings.slots:
            raise ValueError(f"PARITY_SLOTS is {settings.slots}, expected at most the {len(gpus)} GPUs of CUDA_VISIBLE_DEVICES={named}")
        return [Slot(gpu=gpus[slot]) for slot in range(settings.slots)]
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [Slot(core=usable[slot] if len(usable) >= settings.slots else None) for slot in range(settings.slots)]


def environment(settings: Settings, slot: Slot, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process that trains in this slot, complete."""
    prefixes = (*_PREFIXES, *_LAUNCHERS) if settings.launcher else _PREFIXES
    kept = {name: value for name, value in given.items() if name in _NAMES or name in _ENGINES or name.startswith(prefixes)}
    kept |= {
        # Resolved to its end: jax makes the folder's name part of the key, and another name for the same cache would find nothing.
        "JAX_COMPILATION_CACHE_DIR": str((settings.state_dir / "jax-cache").resolve()),
        # Named, so that a machine without its GPU refuses a run instead of training it on the processor.
        "JAX_PLATFORMS": "cpu" if settings.capability == "cpu" else "cuda",
        "PYTHONUNBUFFERED": "1",
        "GLIBC_TUNABLES": given.get("GLIBC_TUNABLES", HUGE_PAGES),
    }
    return kept | ({"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu is not None else {})
