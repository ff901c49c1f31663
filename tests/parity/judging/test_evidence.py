import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity import Criteria, Curve, curve_from_arrays
from parity.judging.evidence import Case, EvidenceError, bundle_bytes, compare_documents, verify


@pytest.fixture
def case(make_run: Callable[..., Curve], one_percent: Criteria) -> Case:
    noisy = make_run(seed=4)
    steps = np.append(noisy.steps, 1999)  # a duplicate: the proof of completeness must survive
    loss = np.append(noisy.loss, noisy.loss[-1])
    loss[1000] = np.nan
    return Case(
        baseline=[make_run(seed=1, recipe="fp8", context={"engine": "e"}, columns={"grad_norm": np.ones(2000)}), make_run(seed=2)],
        candidates={"good": [make_run(seed=3, recipe="nvfp4"), curve_from_arrays(steps, loss)], "bad": [make_run(seed=5, gap=0.1)]},
        criteria=one_percent,
        controls=[make_run(seed=6)],
        planned_steps=2000,
        layer_policy="mlp_only",
        baseline_name="FP8",
    )


@pytest.fixture
def bundle(case: Case, tmp_path: Path) -> Path:
    path = tmp_path / "out.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    return path


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None]) -> str:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return str(path)


def test_a_bundle_verifies_and_is_reproducible(case: Case, bundle: Path) -> None:
    assert verify(str(bundle)) == ()
    assert bundle_bytes(case, case.documents()) == bundle.read_bytes()


def test_a_changed_series_is_caught(bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith("-01.npy"))
        files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])

    (line,) = verify(rewritten(bundle, tamper))
    assert "sha256 differs" in line


def test_a_changed_series_with_its_digest_is_caught_by_recomputation(bundle: Path) -> None:
    import hashlib

    def tamper(files: dict[str, bytes]) -> None:
        name = next(name for name in sorted(files) if name.startswith("series/001") and name.endswith("-01.npy"))
        loss = np.load(io.BytesIO(files[name])) - 0.01
        buffer = io.BytesIO()
        np.save(buffer, loss)
        files[name] = buffer.getvalue()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()

    assert any("gap.mean" in line for line in verify(rewritten(bundle, tamper)))


@pytest.mark.parametrize(("key", "value"), [("criteria", {"margin": "9%"}), ("planned_steps", 1000), ("layer_policy", "all_linears")])
def test_a_changed_policy_is_caught(key: str, value: object, bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        manifest[key] = value
        files["manifest.json"] = json.dumps(manifest).encode()

    assert verify(rewritten(bundle, tamper))


def test_missing_and_foreign_files_are_caught(bundle: Path) -> None:
    assert verify(rewritten(bundle, lambda files: files.update(extra=b"x"))) == ("extra: not in the manifest",)
    assert verify(rewritten(bundle, lambda files: files.pop("extra") and files.pop("verdict.json") and None)) == (
        "verdict.json: missing in the bundle",
    )


@pytest.mark.parametrize("data", [b"", b"no zip", None])
def test_what_is_no_bundle(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(EvidenceError, match="no bundle"):
        verify(str(path))


@pytest.mark.parametrize("change", [{"manifest.json": b"{"}, {"manifest.json": b"[]"}])
def test_a_broken_manifest(change: dict[str, bytes], bundle: Path) -> None:
    with pytest.raises(EvidenceError, match=r"manifest\.json"):
        verify(rewritten(bundle, lambda files: files.update(change)))


def test_a_manifest_without_arms(bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        files["manifest.json"] = json.dumps({"sha256": manifest["sha256"]}).encode()

    with pytest.raises(EvidenceError, match="does not describe a case"):
        verify(rewritten(bundle, tamper))


@pytest.mark.parametrize(
    ("left", "right", "lines"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, 0),
        ({"a": 1.0}, {"a": 1.0 + 1e-6}, 1),
        ({"a": 1}, {"a": 2}, 1),
        ({"a": 1}, {"b": 1}, 2),
        ([1, 2], [1], 1),
        ("nan", "nan", 0),
        (True, 1, 1),
        (None, 0.0, 1),
    ],
)
def test_comparison(left: object, right: object, lines: int) -> None:
    assert len(list(compare_documents(left, right, "v"))) == lines
