"""What a training process is, for the comparison of the arms: versions, the environment variables
that decide bits, the code's revision.
"""

import importlib.metadata
import os
import platform
import subprocess

# Versions come from the installed distributions' metadata: nothing is imported, and no device is
# touched.
_DISTRIBUTIONS = (
    "accelerate",
    "flax",
    "jax",
    "jaxlib",
    "lightning",
    "maxtext",
    "megatron-core",
    "optax",
    "pytorch-lightning",
    "torch",
    "torchao",
    "transformer-engine",
    "transformer-engine-cu12",
    "transformer-engine-cu13",
    "transformer-engine-jax",
    "transformer-engine-torch",
    "transformers",
    "triton",
)
_NOT_BITS = (
    "JAX_COMPILATION_CACHE",
    "JAX_PERSISTENT_CACHE",
    "JAX_ENABLE_COMPILATION_CACHE",
    "JAX_COORDINATOR",
    "JAX_PROCESS",
)
_GIT_SECONDS = 5.0


def describe_environment() -> dict[str, str]:
    """Versions, environment and revision of this process, flat; takes up to some seconds where git
    is slow.
    """
    facts = {"version.python": platform.python_version(), "machine": platform.machine()}
    for name in _DISTRIBUTIONS:
        try:
            facts[f"version.{name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts |= {
        f"env.{name}"[:64]: value[:1000]
        for name, value in os.environ.items()
        if _decides_bits(name)
    }
    revision = _git("rev-parse", "HEAD")
    if revision:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        facts["code_revision"] = revision + (" with changes" if changed else "")
    return facts


def _decides_bits(name: str) -> bool:
    return (
        name == "XLA_FLAGS"
        or name.startswith("NVTE_")
        or (name.startswith("JAX_") and not name.startswith(_NOT_BITS))
    )


def _git(*words: str) -> str:
    try:
        git = subprocess.run(
            ["git", *words],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return git.stdout.strip()
