import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity import Criteria, Curve, curve_from_arrays
from parity.judging.evidence import Case, EvidenceError, bundle_bytes, compare_documents, verify
from parity.version import JUDGE_VERSION


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
    assert verify(str(bundle)).differences == ()
    assert bundle_bytes(case, case.documents()) == bundle.read_bytes()


def test_a_changed_series_is_caught(bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith("-01.npy"))
        files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])

    (line,) = verify(rewritten(bundle, tamper)).differences
    assert "sha256 differs" in line


def test_a_changed_series_with_its_digest_is_caught_by_recomputation(bundle: Path) -> None:

    def tamper(files: dict[str, bytes]) -> None:
        name = next(name for name in sorted(files) if name.startswith("series/001") and name.endswith("-01.npy"))
        loss = np.load(io.BytesIO(files[name])) - 0.01
        buffer = io.BytesIO()
        np.save(buffer, loss)
        files[name] = buffer.getvalue()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()

    assert any("gap.mean" in line for line in verify(rewritten(bundle, tamper)).differences)


@pytest.mark.parametrize(("key", "value"), [("criteria", {"margin": "9%"}), ("planned_steps", 1000), ("layer_policy", "all_linears")])
def test_a_changed_policy_is_caught(key: str, value: object, bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        manifest[key] = value
        files["manifest.json"] = json.dumps(manifest).encode()

    assert verify(rewritten(bundle, tamper)).differences


def test_missing_and_foreign_files_are_caught(bundle: Path) -> None:
    assert verify(rewritten(bundle, lambda files: files.update(extra=b"x"))).differences == ("extra: not in the manifest",)
    assert verify(rewritten(bundle, lambda files: files.pop("extra") and files.pop("verdict.json") and None)).differences == (
        "verdict.json: missing in the bundle",
    )


@pytest.mark.parametrize("data", [b"", b"no zip", None])
def test_what_is_no_bundle(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(EvidenceError, match="no bundle"):
        verify(str(path)).differences


@pytest.mark.parametrize("change", [{"manifest.json": b"{"}, {"manifest.json": b"[]"}])
def test_a_broken_manifest(change: dict[str, bytes], bundle: Path) -> None:
    with pytest.raises(EvidenceError, match=r"manifest\.json"):
        verify(rewritten(bundle, lambda files: files.update(change)))


def test_a_manifest_without_arms(bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        files["manifest.json"] = json.dumps({"sha256": manifest["sha256"]}).encode()

    with pytest.raises(EvidenceError, match="does not describe a case"):
        verify(rewritten(bundle, tamper)).differences


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


def test_the_judge_has_the_version_that_its_verdicts_name(data: Path) -> None:
    """Fails where the judge changed and JUDGE_VERSION did not: raise it, and record a bundle of the new version next to the old one."""
    verification = verify(str(data / f"judge-{JUDGE_VERSION}.zip"))
    assert verification.same_judge
    assert verification.differences == ()


def of_another_judge(files: dict[str, bytes]) -> None:
    manifest = json.loads(files["manifest.json"])
    files["manifest.json"] = json.dumps(manifest | {"engine_version": "0.0.9"}).encode()


def test_a_bundle_of_another_judge_is_judged_again_and_never_called_identical(case: Case, bundle: Path) -> None:
    verification = verify(rewritten(bundle, of_another_judge))
    assert (verification.made_by, verification.same_judge, verification.differences) == ("0.0.9", False, ())
    assert [document["candidate"]["name"] for document in verification.today] == list(case.candidates)
    assert [document["verdict"] for document in verification.recorded] == [document["verdict"] for document in verification.today]


def test_a_bundle_of_another_judge_still_has_to_match_its_manifest(bundle: Path) -> None:
    rewritten(bundle, of_another_judge)
    assert verify(rewritten(bundle, lambda files: files.update(extra=b"x"))).differences == ("extra: not in the manifest",)

    def without_a_verdict(files: dict[str, bytes]) -> None:
        del files["extra"]
        files["verdict.json"] = json.dumps({"verdicts": json.loads(files["verdict.json"])["verdicts"][:1]}).encode()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"]["verdict.json"] = hashlib.sha256(files["verdict.json"]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()

    (line,) = verify(rewritten(bundle, without_a_verdict)).differences
    assert "good" in line
