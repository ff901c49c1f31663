"""What a job is found by: its tags, and the branch of the code."""

import os
from pathlib import Path

from parity.cli.git import git
from parity.cli.terminal.shared_options import LabelOptions
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document

# GitHub (pull request, push) and GitLab; Jenkins and others have BRANCH_NAME.
_CI_BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME")


def labels_of(file: str, content: Document, labels: LabelOptions) -> Document:
    """The tags of a job file and of the options, and the branch; empty ones are left out.
    UsageError for tags that are no list of words.
    """
    stated = content.get("tags") or []
    if not isinstance(stated, list) or not all(isinstance(tag, str) for tag in stated):
        raise UsageError(
            f"{file}: `tags:` is {stated!r}; expected a list of words such as tags: [nightly, "
            "llama3]"
        )
    every = list(dict.fromkeys([*stated, *labels.tag]))
    name = _branch(Path(file)) if labels.branch is None else labels.branch
    return ({"tags": every} if every else {}) | ({"branch": name} if name else {})


def _branch(file: Path) -> str:
    """The branch that CI states, else git's where the file is; empty without a branch, as at a
    detached commit.
    """
    for name in _CI_BRANCH_VARIABLES:
        if value := os.environ.get(name):
            return value
    return git(file, "symbolic-ref", "--quiet", "--short", "HEAD").strip()
