"""What a launcher, a commit, a report and a scheduler may be as large as: each limit at its value,
and one beyond it.
"""

import os
from collections.abc import Callable

import pytest

from workers.commands import checkout, follow, schedulers, script
from workers.commands.checkout import CheckoutError, CommitTree, File
from workers.commands.follow import LogRefusedError, ReportFollower
from workers.commands.launchers import LauncherError, Parameter, read_launchers


@pytest.fixture
def folder(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def is_refused(error: type[Exception], call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
    except error:
        return True
    return False


@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize(("value", "refused"), [(0, True), (1, False), (128, False), (129, True)])
def test_a_parameter_is_within_its_range(kind, value, refused):
    parameter = Parameter(type=kind, min=1, max=128)
    assert is_refused(LauncherError, parameter.checked, "layers", value) == refused


@pytest.mark.parametrize(("size", "refused"), [(4096, False), (4097, True)])
def test_an_argument_has_4096_characters(write_launchers, size, refused):
    path = write_launchers(command=f'["python", "{"x" * size}"]')
    assert is_refused(LauncherError, read_launchers, path) == refused


@pytest.mark.parametrize(("number", "refused"), [(2, False), (1, True)])
def test_a_commit_has_as_many_files_as_may_be(
    repository, base, write_launchers, tmp_path, monkeypatch, number, refused
):
    """With a limit of one or two."""
    assert (base, checkout._MOST_FILES) == (base, 200_000)
    commit = repository.commit({"train/one.py": "1"})
    files = len(repository.git("ls-tree", "-r", "--name-only", commit, "train").split())
    monkeypatch.setattr(checkout, "_MOST_FILES", files - 2 + number)
    launcher = read_launchers(write_launchers())["loop"]
    mirrors = tmp_path / "mirrors"
    assert is_refused(CheckoutError, checkout.find, launcher, commit, mirrors) == refused


@pytest.mark.parametrize(("most", "refused"), [(8, False), (7, True)])
def test_its_files_have_as_many_bytes_as_may_be(
    repository, write_launchers, tmp_path, monkeypatch, most, refused
):
    """Two files of four bytes."""
    assert checkout._MOST_BYTES == 4 * 2**30
    monkeypatch.setattr(checkout, "_MOST_BYTES", most)
    commit = repository.commit({"train/one.py": "1234", "train/two.py": "5678"})
    launcher = read_launchers(write_launchers())["loop"]
    mirror, tree = checkout.find(launcher, commit, tmp_path / "mirrors")
    two: tuple[File, ...] = tuple(
        file for file in tree.files if file.path in ("train/one.py", "train/two.py")
    )
    written = (launcher, mirror, CommitTree(files=two), tmp_path)
    assert is_refused(CheckoutError, checkout.write, *written) == refused


@pytest.mark.parametrize(("size", "refused"), [(2**20, False), (2**20 + 1, True)])
def test_a_line_of_a_report_has_a_mebibyte(folder, tmp_path, size, refused):
    (tmp_path / "log.jsonl").write_text("x" * size)
    follower = ReportFollower(folder, "log.jsonl")
    assert is_refused(LogRefusedError, follower.poll) == refused


@pytest.mark.parametrize(("most", "refused"), [(60, False), (59, True)])
def test_a_report_has_as_many_bytes_as_may_be(folder, tmp_path, monkeypatch, most, refused):
    assert follow._MOST_BYTES == 4 * 2**30
    monkeypatch.setattr(follow, "_MOST_BYTES", most)
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n'.rjust(30) * 2)
    follower = ReportFollower(folder, "log.jsonl")
    assert is_refused(LogRefusedError, follower.poll) == refused


def test_500_characters_of_what_a_scheduler_says_are_told():
    said = [schedulers.sentence("x" * size) for size in (500, 501)]
    assert said == ["x" * 500] * 2


@pytest.mark.parametrize(("size", "word"), [(200, "ended"), (201, None)])
def test_a_note_of_a_job_has_200_bytes(folder, tmp_path, size, word):
    (tmp_path / "ended.0").write_text("ended 12".ljust(size - 1) + "\n")
    end = script._status_file(folder, "ended.0")
    assert (end and end.word) == word
