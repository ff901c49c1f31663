"""The first step: which device jax sees, with the driver and the versions of what decides bits and
speed. It exits 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import sys
from pathlib import Path
from typing import Any

from tools.gpu_evidence.results import write_facts
from training.environment.transformer_engine_installed import driver

_PACKAGES = re.compile(
    r"jax|jaxlib|numpy|optax|flax|orbax-checkpoint|transformer[-_]engine.*|nvidia-(cu|nccl).*|jax-cuda.*|ml[-_]dtypes"
)


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide bits or speed, by their
    names.
    """
    installed = {
        package.name.lower(): package.version
        for package in importlib.metadata.distributions()
        if package.name
    }
    return {"python": platform.python_version()} | {
        name: installed[name] for name in sorted(installed) if _PACKAGES.fullmatch(name)
    }


def described() -> dict[str, Any]:
    """The first device that jax sees; imports jax. Raises RuntimeError where it has none of the
    wanted platform.
    """
    import jax  # noqa: PLC0415

    first = jax.devices()[0]
    return {
        "platform": first.platform,
        "device": first.device_kind,
        "compute_capability": str(getattr(first, "compute_capability", "")),
        "devices": jax.device_count(),
        "memory_bytes": int((first.memory_stats() or {}).get("bytes_limit", 0)),
        "driver": driver(),
        "versions": versions(),
    }


def main() -> int:
    """Write the facts; 0 where the device is of the expected platform, 2 where it is not."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence.device", description="The device that jax sees."
    )
    parser.add_argument("--expect", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--facts", type=Path)
    options = parser.parse_args()
    try:
        facts = described()
    # AssertionError: jax without its CUDA plugin (0.10.2)
    except (ImportError, RuntimeError, AssertionError) as error:
        write_facts(options.facts, {"driver": driver(), "versions": versions()})
        what = " ".join(str(error).split()) or "no plugin for CUDA"
        sys.stdout.write(
            f"jax sees no GPU: {type(error).__name__}: {what}; install jax[cuda13] and NVIDIA's "
            "driver (docs/hardware.md)\n"
        )
        return 2
    write_facts(options.facts, facts)
    if facts["platform"] != options.expect:
        sys.stdout.write(f"jax sees a {facts['platform']}, expected a {options.expect}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
