"""The revision of a gate is what is checked out."""

import shutil
import subprocess

import pytest

from parity.cli.gate.commits import revision_of


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_is_what_is_checked_out(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    file = tmp_path / "parity.yaml"
    file.write_text("job: {}\n")
    assert revision_of(file) == ""

    def git(*words):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert revision_of(file) == head
    file.write_text("job: {seed: 1}\n")
    changed = revision_of(file)
    assert changed.startswith(f"{head}+")
    file.write_text("job: {seed: 2}\n")
    assert revision_of(file) not in (head, changed)
    monkeypatch.setenv("GITHUB_SHA", "abc")
    assert revision_of(file) == "abc"
