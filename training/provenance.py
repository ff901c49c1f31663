"""Identifies the trainer on this machine: code, libraries and environment variables that affect
bits.

What it answers: would a run now be trained by the same trainer as an earlier run? A worker
registers these facts and every run's manifest contains them, so that a verdict is not reused
after the trainer has changed.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from training.device import version, versions
from training.environment import transformer_engine_installed
from training.environment.maxtext_installed import VARIABLE, versions_beside

_NOT_BITS = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_ENABLE_COMPILATION_CACHE")
# The last three select other products (TF32) and the order of sums over devices.
_NAMED = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO")


def trainer_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the trainer's part of a run's manifest, for a training process with that environment;
    does not import jax.
    """
    facts = {"code_sha256": source_digest(), "trainer_version": version("parity")}
    facts |= {f"version.{name}": version for name, version in versions().items()}
    facts |= {
        f"version.{name}": version
        for name, version in transformer_engine_installed.versions().items()
    }
    if python := environment.get(VARIABLE):
        facts |= {
            f"version.maxtext-python.{name}": version
            for name, version in versions_beside(python).items()
        }
    return facts | {
        f"env.{name}": value for name, value in environment.items() if _decides_bits(name)
    }


def source_digest() -> str:
    """sha256 over the names and contents of the trainer's own sources."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(
            path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def _decides_bits(name: str) -> bool:
    # A path, which Transformer Engine sets as it is imported: a run would have a fact that its
    # worker did not register.
    if name == "NVTE_CUDA_INCLUDE_DIR":
        return False
    return (
        name in _NAMED
        or name.startswith("NVTE_")
        or (name.startswith("JAX_") and not name.startswith(_NOT_BITS))
    )
