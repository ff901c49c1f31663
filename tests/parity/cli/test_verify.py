"""`parity verify`: a bundle gives the verdict that it states, or one line that says what is
wrong.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.version import JUDGE_VERSION

Run = Callable[..., tuple[int, str, str]]


def test_bundle_verify_and_junit(tmp_path: Path, files: dict[str, str], run: Run) -> None:
    bundle, junit = str(tmp_path / "out.zip"), tmp_path / "out.xml"
    assert (
        run(
            "compare",
            files["fp8"],
            files["nvfp4"],
            "--planned-steps",
            "1500",
            "--bundle",
            bundle,
            "--junit",
            str(junit),
        )[0]
        == 1
    )
    assert "<failure" in junit.read_text()
    code, out, _ = run("verify", bundle)
    assert (code, out.startswith("identical")) == (0, True)
    Path(bundle).write_bytes(b"nothing")
    code, out, err = run("verify", bundle)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert run("compare", files["fp8"], files["nvfp4"], "--bundle", "/nowhere/out.zip")[0] == 2


@pytest.fixture
def of_judge(tmp_path: Path, files: dict[str, str], run: Run) -> Callable[[object], str]:
    """A bundle whose manifest names another version of the judge."""

    def made(version: object) -> str:
        bundle = tmp_path / "out.zip"
        run(
            "compare",
            files["fp8"],
            files["nvfp4"],
            "--planned-steps",
            "1500",
            "--bundle",
            str(bundle),
        )
        with zipfile.ZipFile(bundle) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        verdicts = [
            document | {"engine_version": version}
            for document in json.loads(members["verdict.json"])["verdicts"]
        ]
        members["verdict.json"] = json.dumps({"verdicts": verdicts}).encode()
        manifest = json.loads(members["manifest.json"]) | {"engine_version": version}
        manifest["sha256"]["verdict.json"] = hashlib.sha256(members["verdict.json"]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()
        with zipfile.ZipFile(bundle, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return str(bundle)

    return made


@pytest.mark.parametrize("version", ["0.0.9", "99"])
def test_a_bundle_of_another_judge_has_an_exit_code_of_its_own(
    version: object, of_judge: Callable[[object], str], run: Run
) -> None:
    code, out, err = run("verify", of_judge(version))
    assert (code, err) == (6, "")
    assert f"made by judge {version}" in out
    assert f"this is judge {JUDGE_VERSION}" in out
    assert "recorded as fail, today fail (GAP_EXCEEDS_MARGIN" in out


def test_a_bundle_made_before_verifies(data: Path, run: Run) -> None:
    code, out, _ = run("verify", str(data / f"judge-{JUDGE_VERSION}.zip"))
    assert (code, out.startswith("identical")) == (0, True)


def test_a_bundle_of_the_first_judge_verifies_as_its_own(data: Path, run: Run) -> None:
    code, out, err = run("verify", str(data / "judge-0.1.0.zip"))
    assert (code, err) == (6, "")
    assert "made by judge 0.1.0" in out
    assert "recorded as pass, today " in out


def test_a_recipe_that_only_an_earlier_judge_accepted_still_verifies(
    data: Path, tmp_path: Path, run: Run
) -> None:
    """Judge 0.1.0 took any word for a recipe; its bundle is judged as with a recipe of one's
    own.
    """
    bundle = tmp_path / "old.zip"
    with (
        zipfile.ZipFile(data / "judge-0.1.0.zip") as archive,
        zipfile.ZipFile(bundle, "w") as changed,
    ):
        for name in archive.namelist():
            member = archive.read(name)
            if name == "manifest.json":
                manifest = json.loads(member)
                for arm in manifest["arms"]:
                    for entry in arm["runs"]:
                        entry["recipe"], entry["rounding"] = "te_fp4", None
                member = json.dumps(manifest).encode()
            changed.writestr(name, member)
    code, out, err = run("verify", str(bundle))
    assert (code, err) == (6, "")
    assert "recorded as pass, today " in out
