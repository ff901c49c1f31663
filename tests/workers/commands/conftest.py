"""A git repository with a trainer, and a file of launchers that starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = (Path(__file__).parent / "loop.py").read_text(encoding="utf-8")
_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_AUTHOR = {f"GIT_{who}_{what}": "someone@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Repository:
    """A repository of the tests; `commit` writes files on a branch and gives the id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        environment = {**os.environ, **_ENVIRONMENT, **_AUTHOR}
        return subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, files: dict[str, str], branch: str = "main", start: str | None = None) -> str:
        """Commit files on a branch, which begins at `start` where it is new."""
        if start is not None:
            self.git("checkout", "--quiet", "-b", branch, start)
        elif self.git("branch", "--list", branch):
            self.git("checkout", "--quiet", branch)
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "model")


@pytest.fixture
def base(repository):
    """The first commit, with the trainer in it."""
    return repository.commit({"train/loop.py": LOOP, "README.md": "a model"})


@pytest.fixture
def write_launchers(tmp_path, repository):
    """A function that writes the file of launchers; `changes` replaces keys of the launcher (values in TOML), `more` adds tables."""

    def write(more: str = "", **changes: str) -> Path:
        command = ["train/loop.py", "--steps={steps}", "--seed={seed}", "--out={output}", "--width={width}"]
        keys = {
            "repository": f'"{repository.path}"',
            "paths": '["train"]',
            "command": str([sys.executable, *command]),
            "recipes": '{bf16 = [], nvfp4 = ["--recipe=nvfp4"]}',
            "parameters": '{width = {type = "int", min = 2, max = 64, default = 16}}',
            "reports": '{path = "metrics.jsonl"}',
            "pinned": '"numpy of the tests"',
        } | changes
        path = tmp_path / "launchers.toml"
        path.write_text("[launcher.loop]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()) + more, encoding="utf-8")
        return path

    return write
