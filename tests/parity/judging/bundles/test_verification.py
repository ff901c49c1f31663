import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.judging.bundles.compare_documents import compare_documents
from parity.judging.bundles.read_bundle import EvidenceError
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import Policy
from parity.version import JUDGE_VERSION


@pytest.fixture
def case(make_run: Callable[..., Curve], one_percent: Policy) -> Case:
    noisy = make_run(seed=4)
    # duplicates after a restart: the proof of completeness must survive
    steps = np.append(noisy.steps, range(1996, 2000))
    loss = np.append(noisy.loss, noisy.loss[-4:] - 0.01)
    loss[1000] = np.nan
    return Case(
        baseline=[
            make_run(
                seed=1, recipe="fp8", context={"engine": "e"}, columns={"grad_norm": np.ones(2000)}
            ),
            make_run(seed=2),
        ],
        candidates={
            "good": [make_run(seed=3, recipe="nvfp4"), curve_from_arrays(steps, loss)],
            "bad": [make_run(seed=5, gap=0.1)],
        },
        policy=one_percent,
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
        name = next(
            name
            for name in sorted(files)
            if name.startswith("series/001") and name.endswith("-01.npy")
        )
        loss = np.load(io.BytesIO(files[name])) - 0.01
        buffer = io.BytesIO()
        np.save(buffer, loss)
        files[name] = buffer.getvalue()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()

    assert any("gap.mean" in line for line in verify(rewritten(bundle, tamper)).differences)


@pytest.mark.parametrize(
    ("key", "value"),
    [("policy", {"margin": "9%"}), ("planned_steps", 1000), ("layer_policy", "all_linears")],
)
def test_a_changed_policy_is_caught(key: str, value: object, bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        manifest = json.loads(files["manifest.json"])
        manifest[key] = value
        files["manifest.json"] = json.dumps(manifest).encode()

    assert verify(rewritten(bundle, tamper)).differences


def test_missing_and_foreign_files_are_caught(bundle: Path) -> None:
    assert verify(rewritten(bundle, lambda files: files.update(extra=b"x"))).differences == (
        "extra: not in the manifest",
    )
    assert verify(
        rewritten(bundle, lambda files: files.pop("extra") and files.pop("verdict.json") and None)
    ).differences == ("verdict.json: missing in the bundle",)


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


def test_the_judge_has_the_version_that_its_verdicts_name(data: Path) -> None:
    """Fails where the judge changed and JUDGE_VERSION did not: raise it, and record a bundle of the
    new version next to the old one.
    """
    verification = verify(str(data / f"judge-{JUDGE_VERSION}.zip"))
    assert verification.same_judge
    assert verification.differences == ()


def resealed(files: dict[str, bytes], version: object, verdicts: object) -> None:
    """Another judge and other verdicts, with a manifest that fits them."""
    files["verdict.json"] = json.dumps({"verdicts": verdicts}).encode()
    manifest = json.loads(files["manifest.json"]) | {"engine_version": version}
    manifest["sha256"]["verdict.json"] = hashlib.sha256(files["verdict.json"]).hexdigest()
    files["manifest.json"] = json.dumps(manifest).encode()


def of_judge(
    version: object, change: Callable[[list[Any]], object] = lambda verdicts: verdicts
) -> Callable[[dict[str, bytes]], None]:
    def tamper(files: dict[str, bytes]) -> None:
        verdicts = [
            document | {"engine_version": version}
            for document in json.loads(files["verdict.json"])["verdicts"]
        ]
        resealed(files, version, change(verdicts))

    return tamper


def test_a_bundle_of_another_judge_is_judged_again_and_never_called_identical(
    case: Case, bundle: Path
) -> None:
    verification = verify(rewritten(bundle, of_judge("0.0.9")))
    assert (verification.made_by, verification.same_judge, verification.differences) == (
        "0.0.9",
        False,
        (),
    )
    assert [candidate.candidate for candidate in verification.rejudged] == list(case.candidates)
    assert all(candidate.recorded == candidate.today for candidate in verification.rejudged)


def test_a_bundle_of_another_judge_still_has_to_match_its_manifest(bundle: Path) -> None:
    rewritten(bundle, of_judge("0.0.9"))
    assert verify(rewritten(bundle, lambda files: files.update(extra=b"x"))).differences == (
        "extra: not in the manifest",
    )


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda verdicts: verdicts[:1], "verdicts:"),
        (lambda _: {}, "verdicts:"),
        (lambda _: None, "verdicts:"),
        (lambda verdicts: [None, *verdicts[1:]], "verdicts[0].verdict"),
        (
            lambda verdicts: [verdicts[0] | {"verdict": "passed"}, *verdicts[1:]],
            "verdicts[0].verdict",
        ),
        (
            lambda verdicts: [verdicts[0] | {"verdict": ["pass"]}, *verdicts[1:]],
            "verdicts[0].verdict",
        ),
        (
            lambda verdicts: [verdicts[0], verdicts[1] | {"verdict": "\ud800"}],
            "verdicts[1].verdict",
        ),
        (
            lambda verdicts: [verdicts[0], verdicts[1] | {"candidate": {"name": 5}}],
            "verdicts[1].candidate.name",
        ),
        (
            lambda verdicts: [verdicts[0], verdicts[1] | {"candidate": None}],
            "verdicts[1].candidate.name",
        ),
        (lambda verdicts: verdicts[::-1], "verdicts[0].candidate.name"),
        (
            lambda verdicts: [verdicts[0] | {"engine_version": "0.1.0"}, *verdicts[1:]],
            "verdicts[0].engine_version",
        ),
    ],
)
def test_what_another_judge_cannot_have_said_is_a_difference(
    change: Callable[[list[Any]], object], where: str, bundle: Path
) -> None:
    verification = verify(rewritten(bundle, of_judge("0.0.9", change)))
    assert any(line.startswith(where) for line in verification.differences), (
        verification.differences
    )
    assert all(line.isascii() and line.isprintable() for line in verification.differences)
    assert verification.rejudged == ()


