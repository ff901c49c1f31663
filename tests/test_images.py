"""The images: pinned by digest, and the lines of a GPU worker's that need no Docker, run here."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from server.settings import CHECKOUT
from tests.compose import PASSWORDS, services

DOCKERFILES = sorted((CHECKOUT / "docker").glob("*.Dockerfile"))
# Its digest is the operator's to choose: which jax and MaxText a GPU worker trains with.
CHOSEN = "${JAX_IMAGE}"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_starts_from_a_digest(dockerfile):
    stages = re.findall(r"^FROM (\S+)", dockerfile.read_text(encoding="utf-8"), re.MULTILINE)
    assert stages
    assert [name for name in stages if name != CHOSEN and not DIGEST.search(name)] == []


def test_services_of_others_are_pinned_by_digest_and_each_image_has_one_digest():
    others = {s["image"] for s in services(PASSWORDS).values() if "build" not in s}
    assert [image for image in others if not DIGEST.search(image)] == []
    pinned = dict[str, set[str]]()
    for dockerfile in DOCKERFILES:
        for name, digest in re.findall(
            r"^FROM (\S+?)@(\S+)", dockerfile.read_text(encoding="utf-8"), re.MULTILINE
        ):
            pinned.setdefault(name, set()).add(digest)
    assert {name: len(digests) for name, digests in pinned.items() if len(digests) > 1} == {}


def _environment_line() -> list[str]:
    """The command that makes the GPU worker's environment, as its Dockerfile has it."""
    text = (CHECKOUT / "docker" / "worker-gpu.Dockerfile").read_text(encoding="utf-8")
    (run,) = re.findall(r"^RUN (.*?venv .+?) \\\n", text, re.MULTILINE)
    return run.split()


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose python3 lacks ensurepip, as Debian's does without its
    package python3-venv: this Python, in a folder of its own without that module.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    binaries, library = tmp_path / "usr" / "bin", tmp_path / "usr" / "lib" / version
    binaries.mkdir(parents=True)
    library.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), binaries / "python3")
    for module in Path(sysconfig.get_path("stdlib")).iterdir():
        if module.name not in ("ensurepip", "site-packages"):
            (library / module.name).symlink_to(module)
    uv = Path(sys.executable).with_name("uv")
    (binaries / "uv").symlink_to(uv if uv.exists() else str(shutil.which("uv")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PATH": f"{binaries}:/usr/bin:/bin", "UV_CACHE_DIR": str(tmp_path / "cache")}


def test_the_gpu_workers_environment_needs_no_ensurepip_and_sees_the_images_packages(
    tmp_path, bare
):
    usual = subprocess.run(
        ["python3", "-m", "venv", str(tmp_path / "usual")],
        env=bare,
        check=False,
        capture_output=True,
        text=True,
    )
    assert usual.returncode != 0
    assert "ensurepip" in usual.stdout + usual.stderr
    *command, target = _environment_line()
    assert target == "/opt/parity"
    made = subprocess.run(
        [*command, str(tmp_path / "parity")],
        env=bare,
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "parity" / "bin" / "python").exists()
    configured = (tmp_path / "parity" / "pyvenv.cfg").read_text()
    assert "include-system-site-packages = true" in configured


def test_numpy_and_scipy_of_the_gpu_image_are_not_replaced():
    kept = (CHECKOUT / "docker" / "gpu-image-has.txt").read_text(encoding="utf-8").split()
    locked = (CHECKOUT / "locks" / "server.lock").read_text(encoding="utf-8")
    assert kept == ["numpy", "scipy"]
    assert all(re.search(rf"^{name}==", locked, re.MULTILINE) for name in kept)
