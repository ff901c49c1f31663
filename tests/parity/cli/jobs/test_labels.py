"""What a job is found by: the tags of its file and of options, and how a branch is found."""

import subprocess
from pathlib import Path

import pytest

from parity.cli.jobs import labels
from parity.cli.jobs.labels import labels_of
from parity.cli.terminal.shared_options import LabelOptions
from parity.cli.terminal.wrong_calls import UsageError


def test_tags_of_the_file_and_the_options_add_up() -> None:
    assert labels_of("f", {"tags": ["a", "b"]}, LabelOptions(tag=["b", "c"], branch="main")) == {
        "tags": ["a", "b", "c"],
        "branch": "main",
    }
    assert labels_of("f", {}, LabelOptions(branch="")) == {}
    for wrong in ("nightly", [1], {"a": 1}):
        with pytest.raises(UsageError, match="expected a list of words"):
            labels_of("f", {"tags": wrong}, LabelOptions(branch="main"))


def test_the_branch_is_that_of_ci_else_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in labels._CI_BRANCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "parity.yaml"
    assert labels_of(str(file), {}, LabelOptions()) == {}
    subprocess.run(["git", "init", "-q", "-b", "trunk", str(tmp_path)], check=True)
    assert labels_of(str(file), {}, LabelOptions()) == {"branch": "trunk"}
    monkeypatch.setenv("GITHUB_REF_NAME", "7/merge")
    monkeypatch.setenv("GITHUB_HEAD_REF", "my-change")
    assert labels_of(str(file), {}, LabelOptions()) == {"branch": "my-change"}
    assert labels_of(str(file), {}, LabelOptions(branch="stated")) == {"branch": "stated"}
