"""What the GitHub Action tells GitHub: a check run and one comment on the pull request. Python's
standard library only.

    python3 ci/github.py start              # a check run in progress; its id goes to $GITHUB_OUTPUT
    python3 ci/github.py finish FOLDER      # completes it from FOLDER/gate.json and puts
      FOLDER/gate.md under the pull request

gate.json is the report of `parity gate`, or of `parity golden check`.

A token that may only read (a pull request from a fork) is no error: the step's summary, which
`parity gate` wrote, has everything. Environment: GH_TOKEN, PARITY_GATE_NAME, PARITY_GATE_CODE and
PARITY_GATE_CHECK (finish), and what GitHub sets for every step.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SUMMARY_CHARACTERS = 65_000
COMMENT_CHARACTERS = 65_536
_PAGES, _PER_PAGE = 30, 100
# What differs between two gates that say the same: ages, and the sentences that hold them.
_AGES = ("age_seconds", "origin", "reused")
_SECONDS = 30


class GitHub:
    """The few REST calls that are needed, on the repository that the workflow runs for."""

    def __init__(self) -> None:
        self.api = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        self.repository = f"/repos/{os.environ['GITHUB_REPOSITORY']}"
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ.get('GH_TOKEN', '')}",
            "X-GitHub-Api-Version": "2022-11-28",
            "Content-Type": "application/json",
        }

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer as JSON; raises OSError (HTTPError is one) where GitHub refuses or is away."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data, self._headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            return json.load(answer)


def start(github: GitHub) -> None:
    """Show the check as in progress."""
    body = {
        "name": os.environ["PARITY_GATE_NAME"],
        "head_sha": head_sha(event()),
        "status": "in_progress",
    }
    made = attempted(
        "the check run", lambda: github.call("POST", f"{github.repository}/check-runs", body)
    )
    if made:
        with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as outputs:
            outputs.write(f"check={made['id']}\n")


def finish(github: GitHub, folder: Path) -> None:
    """Complete the check and put the comment there, or the new text into the one that is there."""
    report = folder / "gate.json"
    gate = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    comment = folder / "gate.md"
    text = (
        comment.read_text(encoding="utf-8")
        if comment.exists()
        else "The gate ended without a report; the log of its step says why.\n"
    )
    if check := os.environ.get("PARITY_GATE_CHECK"):
        body = check_body(gate, os.environ.get("PARITY_GATE_CODE", ""), text)
        attempted(
            "the check run",
            lambda: github.call("PATCH", f"{github.repository}/check-runs/{int(check)}", body),
        )
    number = event().get("pull_request", {}).get("number")
    if number and gate and os.environ.get("PARITY_GATE_COMMENT") != "false":
        attempted(
            "the comment",
            lambda: put_comment(github, number, os.environ["PARITY_GATE_NAME"], gate, text),
        )


def check_body(gate: dict[str, Any] | None, code: str, text: str) -> dict[str, Any]:
    """How the check ends: neutral where CI goes on without a pass, cancelled where the gate was
    ended before it could leave a code.
    """
    if gate is None:
        conclusion, title = ("failure" if code else "cancelled"), "no report"
    else:
        if gate["exit_code"]:
            conclusion = "timed_out" if gate.get("result") == "timeout" else "failure"
        else:  # a golden's check leaves with 0 only where nobody is needed
            passes = gate.get("result") == "pass" or "answer" in gate
            conclusion = "success" if passes else "neutral"
        title = gate["headline"][:250]
    body = {
        "status": "completed",
        "conclusion": conclusion,
        "output": {"title": title, "summary": fitting(text, SUMMARY_CHARACTERS)},
    }
    return body | ({"details_url": gate["url"]} if gate and gate.get("url") else {})


def put_comment(github: GitHub, number: int, name: str, gate: dict[str, Any], text: str) -> Any:
    """One comment a gate and pull request, found again by a mark that a reader does not see; left
    alone where only ages have changed.
    """
    mark, digest_mark = (
        f"<!-- parity gate: {name.replace('--', '-')} -->",
        f"<!-- {digest(gate)} -->",
    )
    body = {"body": fitting(f"{mark}{digest_mark}\n{text}", COMMENT_CHARACTERS)}
    comments = f"{github.repository}/issues/{number}/comments"
    mine = author(github)
    for page in range(1, _PAGES + 1):
        on_page = github.call("GET", f"{comments}?per_page={_PER_PAGE}&page={page}")
        for comment in on_page:
            # Anybody can write the mark; another person's comment is never written into.
            own = comment["user"]["login"] == mine if mine else comment["user"]["type"] == "Bot"
            if own and comment["body"].startswith(mark):
                if comment["body"].startswith(mark + digest_mark):
                    return comment
                return github.call(
                    "PATCH", f"{github.repository}/issues/comments/{comment['id']}", body
                )
        if len(on_page) < _PER_PAGE:
            break
    return github.call("POST", comments, body)


def digest(gate: dict[str, Any]) -> str:
    """What a gate says, in short: equal for two that differ in ages alone."""
    content = {key: value for key, value in gate.items() if key not in _AGES}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def author(github: GitHub) -> str | None:
    """Whose token this is; None for the token of a workflow or an app, which can't ask."""
    try:
        return str(github.call("GET", "/user")["login"])
    except urllib.error.HTTPError:
        return None


def fitting(text: str, characters: int) -> str:
    """The text, or a sentence in its place where it is too long: `parity gate` keeps it shorter by
    whole sections.
    """
    if len(text) <= characters:
        return text
    return (
        text.splitlines()[0]
        + "\n\nThe report is too long for this place; the summary of the step has it.\n"
    )


def event() -> dict[str, Any]:
    """What set the workflow off."""
    path = os.environ.get("GITHUB_EVENT_PATH")
    payload: dict[str, Any] = (
        json.loads(Path(path).read_text(encoding="utf-8")) if path and Path(path).exists() else {}
    )
    return payload


def head_sha(payload: dict[str, Any]) -> str:
    """The commit that a check belongs to: of a pull request its own head, which is not the merge
    that is checked out.
    """
    return str(
        payload.get("pull_request", {}).get("head", {}).get("sha") or os.environ["GITHUB_SHA"]
    )


def attempted(what: str, act: Any) -> Any:
    """What `act` returns; where GitHub refuses, a note in the log and None. The gate's own exit
    code is what counts.
    """
    try:
        return act()
    except urllib.error.HTTPError as error:
        print(
            f"::notice::parity: {what} was not written: GitHub answered {error.code}; the step's "
            "summary has the report"
        )
    except OSError as error:
        print(
            f"::notice::parity: {what} was not written: {error}; the step's summary has the report"
        )
    return None


if __name__ == "__main__":
    if sys.argv[1:] == ["start"]:
        start(GitHub())
    elif len(sys.argv) == 3 and sys.argv[1] == "finish":
        finish(GitHub(), Path(sys.argv[2]))
    else:
        sys.exit(f"usage: {sys.argv[0]} start | finish FOLDER")
