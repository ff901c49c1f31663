"""A prepared folder: whole or refused, and installed without a package index into an environment of
its own.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tools.gpu_evidence.budget import SessionBudget
from tools.gpu_evidence.offline import (
    MANIFEST,
    OfflineError,
    _share_packages,
    installed,
    token_file,
    write_manifest,
)


def wheel(folder, name):
    """A wheel of one module that says its name."""
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: "
        "true\nTag: py3-none-any\n",
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for path, text in files.items()
    }
    record = "".join(f"{path},sha256={digests[path]},{len(text)}\n" for path, text in files.items())
    files[f"{name}-1.0.dist-info/RECORD"] = f"{record}{name}-1.0.dist-info/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as made:
        for path, text in files.items():
            made.writestr(path, text)


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "prepared"
    wheel(folder / "wheels", "evidence_one")
    wheel(folder / "wheels", "evidence_two")
    np.save(folder / "tokens.npy", np.arange(1000, dtype=np.uint16))
    sizes = write_manifest(folder)
    assert sizes["tokens.npy"] == (folder / "tokens.npy").stat().st_size
    return folder


def test_a_whole_folder_gives_its_tokens(prepared):
    assert token_file(prepared) == prepared / "tokens.npy"
    assert token_file(None) is None


def test_a_file_that_is_cut_short_or_changed_or_gone_is_named(prepared):
    tokens = prepared / "tokens.npy"
    content = tokens.read_bytes()
    tokens.write_bytes(content[:-100])
    with pytest.raises(
        OfflineError, match=r"tokens\.npy has 2,028 bytes and is not what --prepare made"
    ):
        token_file(prepared)
    tokens.write_bytes(content[:-1] + b"\xff")
    with pytest.raises(OfflineError, match="is not what --prepare made"):
        token_file(prepared)
    tokens.unlink()
    with pytest.raises(OfflineError, match="is missing"):
        token_file(prepared)


@pytest.mark.parametrize(
    "break_it",
    [
        shutil.rmtree,
        lambda folder: (folder / MANIFEST).unlink(),
        lambda folder: (folder / MANIFEST).write_text("{"),
    ],
)
def test_a_folder_that_was_not_prepared_is_refused(break_it, prepared):
    break_it(prepared)
    with pytest.raises(OfflineError, match=r"has no readable manifest\.json"):
        token_file(prepared)


def test_a_manifest_without_tokens_is_refused(prepared):
    manifest = json.loads((prepared / MANIFEST).read_text())
    del manifest["tokens.npy"]
    (prepared / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(OfflineError, match=r"names no tokens\.npy"):
        token_file(prepared)


def test_its_wheels_are_installed_beside_this_pythons_packages(prepared, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    python = installed(prepared, tmp_path / "environment", SessionBudget(60))
    script = (
        "import evidence_one, evidence_two, numpy, json, sys; print(json.dumps([evidence_one.NAME, "
        "numpy.__file__, sys.prefix]))"
    )
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    name, numpy_file, prefix = json.loads(done.stdout)
    assert name == "evidence_one"
    assert numpy_file == np.__file__  # of this environment, in which jax is
    assert prefix == str(tmp_path / "environment")
    assert installed(None, tmp_path / "no", SessionBudget(60)) == sys.executable


def test_a_wheel_that_cannot_be_installed_is_named_and_leaves_nothing(prepared, tmp_path):
    (prepared / "wheels" / "evidence_three-1.0-cp27-cp27m-win32.whl").write_bytes(b"not a zip")
    with pytest.raises(OfflineError, match="evidence_three"):
        installed(prepared, tmp_path / "environment", SessionBudget(60))
    assert not (tmp_path / "environment").exists()


def test_nvidias_libraries_are_where_transformer_engine_looks_for_them(tmp_path, monkeypatch):
    there, engine_folder = (
        tmp_path / "site" / "nvidia" / "cudnn" / "lib",
        tmp_path / "environment" / "nvidia" / "cudnn" / "lib",
    )
    for folder, names in (
        (there, ("libcudnn.so.9", "libcudnn_ops.so.9")),
        (engine_folder, ("libcudnn.so.9",)),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(str(folder))
    monkeypatch.setattr(
        "site.getsitepackages", lambda: [str(tmp_path / "site"), str(tmp_path / "absent")]
    )
    _share_packages(tmp_path / "environment")
    assert (engine_folder / "libcudnn_ops.so.9").resolve() == there / "libcudnn_ops.so.9"
    assert (engine_folder / "libcudnn.so.9").read_text() == str(
        engine_folder
    )  # what the environment has itself stays
