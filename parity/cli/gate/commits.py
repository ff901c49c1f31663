"""The commits that a gate is about: the training code's, and a pull request's base and head."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from parity.cli.git import git
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document


def job_with_commits(
    file: str, content: Document, options: Mapping[str, str | None], revision: str | None
) -> tuple[Document, str] | None:
    """The job file with full commit ids in place of `revision: base` and `head`, and the revision
    of the gate; None for another engine.

    Raises UsageError where the file needs a commit that neither an option nor the pull request
    names.
    """
    if content["job"].get("engine") != "command":
        for name, value in options.items():
            if value is not None:
                raise UsageError(
                    f"--{name} fills `revision: {name}` of a job with engine: command; leave it out"
                )
        return None
    commits = pull_request_commits() | {
        name: value for name, value in options.items() if value is not None
    }
    if "head" not in commits and (head := git(Path(file), "rev-parse", "HEAD").strip()):
        commits["head"] = head
    job = dict(content["job"])
    arms = [job.get("baseline"), *(job.get("candidates") or [])]
    for arm in arms:
        word = arm.get("revision") if isinstance(arm, dict) else None
        if word in options and word not in commits:
            expected = f"--{word} COMMIT (git rev-parse origin/main)"
            raise UsageError(
                f"{file}: revision is {word}, and no commit is known for it; expected {expected}"
            )
    filled = [
        {**arm, "revision": commits.get(str(arm["revision"]), arm["revision"])}
        if "revision" in (arm or ())
        else arm
        for arm in arms
    ]
    job |= {"baseline": filled[0], "candidates": filled[1:]}
    return {**content, "job": job}, revision or commits.get("head", "")


def foreign_commits(job: Document, options: Mapping[str, str | None]) -> str | None:
    """Which other commits a job with engine command trains than options or the pull request name;
    None where it trains these alone.

    A pull request writes its own job file: with another base, another head, steps between the two
    or both swapped, it would be judged by what it did not change.
    """
    if job.get("engine") != "command":
        return None
    commits = pull_request_commits() | {
        name: value for name, value in options.items() if value is not None
    }
    base, head = commits.get("base"), commits.get("head")
    first, *others = [
        str((arm or {}).get("revision"))
        for arm in (job.get("baseline"), *(job.get("candidates") or []))
    ]
    if head is not None and head not in others:
        return f"no candidate has revision {head}; expected `revision: head`"
    if base is None or head is None or {first, *others} == {head}:
        return None
    strange = [first] if first != base else [arm for arm in others if arm not in (base, head)]
    if not strange:
        return None
    return (
        f"revision is {strange[0]}; expected `revision: base` of the baseline, and base or head of "
        "each candidate"
    )


def pull_request_commits() -> dict[str, str]:
    """The ids of base and head that GitHub's event names; empty elsewhere. `GITHUB_SHA` is a merge
    of the two, on no branch.
    """
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        return {name: str(event["pull_request"][name]["sha"]) for name in ("base", "head")}
    except (KeyError, OSError, ValueError, TypeError):
        return {}


def revision_of(file: Path) -> str:
    """What CI says is checked out, else git's HEAD where the file is, with a digest of what was
    changed since; else nothing.
    """
    if checked_out := os.environ.get("GITHUB_SHA"):
        return checked_out
    head = git(file, "rev-parse", "HEAD").strip()
    changed = git(file, "diff", "HEAD") if head else ""
    return head + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:12]}" if changed else "")
