"""`parity search`: the fastest policy inside the margin, by a search on the server; prints its cost first and follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import typer
import yaml
from rich.console import Console

from parity.cli.connection import Asked
from parity.cli.jobs import watching
from parity.cli.jobs.files import job_file
from parity.cli.jobs.watching import JobEndedError
from parity.cli.options import Follow, argument, flag, flat, option
from parity.cli.terminal.exits import EXIT_CODES
from parity.cli.terminal.help import OUTPUT
from parity.cli.terminal.output import UsageError, write_file
from parity.cli.terminal.plans import check_agreed, print_plan
from parity.client.lab import LabClient
from parity.client.rest import Document
from parity.comparing.policy import read_yaml
from parity.search.words import answer_lines, plan_lines, step_line
from parity.wording import did_you_mean

app = typer.Typer()

_JOB_ID = re.compile(r"j[0-9a-f]{12}-[0-9a-f]{10}")
KEYS = ("base", "candidate", "switches", "step", "fork_steps", "speed", "pairs", "pilots", "confirmations", "budget")


@app.command("search", epilog="parity search parity.yaml --plan")
@flat
def search(
    what: Annotated[str, argument("parity.yaml|SEARCH", "Job file with `search:`, or the id of a search.")],
    plan_only: bool = flag("--plan", "Print the plan with its cost and stop.", rich_help_panel=OUTPUT),
    yes: bool = option(False, "Do not ask before the search begins.", None, "--yes", "-y"),
    cancel: bool = flag("--cancel", "Cancel a search; what it has measured stays."),
    resume: bool = flag("--resume", "Let a cancelled or failed search go on."),
    output: str | None = option(None, "Write the confirmed policy as a job file.", "FILE", rich_help_panel=OUTPUT),
    *,
    following: Follow,
    at: Asked,
) -> int:
    """Search the fastest policy inside the margin: which GEMMs can stay in the candidate's recipe.

    Prints cost and guarantee first, begins the search and follows it. Exits 0 with a policy that the judge confirmed, 3 without one.
    """
    progress, timeout = following.progress(), following.timeout
    with LabClient(at.server, at.token) as client:
        if _is_id(what):
            if cancel:
                document = client.cancel_search(what)
                return at.show(document, [f"{what} {document['state']}"])
            own = (client.resume_search(what) if resume else client.find_search(what))["id"]
        else:
            if cancel or resume:
                raise UsageError(f"{what!r} is a file, expected the id of a search with --cancel and --resume")
            wish = _wish(what)
            base = wish.pop("base", None) or _train_base(client, what, progress, timeout, yes=yes, plan_only=plan_only)
            plan = client.plan_search(base, wish)
            print_plan(plan, plan_lines(plan), progress, plan_only=plan_only, as_json=at.as_json)
            if plan_only:
                return 0
            check_agreed("begin the search, or --plan to see its cost alone", yes=yes)
            own = client.search(base, wish)["id"]
        progress.print(f"following {client.url}/searches/{own}; stop watching with Ctrl-C, it goes on", soft_wrap=True)
        document = _follow(client, own, progress, timeout)
    return _finish(document, output, at)


def _is_id(text: str) -> bool:
    return text.startswith("s") and "." not in text and "/" not in text and "-" in text


def _wish(path: str) -> Document:
    """The `search:` of a file; the server checks its values."""
    if _JOB_ID.fullmatch(path):
        raise UsageError(f"{path} is a job, expected a job file or the id of a search; write search: {{base: {path}}} into a job file")
    content = read_yaml(path)
    own = content.get("search") if isinstance(content, dict) else None
    if not isinstance(own, dict):
        raise UsageError(f"{path}: `search:` is missing or has no keys below it; expected at least search: {{base: JOB}}")
    unknown = next((str(key) for key in own if key not in KEYS), None)
    if unknown is not None:
        raise UsageError(f"{path}: unknown key search.{unknown}; expected one of {', '.join(KEYS)}{did_you_mean(unknown, KEYS)}")
    return dict(own)


def _train_base(client: LabClient, path: str, progress: Console, timeout: float | None, *, yes: bool, plan_only: bool) -> str:
    """Train the file's job, from which the search then starts; its id."""
    content = job_file(path)
    if not content["job"].get("keep_checkpoints"):
        steps = (content["job"].get("schedule") or {}).get("steps", 1500)
        raise UsageError(f"{path}: job.keep_checkpoints is missing, expected a step to fork from, such as keep_checkpoints: [{steps // 2}]")
    if plan_only:
        raise UsageError(f"{path}: search.base is missing, so the job is trained first; its search can be planned when it has ended")
    check_agreed("train the job first, or set search.base to one that has ended", yes=yes)
    job = client.submit(content["job"], content["criteria"])["id"]
    progress.print(f"search.base is missing: training job {job} first, {client.page(job)}", soft_wrap=True)
    document = watching.follow(client, job, progress, timeout)
    if document["status"] != "concluded":
        raise JobEndedError(f"job {job} {document['status']}, so there is nothing to search from: {document['message'] or ''}")
    progress.print(f"set search.base: {job} to search from it again", soft_wrap=True)
    return str(job)


def _follow(client: LabClient, search_id: str, console: Console, timeout: float | None) -> Document:
    def fetch() -> Document:
        document = client.find_search(search_id)
        return document | {"status": "running" if document["state"] == "running" else "concluded"}

    shown: set[str] = set()

    def lines(document: Document, is_due: bool) -> Iterator[str]:
        """Each step when it has an outcome; from time to time also those that have none yet, and the first of them at once."""
        is_due = is_due and bool(shown)
        for step in document["steps"]:
            line = step_line(step)
            if line not in shown and (step["outcome"] or is_due or not shown):
                shown.add(line)
                yield line

    again = f"parity search {search_id}"
    try:
        return watching.follow_to_end(fetch, search_id, lines, console, timeout, kind="search", watch=again, end=f"{again} --cancel")
    except watching.WatchTimeoutError:
        raise watching.WatchTimeoutError(f"search {search_id} did not end within {timeout:g} s and goes on; follow it: {again}") from None


def _finish(document: Document, output: str | None, at: Asked) -> int:
    if document["state"] in {"failed", "cancelled"}:
        remedy = f"go on with `parity search {document['id']} --resume`"
        raise JobEndedError(f"search {document['id']} {document['state']}: {document['message']}; {remedy}")
    if output is not None and document["job"] is not None:
        content = {"job": document["job"], "criteria": {key: value for key, value in document["criteria"].items() if value is not None}}
        write_file(output, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    at.show({name: value for name, value in document.items() if name != "status"}, answer_lines(document))
    return 0 if document["state"] == "found" else EXIT_CODES["inconclusive"]
