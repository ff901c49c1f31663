"""An environment with Transformer Engine, whose jax extension is built in it without a GPU: for
`make test-te` and for --prepare.

    python -m tools.gpu_evidence.extension FOLDER [--python 3.12]      # FOLDER is
      .venv/transformer-engine in the Makefile

NVIDIA publishes the core library as a wheel and the jax extension as source only. What it needs of
CUDA comes from the packages in locks/transformer-engine.lock, so neither a GPU, a driver nor a CUDA
toolkit is needed, only a C++ compiler. On two cores the whole takes about five minutes and 4 GB,
most of it for downloads; the wheel stays in FOLDER/wheels.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "locks" / "transformer-engine.lock"
NAME = "transformer-engine-jax"
_DONE = ".installed"
_PARALLEL = '''"""Compiles the files of an extension in parallel."""
try:
    from pybind11.setup_helpers import ParallelCompile
except ImportError:
    pass
else:
    ParallelCompile("PARITY_BUILD_JOBS", default=2).install()
'''


class BuildError(Exception):
    """The environment cannot be made; the message has the end of the command's output, and what to
    do.
    """


def split_lock(text: str, name: str) -> tuple[str, str]:
    """The entries of a lock without those of a package, and those: one for each set of markers.
    BuildError if the lock has none.
    """
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)
    extension = [entry for entry in entries if entry.startswith(f"{name}==")]
    if not extension:
        raise BuildError(f"the lock has no entry of {name}, expected one; run `make lock`")
    return "".join(entry for entry in entries if entry not in extension), "".join(extension)


def build_variables(site_packages: Path, sm: str) -> dict[str, str]:
    """The variables with which the extension is built for compute capabilities such as "90" or
    "90;100" from NVIDIA's packages.
    """
    include = (
        site_packages / "nvidia" / "cu13" / "include" / "cccl",
        site_packages / "nvidia" / "cudnn" / "include",
    )
    return {
        "CPATH": os.pathsep.join(map(str, include)),
        "JAX_PLATFORMS": "cpu",
        "NVTE_BUILD_USE_NVIDIA_WHEELS": "1",
        "NVTE_CUDA_ARCHS": sm,
        "NVTE_FRAMEWORK": "jax",
    }


def environment(folder: Path, python: str) -> Path:
    """Make the environment if it is not there, or if the lock has changed since; returns its
    Python. Raises BuildError.
    """
    folder = folder.absolute()  # a link to a Python must not be followed
    done, made = folder / _DONE, folder / "bin" / "python"
    lock = LOCK.read_text(encoding="utf-8")
    if done.exists() and done.read_text(encoding="utf-8") == lock:
        return made
    uv = str(Path(sys.executable).parent / "uv")
    sys.stdout.write(
        f"making {folder} from {LOCK.relative_to(ROOT)} (about five minutes and 4 GB)\n"
    )
    sys.stdout.flush()
    run(
        (
            uv,
            "venv",
            "--quiet",
            "--clear",
            "--no-python-downloads",
            "--python",
            python,
            str(folder),
        ),
        "name a Python 3.12 with --python",
    )
    others, extension = (folder / "others.lock", folder / "extension.lock")
    for file, entries in zip((others, extension), split_lock(lock, NAME), strict=True):
        file.write_text(entries, encoding="utf-8")
    install = (uv, "pip", "install", "--quiet", "--python", str(made), "--require-hashes")
    run((*install, "-r", str(others)), "the packages must be on your package index")
    wheel = _build(folder, made, extension)
    run(
        (uv, "pip", "install", "--quiet", "--python", str(made), "--no-deps", str(wheel)),
        "run it again",
    )
    done.write_text(lock, encoding="utf-8")
    return made


def _build(folder: Path, python: Path, requirement: Path) -> Path:
    """Build the extension's wheel in an environment that has all else."""
    (folder / "parallel").mkdir(exist_ok=True)
    (folder / "parallel" / "sitecustomize.py").write_text(_PARALLEL, encoding="utf-8")
    site_packages = next(folder.resolve().glob("lib/python*/site-packages"))
    variables = build_variables(site_packages, "90;100") | {
        "PYTHONPATH": str((folder / "parallel").resolve())
    }
    options = (
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
        "--require-hashes",
        "--disable-pip-version-check",
    )
    binary = ("--no-binary", NAME, "--wheel-dir", str(folder / "wheels"))
    advice = "a C++ compiler is needed (Debian: apt-get install g++)"
    run(
        (str(python), "-m", "pip", "wheel", *options, *binary, "-r", str(requirement)),
        advice,
        variables,
    )
    return next((folder / "wheels").glob("*.whl"))


def run(
    command: Sequence[str],
    advice: str,
    variables: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> str:
    """Run a command in a folder and return what it printed; BuildError with the end of its output
    if it fails, or is not installed.
    """
    environment = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, cwd=folder
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be started ({error.strerror}); {advice}") from error
    if done.returncode:
        last = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-5:])
        raise BuildError(
            f"{Path(command[0]).name} {' '.join(command[1:3])} ended with status "
            f"{done.returncode}: {last}; {advice}"
        )
    return done.stdout


def main() -> int:
    """Make the environment; 0 when it is there."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence.extension",
        description="Build Transformer Engine for jax.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python", default="3.12", help="a Python 3.12 or later, by version or path (3.12)"
    )
    options = parser.parse_args()
    try:
        environment(options.folder, options.python)
    except BuildError as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
