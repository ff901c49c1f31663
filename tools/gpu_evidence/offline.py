"""What a prepared folder gives to a machine that can fetch nothing: an environment with its wheels,
and its file of tokens.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.gpu_evidence.budget import SessionBudget

MANIFEST = "manifest.json"
TOKENS = "tokens.npy"
WHEELS = "wheels"
_CHUNK = 1 << 20


class OfflineError(Exception):
    """The prepared folder cannot be used; the message says what is wrong with it, and what to
    do.
    """


def token_file(folder: Path | None) -> Path | None:
    """The checked file of tokens of a prepared folder; None without a folder. OfflineError if a
    file is missing or not as it was made.
    """
    if folder is None:
        return None
    manifest = _manifest(folder)
    for name, digest in manifest.items():
        path = folder / name
        if not path.is_file():
            raise OfflineError(
                f"{path} is missing, expected what --prepare made; copy the folder again"
            )
        if _sha256(path) != digest:
            raise OfflineError(
                f"{path} has {path.stat().st_size:,} bytes and is not what --prepare made; copy it "
                "again"
            )
    if TOKENS not in manifest:
        raise OfflineError(
            f"{folder / MANIFEST} names no {TOKENS}, expected a folder that --prepare finished; "
            "run it again"
        )
    return (folder / TOKENS).resolve()


def installed(folder: Path | None, environment: Path, budget: SessionBudget) -> str:
    """The Python of a new environment with the folder's wheels and this Python's packages; this
    Python without a folder.

    Raises OfflineError, with the end of pip's output, if they cannot be installed; then nothing of
    it is left.
    """
    if folder is None:
        return sys.executable
    wheels = sorted(map(str, (folder / WHEELS).glob("*.whl")))
    python = environment.resolve() / "bin" / "python"
    try:
        _run((sys.executable, "-m", "venv", str(environment)), budget)
        options = (
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--disable-pip-version-check",
        )
        _run((str(python), "-m", "pip", "install", *options, *wheels), budget)
        _share_packages(next(environment.resolve().glob("lib/python*/site-packages")))
    except (OfflineError, OSError) as error:
        shutil.rmtree(environment, ignore_errors=True)
        raise OfflineError(
            f"the wheels of {folder} cannot be installed: {error}; use the Python that they were "
            "made for"
        ) from error
    return str(python)


def _run(command: Sequence[str], budget: SessionBudget) -> None:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=max(1.0, budget.left())
        )
    except subprocess.TimeoutExpired:
        raise OfflineError("it took longer than the session") from None
    if done.returncode:
        raise OfflineError(" ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]))


def _share_packages(site_packages: Path) -> None:
    """Let an environment see the packages of this Python, which may itself be one of an
    environment.

    Transformer Engine looks for NVIDIA's libraries in the folder `nvidia` of its own environment
    alone, so that has links to those here.
    """
    folders = [Path(folder) for folder in site.getsitepackages() if Path(folder).is_dir()]
    lines = [f"import site; site.addsitedir({str(folder)!r})\n" for folder in folders]
    (site_packages / "shared_packages.pth").write_text("".join(lines), encoding="utf-8")
    for folder in folders:
        for file in (folder / "nvidia").rglob("*"):
            link = site_packages / file.relative_to(folder)
            if file.is_file() and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)


def write_manifest(folder: Path) -> dict[str, int]:
    """Note the digest of each file of a prepared folder; returns their sizes in bytes by name."""
    files = sorted([*(folder / WHEELS).glob("*.whl"), folder / TOKENS])
    names = {path.relative_to(folder).as_posix(): path for path in files}
    digests = {name: _sha256(path) for name, path in names.items()}
    (folder / MANIFEST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    return {name: path.stat().st_size for name, path in names.items()}


def _manifest(folder: Path) -> dict[str, str]:
    try:
        manifest: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OfflineError(
            f"--prepared {folder} has no readable {MANIFEST} ({error}), expected a folder that "
            "--prepare made"
        ) from error
    return manifest


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
