"""What a job is found by (tags, and the branch of the code), and what people added to it, as the command line states and shows them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from parity.cli.options import Labels
from parity.cli.terminal.output import UsageError
from parity.client.rest import Document
from parity.report.sign_offs import NOT_A_PASS, accepted_words, lapsed_words

# GitHub (pull request, push) and GitLab; Jenkins and others have BRANCH_NAME.
_IN_CI = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME")


def labels_of(file: str, content: Document, labels: Labels) -> Document:
    """The tags of a job file and of the options, and the branch; empty ones are left out. UsageError for tags that are no list of words."""
    stated = content.get("tags") or []
    if not isinstance(stated, list) or not all(isinstance(each, str) for each in stated):
        raise UsageError(f"{file}: `tags:` is {stated!r}; expected a list of words such as tags: [nightly, llama3]")
    every = list(dict.fromkeys([*stated, *labels.tag]))
    name = _branch(Path(file)) if labels.branch is None else labels.branch
    return ({"tags": every} if every else {}) | ({"branch": name} if name else {})


def remark_words(document: Document) -> Iterator[str]:
    """One line each for the tags, the notes and the sign-offs of a job."""
    if tags := document.get("tags"):
        yield f"tags: {', '.join(tags)}"
    for each in document.get("sign_offs", ()):
        yield f"{NOT_A_PASS}: {accepted_words(each)} ({each['id']})" if each["state"] == "valid" else lapsed_words(each)
    for note in document.get("notes", ()):
        yield f"note by {note['who']}, {note['created_at'][:16].replace('T', ' ')} UTC: {' '.join(note['text'].split())}"


def _branch(file: Path) -> str:
    """The branch that CI states, else git's where the file is; empty without a branch, as at a detached commit."""
    for name in _IN_CI:
        if value := os.environ.get(name):
            return value
    return git(file, "symbolic-ref", "--quiet", "--short", "HEAD").strip()


def git(file: Path, *words: str) -> str:
    """What git says where a file is; empty without git, or where it fails."""
    program = shutil.which("git")
    if program is None:
        return ""
    done = subprocess.run([program, *words], cwd=file.resolve().parent, check=False, capture_output=True, text=True, errors="replace")
    return done.stdout if done.returncode == 0 else ""