@pytest.mark.parametrize(
    "version", ["\ud800", "0.1.0\nidentical: it gives the verdicts", "\x1b[2J", None, 7, ["0.1.0"]]
)
def test_a_version_is_safe_to_print(version: object, bundle: Path) -> None:
    verification = verify(rewritten(bundle, of_judge(version)))
    assert not verification.same_judge
    assert verification.made_by.isascii()
    assert verification.made_by.isprintable()


@pytest.mark.parametrize("verdicts", [None, [], [None, None], "pass", [{}, {}]])
def test_a_broken_verdict_of_this_judge_is_a_difference(verdicts: object, bundle: Path) -> None:
    assert verify(
        rewritten(bundle, lambda files: resealed(files, JUDGE_VERSION, verdicts))
    ).differences


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arms", []),
        ("planned_steps", 1.5),
        ("arms", [{"role": "baseline", "name": "x", "runs": []}]),
    ],
)
def test_a_manifest_that_is_no_case(key: str, value: object, bundle: Path) -> None:
    def tamper(files: dict[str, bytes]) -> None:
        files["manifest.json"] = json.dumps(
            json.loads(files["manifest.json"]) | {key: value}
        ).encode()

    with pytest.raises(EvidenceError, match="does not describe a case"):
        verify(rewritten(bundle, tamper))


def test_a_stored_verdict_keeps_the_judge_that_gave_it(case: Case, tmp_path: Path) -> None:
    """A server makes the bundle long after the verdict, perhaps with a newer judge."""
    stored = [document | {"engine_version": "0.0.9"} for document in case.documents()]
    path = tmp_path / "out.zip"
    path.write_bytes(bundle_bytes(case, stored))
    verification = verify(str(path))
    assert (verification.made_by, verification.differences) == ("0.0.9", ())
