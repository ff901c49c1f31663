"""How much of a job file is read, and under which names arms are pushed: at each limit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parity.comparing.policy_file import read_yaml
from parity.comparing.push import job_arm_names
from parity.comparing.statements import InputError


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except InputError:
        return True
    return False


@pytest.mark.parametrize(("size", "refused"), [(262_144, False), (262_145, True)])
def test_a_job_file_has_256_kibibytes(tmp_path: Path, size: int, refused: bool) -> None:
    path = tmp_path / "parity.yaml"
    path.write_bytes(b"a: 1\n#".ljust(size, b"x"))
    assert is_refused(lambda: read_yaml(str(path))) == refused


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_a_job_file_stands_for_50_000_values(tmp_path: Path, more: int, refused: bool) -> None:
    """Ten lists of 4,990 values and themselves, in a list, in a mapping with its name."""
    parts = ", ".join(["&a [" + "1, " * 4990 + "]", *["*a"] * 9])
    path = tmp_path / "parity.yaml"
    path.write_text(f"a: [{parts}{', 1' * (50_000 - 10 * 4991 - 3 + more)}]")
    assert is_refused(lambda: read_yaml(str(path))) == refused


@pytest.mark.parametrize(("size", "refused"), [(1000, False), (1001, True)])
def test_a_number_of_a_job_file_has_1000_characters(
    tmp_path: Path, size: int, refused: bool
) -> None:
    path = tmp_path / "parity.yaml"
    path.write_text(f"a: {'9' * size}")
    assert is_refused(lambda: read_yaml(str(path))) == refused
    path.write_text(f"a: '{'9' * size}'")
    assert not is_refused(lambda: read_yaml(str(path)))


def test_an_arm_is_pushed_under_64_characters_of_its_name() -> None:
    whole, cut = "x" * 64, "x" * 65
    assert job_arm_names([whole, "y" * 65]) == {whole: whole, "y" * 65: "y" * 64}
    assert job_arm_names([whole, cut]) == {whole: whole, cut: "x" * 61 + "-2"}


def test_no_two_arms_are_pushed_under_one_name() -> None:
    arms = ["a_-3", "a?", "a!", *("x" * 64 + str(at) for at in range(62))]
    names = job_arm_names(arms).values()
    assert (len(names), len({*names}), max(map(len, names)) <= 64) == (65, 65, True)
