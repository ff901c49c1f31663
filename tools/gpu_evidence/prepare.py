"""`python -m tools.gpu_evidence --prepare FOLDER`: wheels and tokens for a machine with a GPU that
can fetch nothing.

FOLDER/wheels has what such a machine lacks if it has jax with CUDA, flax, optax and orbax: the
service, Transformer Engine and its jax extension, which is built here. FOLDER/tokens.npy has 25
million tokens of Debian's documentation, or of the text that is named. FOLDER/manifest.json has the
digests of all of them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from tools.gpu_evidence import extension
from tools.gpu_evidence.extension import ROOT, BuildError, run, split_lock
from tools.gpu_evidence.offline import MANIFEST, TOKENS, WHEELS, write_manifest
from tools.gpu_evidence.slim import NoCodeError, slim_wheel

ENVIRONMENT = ROOT / ".venv" / "transformer-engine"
DOCUMENTATION = ("linux-doc", "python3-doc", "erlang-doc", "default-jdk-doc")
_CORE = "transformer-engine-cu13"
_THERE = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
_ENGINE_PACKAGES = ("transformer-engine", "importlib-metadata")
# Transformer Engine imports it, and jax with CUDA does not bring it. A machine with a CUDA toolkit
# has it.
_LIBRARIES = ("nvidia-curand",)
_STANDALONE = ROOT / "locks" / "standalone.lock"
# Names of all that a package requires, and of what those require, in an environment that has them.
_REQUIRED = """
import importlib.metadata, json, re, sys
names, waiting = set(), sys.argv[1:]
while waiting:
    name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
    if name in names:
        continue
    try:
        required = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    names.add(name)
    waiting += [re.match(r"[\\w.-]+", line)[0] for line in required if "extra ==" not in line]
print(json.dumps(sorted(names)))
"""


class PrepareError(Exception):
    """The folder cannot be prepared; the message says why, and what to do."""


def prepare(
    folder: Path, *, sm: int, slim: bool, python: str, with_jax: bool, text: Path | None
) -> int:
    """Make the folder and print the sizes of its files; returns 0, or raises PrepareError. A
    finished folder is not touched again.
    """
    if (folder / MANIFEST).exists():
        raise PrepareError(f"{folder} is prepared already; name another folder, or remove it")
    if text is not None and not text.exists():
        raise PrepareError(
            f"--text {text} does not exist, expected a text file or a folder of texts"
        )
    folder = folder.resolve()
    wheels = folder / WHEELS
    wheels.mkdir(parents=True, exist_ok=True)
    try:
        made = extension.environment(ENVIRONMENT, python)
        with tempfile.TemporaryDirectory(prefix="parity-prepare-") as temporary:
            _wheels(
                wheels, made, with_jax=with_jax, slim=sm if slim else None, scratch=Path(temporary)
            )
            texts = [text.resolve()] if text is not None else _documentation(Path(temporary))
            command = (
                str(made),
                "-m",
                "tools.gpu_evidence.text",
                *map(str, texts),
                "--out",
                str((folder / TOKENS).resolve()),
            )
            sys.stdout.write(
                run(command, "name another text with --text", {"PYTHONPATH": str(ROOT)})
            )
    except (BuildError, NoCodeError, OSError) as error:
        raise PrepareError(str(error)) from error
    sizes = write_manifest(folder)
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{size / 1e6:9.1f} MB  {name}\n")
    wheel_bytes = sum(size for name, size in sizes.items() if name != TOKENS)
    sys.stdout.write(
        f"{wheel_bytes / 1e6:9.1f} MB of wheels, {sizes[TOKENS] / 1e6:.1f} MB of tokens\n"
    )
    return 0


def entries(lock: str, names: Collection[str]) -> str:
    """The entries of a lock whose packages have these names."""
    return "".join(split_lock(lock, name)[1] for name in sorted(names))


def names_of(lock: str) -> set[str]:
    """The names of the packages of a lock."""
    return {
        line.partition("==")[0]
        for line in lock.splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }


def _wheels(wheels: Path, python: Path, *, with_jax: bool, slim: int | None, scratch: Path) -> None:
    """Collect the wheels: of the service, of Transformer Engine, and with jax also what a machine
    with a GPU has.
    """
    service, engine_lock = (
        path.read_text(encoding="utf-8") for path in (_STANDALONE, extension.LOCK)
    )
    there = set(json.loads(run((str(python), "-c", _REQUIRED, *_THERE), "run it again")))
    missing_names = names_of(service) - there
    added = {
        *_ENGINE_PACKAGES,
        *(_LIBRARIES if slim is None else ()),
        *(there & names_of(engine_lock) if with_jax else ()),
    } - missing_names
    _download(python, entries(service, missing_names), wheels)
    _download(python, entries(engine_lock, added), wheels)
    for built in (ENVIRONMENT / WHEELS).glob("*.whl"):
        shutil.copy(built, wheels)
    _download(python, entries(engine_lock, {_CORE}), wheels if slim is None else scratch)
    if slim is not None:
        for core in scratch.glob("*.whl"):
            slim_wheel(core, wheels, slim)


def _download(python: Path, requirements: str, folder: Path) -> None:
    """Download the wheels of a lock's entries for the environment's Python."""
    with tempfile.NamedTemporaryFile("w", suffix=".lock", encoding="utf-8") as file:
        file.write(requirements)
        file.flush()
        options = (
            "--quiet",
            "--require-hashes",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
        )
        command = (
            str(python),
            "-m",
            "pip",
            "download",
            *options,
            "--dest",
            str(folder),
            "-r",
            file.name,
        )
        run(command, "the package index must have wheels for this Python")


def _documentation(scratch: Path) -> list[Path]:
    """Download and unpack Debian's documentation; returns the folders with the pages."""
    folders = []
    for name in DOCUMENTATION:
        package, folder = _newest(name), scratch / name
        folder.mkdir()
        advice = "run apt-get update, or name a text of your own with --text"
        run(("apt-get", "download", package), advice, folder=folder)
        archive = next(folder.glob("*.deb"))
        run(("dpkg-deb", "-x", str(archive), str(folder / "pages")), advice)
        folders.append(folder / "pages")
    return folders


def _newest(name: str) -> str:
    """The package that a name such as linux-doc stands for in this release: linux-doc-6.1."""
    return depended(
        name, run(("apt-cache", "depends", name), "name a text of your own with --text")
    )


def depended(name: str, output: str) -> str:
    """The first package that a metapackage depends on, if it is documentation; else the package
    itself.
    """
    packages: Iterable[str] = (
        line.partition("Depends:")[2].strip() for line in output.splitlines() if "Depends:" in line
    )
    return next(
        (
            package
            for package in packages
            if package.endswith("-doc") or package.startswith(f"{name}-")
        ),
        name,
    )
