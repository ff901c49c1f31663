"""The command `status`: the state of a job, or a list of jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.cli.jobs import watching
from parity.cli.record.labels import remark_words
from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import WIDTH, UsageError, print_json, print_rows
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client
from parity.wording import age_in_words, count, did_you_mean, version_words

app = typer.Typer()

SORTS = ("newest", "oldest", "name", "ended", "gap")
FILTERS = "Filters of the list"
JOB_STATES = ("queued", "running", "concluded", "failed", "cancelled")
_STATES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


@app.command(epilog="parity status --status concluded --tag nightly --sort gap")
def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id of a job; without it the newest jobs are listed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="List at most this many jobs.")] = 20,
    state: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help=f"List only jobs in this state: {', '.join(JOB_STATES)}.")
    ] = None,
    verdict: Annotated[
        str | None, typer.Option(metavar="VERDICT", rich_help_panel=FILTERS, help="Only jobs with this verdict on a candidate.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", rich_help_panel=FILTERS, help="Only jobs whose name contains TEXT.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", rich_help_panel=FILTERS, help="Only jobs with this tag; repeatable.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", rich_help_panel=FILTERS, help="Only jobs with a candidate of this recipe.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="TEXT", rich_help_panel=FILTERS, help="Only jobs whose model's name contains TEXT.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="PREFIX", rich_help_panel=FILTERS, help="Only jobs whose revision begins with PREFIX.")
    ] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=FILTERS, help="Only jobs of this branch.")] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", rich_help_panel=FILTERS, help="Only jobs that name this promoted baseline.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", rich_help_panel=FILTERS, help="Only jobs submitted on this day (UTC, 2026-11-23) or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", rich_help_panel=FILTERS, help="Only jobs submitted on this day or earlier.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="ORDER", rich_help_panel=FILTERS, help=f"Order: {', '.join(SORTS)}. [default: newest]")
    ] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Show the state of a job, or list the newest jobs (in a pipe: one per line, tab-separated)."""
    for option, value, known in (("--status", state, JOB_STATES), ("--verdict", verdict, tuple(_STATES)), ("--sort", sort, SORTS)):
        if value is not None and value not in known:
            raise UsageError(f"{option} is {value!r}; expected one of {', '.join(known)}{did_you_mean(value, known)}")
    stated = {
        "status": state,
        "verdict": verdict,
        "name": name,
        "tag": tag,
        "recipe": recipe,
        "model": model,
        "revision": revision,
        "branch": branch,
        "baseline": baseline,
        "since": since,
        "until": until,
        "sort": sort,
    }
    filters = {key: value for key, value in stated.items() if value}
    with Client(server, token) as client:
        if job is None:
            jobs = client.jobs(limit, filters=filters)["items"]
            if as_json:
                print_json(jobs)
            else:
                _list_jobs(jobs, filtered=bool(filters.keys() - {"sort"}))
        elif as_json:
            print_json(client.job(job))
        else:
            _show_job(client.job(job))
    return 0


def _show_job(document: Mapping[str, Any]) -> None:
    """State, progress per arm, overrides, reused runs, and the ids of runs that the user trains."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    reason = document["message"] or document["waiting"] or f"{document['share_done']:.0%} of the steps are done"
    console.print(f"{document['id']} {document['name']}: {document['status']}. {reason}", soft_wrap=True)
    console.print(watching.table(document, {}))
    for arm in document["arms"]:
        for rule in arm.get("overrides", ()):
            console.print(f"{arm['name']}: {rule}", soft_wrap=True)
    for line in (*reused_words(document), *remark_words(document)):
        console.print(line, soft_wrap=True)
    if document["engine"] == "external":
        _list_runs(document)


def _list_runs(document: Mapping[str, Any]) -> None:
    """The runs that a user's own scripts train: each with its id (for PARITY_RUN) and its number of steps."""
    rows = [
        (
            run["id"],
            arm["name"],
            f"{run['replicate']}{', stops early' if run['kind'] == 'noise' else ''}",
            f"{run['planned_steps']:,}",
            run["state"].replace("_", " "),
            run["message"] or "",
        )
        for arm in document["arms"]
        for run in (*arm["runs"], *arm["noise_runs"])
    ]
    print_rows(("run", "arm", "replicate", "steps", "state", "why"), rows)


def reused_words(document: Mapping[str, Any]) -> list[str]:
    """One line for the named baseline of a job, and one per run whose curve was reused."""
    lines = []
    if named := document["baseline"]:
        lines.append(f"against baseline {version_words(named)}, {count(named['controls'], 'control')}")
    for arm in document["arms"]:
        for run in arm["runs"]:
            if reused := run["reused"]:
                age = "" if reused["age_seconds"] is None else f", trained {age_in_words(reused['age_seconds'])} ago"
                lines.append(f"{arm['name']} replicate {run['replicate']} is reused: run {reused['run']} of job {reused['job']}{age}")
    return lines


def _list_jobs(jobs: Sequence[Mapping[str, Any]], *, filtered: bool) -> None:
    if not jobs:
        print("no jobs match" if filtered else "no job yet; submit one with `parity submit parity.yaml`", file=sys.stderr)
        return
    rows = []
    for job in jobs:
        verdicts = ", ".join(f"{verdict['candidate']} {_STATES[verdict['verdict']]}" for verdict in job["verdicts"])
        state = f"{job['status']} {job['share_done']:.0%}" if job["status"] == "running" else job["status"]
        rows.append((job["id"], job["name"], state, verdicts, " ".join(job.get("tags", ()))))
    print_rows(("job", "name", "status", "verdicts", "tags"), rows)
