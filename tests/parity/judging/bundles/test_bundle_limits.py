"""The limits of an evidence bundle, each at its value: read there, refused beyond it."""

import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.judging.bundles import strict_json, zip_members
from parity.judging.bundles.columns import unpack_array
from parity.judging.bundles.manifest import ManifestArms
from parity.judging.bundles.strict_json import JsonError, parse_json
from parity.judging.bundles.zip_members import ArchiveError, read_members
from parity.typed_json import ManifestError


def is_refused(read: Callable[[], object], *errors: type[Exception]) -> bool:
    try:
        read()
    except errors:
        return True
    return False


def _archive(tmp_path: Path, *names: str) -> Path:
    path = tmp_path / "case.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"{}")
    return path


@pytest.mark.parametrize(
    ("number", "refused"),
    [("9223372036854775808", False), ("9223372036854775809", True)],
)
def test_a_whole_number_is_at_most_2_to_the_63(number: str, refused: bool) -> None:
    assert strict_json.MAX_INTEGER == 2**63
    for text in (number, f"-{number}"):
        assert is_refused(partial(parse_json, text.encode()), JsonError) == refused


@pytest.mark.parametrize(("number", "refused"), [(10, False), (11, True)])
def test_an_archive_has_ten_thousand_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, refused: bool
) -> None:
    assert zip_members.MAX_MEMBERS == 10_000
    monkeypatch.setattr(zip_members, "MAX_MEMBERS", 10)
    path = _archive(tmp_path, *(f"{at}.json" for at in range(number)))
    assert is_refused(lambda: read_members(path), ArchiveError) == refused


@pytest.mark.parametrize(("less", "refused"), [(0, False), (1, True)])
def test_its_directory_has_four_mebibytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, less: int, refused: bool
) -> None:
    """An entry of the directory has 46 bytes and its name."""
    assert zip_members.MAX_DIRECTORY_BYTES == 4 * 2**20
    monkeypatch.setattr(zip_members, "MAX_DIRECTORY_BYTES", 5 * (46 + len("0.json")) - less)
    path = _archive(tmp_path, *(f"{at}.json" for at in range(5)))
    assert is_refused(lambda: read_members(path), ArchiveError) == refused


def _is_refused_directory(infos: list[zipfile.ZipInfo], file_bytes: int) -> bool:
    return is_refused(lambda: zip_members._check_directory(infos, file_bytes), ArchiveError)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("manifest.json", 4), ("verdict.json", 16), ("series/000-000-00.npy", 2048)],
)
def test_a_member_has_the_bytes_of_its_kind(name: str, mebibytes: int, more: int) -> None:
    info = zipfile.ZipInfo(name)
    info.file_size = mebibytes * 2**20 + more
    assert _is_refused_directory([info], 2**30) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_all_members_have_two_gibibytes_together(more: int) -> None:
    infos = [zipfile.ZipInfo(f"series/{at}.npy") for at in range(2)]
    for info in infos:
        info.file_size = 2**30
    infos[0].file_size += more
    assert _is_refused_directory(infos, 2**30) == bool(more)


@pytest.mark.parametrize(
    ("mebibytes", "more", "ratio", "refused"),
    [(64, 0, 51, False), (64, 1, 51, True), (100, 0, 50, False), (100, 1, 50, True)],
)
def test_more_than_64_mebibytes_inflate_50_fold_at_most(
    mebibytes: int, more: int, ratio: int, refused: bool
) -> None:
    info = zipfile.ZipInfo("series/000-000-00.npy")
    info.file_size = mebibytes * 2**20 + more
    file_bytes = mebibytes * 2**20 // ratio
    assert _is_refused_directory([info], file_bytes) == refused


@pytest.mark.parametrize(("size", "refused"), [(80, False), (81, True)])
def test_a_name_has_80_characters_in_each_part(tmp_path: Path, size: int, refused: bool) -> None:
    for name in ("x" * size, f"{'x' * size}/a", f"a/{'x' * size}"):
        path = _archive(tmp_path, name)
        assert is_refused(partial(read_members, path), ArchiveError) == refused


@pytest.mark.parametrize(("size", "refused"), [(1024, False), (1025, True)])
def test_a_header_of_an_array_has_1024_bytes(size: int, refused: bool) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
    text = header.ljust(size - 1) + b"\n"
    data = io.BytesIO()
    data.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    data.write(np.ones(1).tobytes())
    assert is_refused(lambda: unpack_array(data.getvalue(), "a.npy"), ValueError) == refused


def _arm(role: str, runs: int, name: str = "") -> dict[str, Any]:
    return {"role": role, "name": name, "runs": [{}] * runs}


def _check(*arms: dict[str, Any]) -> None:
    ManifestArms._check_size(json.loads(json.dumps(arms)))


@pytest.mark.parametrize(("runs", "refused"), [(256, False), (257, True)])
def test_a_case_has_256_runs_and_short_reruns_besides(runs: int, refused: bool) -> None:
    arms = [_arm("baseline", 1), _arm("candidate", runs - 1), _arm("short_rerun", 16)]
    assert is_refused(lambda: _check(*arms), ManifestError) == refused


@pytest.mark.parametrize(("number", "refused"), [(64, False), (65, True)])
def test_a_case_has_64_candidates_a_baseline_controls_and_shorter_runs(
    number: int, refused: bool
) -> None:
    others = [_arm(role, 1) for role in ("baseline", "control", "shorter")]
    arms = [*others, *(_arm("candidate", 1) for _ in range(number))]
    assert is_refused(lambda: _check(*arms), ManifestError) == refused


@pytest.mark.parametrize(("number", "refused"), [(67, False), (68, True)])
def test_each_of_67_arms_may_have_short_reruns(number: int, refused: bool) -> None:
    judged = [_arm("baseline", 1), *(_arm("candidate", 1) for _ in range(66))]
    arms = [*judged, *(_arm("short_rerun", 1) for _ in range(number))]
    assert is_refused(lambda: _check(*arms), ManifestError) == refused


@pytest.mark.parametrize("role", ["short_rerun", "noise"])
@pytest.mark.parametrize(("runs", "refused"), [(16, False), (17, True)])
def test_an_arm_has_16_short_reruns(role: str, runs: int, refused: bool) -> None:
    arms = [_arm("baseline", 1), _arm(role, runs)]
    assert is_refused(lambda: _check(*arms), ManifestError) == refused
