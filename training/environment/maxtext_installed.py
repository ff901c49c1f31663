"""Finds the worker's MaxText: the Python in PARITY_MAXTEXT_PYTHON and its packages' versions,
without importing any of them.

PARITY_MAXTEXT_PYTHON=/opt/maxtext/bin/python
"""

import functools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from training.environment.maxtext_errors import NotInstalledError, WrongVersionError
from training.frozen import frozen

VARIABLE = "PARITY_MAXTEXT_PYTHON"
TESTED_VERSION = "0.2.5"
_VERSION = re.compile(r"0\.2\.(\d+)")
_SECONDS = 60.0
_PACKAGES = (
    "maxtext",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "grain",
    "transformer_engine",
    "transformer-engine-jax",
)
_NAMES = frozenset(name.replace("-", "_") for name in _PACKAGES)
_QUERY = f"""
import importlib.metadata, importlib.util, json, pathlib, platform
versions = {{"python": platform.python_version()}}
for name in {_PACKAGES!r}:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("maxtext")
print(json.dumps([versions, str(pathlib.Path(spec.origin).parent / "configs" / "base.yml") if spec and spec.origin else None]))
"""  # noqa: E501


@frozen
class Installed:
    """A Python with MaxText: its path, the path of MaxText's default configuration, and the
    versions of packages that affect bits.
    """

    python: str
    base_yml: str
    versions: dict[str, str]


def installed(environment: Mapping[str, str]) -> Installed:
    """Returns the MaxText of PARITY_MAXTEXT_PYTHON in this environment; raises NotInstalledError
    and WrongVersionError.
    """
    python = environment.get(VARIABLE, "")
    if not python:
        raise NotInstalledError(
            f"{VARIABLE} is not set on this worker, expected the path of a Python that has MaxText "
            f"{TESTED_VERSION}"
        )
    return _query(python)


def versions_beside(python: str) -> dict[str, str]:
    """Returns the versions of the packages that affect bits, read from that Python's folders: cheap
    enough for every few seconds.
    """
    libraries = Path(python).parent.parent / "lib"
    versions = {}
    for folder in sorted(libraries.glob("python3*/*-packages/*.dist-info")):
        name, _, version = folder.stem.rpartition("-")
        if name in _NAMES:
            versions[name] = version
    return versions


@functools.cache
def _query(python: str) -> Installed:
    try:
        answer = subprocess.run(
            [python, "-c", _QUERY],
            check=True,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        versions, base_yml = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotInstalledError(
            f"{VARIABLE} is {python!r}, expected a Python that starts: {_failure_words(error)}"
        ) from None
    if base_yml is None or "maxtext" not in versions:
        raise NotInstalledError(
            f"{VARIABLE} is {python!r}, which has no package maxtext; install "
            f"maxtext=={TESTED_VERSION} there"
        )
    match = _VERSION.match(versions["maxtext"])
    if match is None or int(match[1]) < int(TESTED_VERSION.rpartition(".")[2]):
        raise WrongVersionError(
            f"{python} has MaxText {versions['maxtext']}, expected 0.2.x from {TESTED_VERSION} on, "
            "whose output is known"
        )
    return Installed(python=python, base_yml=base_yml, versions=versions)


def _failure_words(error: Exception) -> str:
    """Returns why the configured Python failed, without the program text that it was called
    with.
    """
    if isinstance(error, subprocess.CalledProcessError):
        lines = error.stderr.strip().splitlines()
        return f"it ended with status {error.returncode}" + (
            f" and printed {lines[-1]!r}" if lines else ""
        )
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took longer than {_SECONDS:g} s to list its packages"
    if not isinstance(error, OSError):
        return "it did not list its packages"
    return str(error)
