"""The commands about one job: submit, watch, cancel, report. `application` maps their errors to exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from parity.cli.jobs import watching
from parity.cli.jobs.files import UNSENDABLE, baseline_of, job_file, with_noise
from parity.cli.jobs.options import JobEndedError, JobId, Quiet, Reuse, Timeout
from parity.cli.jobs.outlook import print_outlook
from parity.cli.record.labels import Branch, Tags, labels_of
from parity.cli.terminal.exits import exit_code
from parity.cli.terminal.help import NOISE, OUTPUT, QUEUE
from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import UsageError, print_json, show, write_file
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client
from parity.judging.early_stops.usable import MAX_NOISE_RUNS
from parity.judging.sign_offs import accepted
from parity.report.html import ConcludedJob, render_page
from parity.wording import count

app = typer.Typer()

AsMarkdown = Annotated[bool, typer.Option("--markdown", rich_help_panel=OUTPUT, help="Print Markdown instead of text.")]


@app.command(epilog="parity submit parity.yaml --watch")
def submit(
    file: Annotated[str, typer.Argument(metavar="parity.yaml", help="Job file with `job:` and `criteria:`.")],
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job and print its verdicts.")] = False,
    quiet: Quiet = False,
    timeout: Timeout = None,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, rich_help_panel=QUEUE, help="Set the priority, -100 to 100; above 0 needs an admin token.")
    ] = 0,
    max_run_seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0, metavar="SECONDS", rich_help_panel=QUEUE, help="Fail a run that trains longer. [default: the server's limit]"
        ),
    ] = None,
    tag: Tags = None,
    branch: Branch = None,
    reuse: Reuse = None,
    noise_runs: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_NOISE_RUNS,
            rich_help_panel=NOISE,
            help="Add reruns to each arm that stop early and measure run noise; 0: none. [default: the job file's `noise:`]",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", rich_help_panel=NOISE, help="Share of the steps after which they stop. [default: the job file's, or 0.5]"
        ),
    ] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> int:
    """Queue a job on the server and print its id and the address of its page.

    First prints on stderr what the job can decide.
    """
    content = with_noise(job_file(file), noise_runs, stop_at)
    order = {"priority": priority, "max_run_seconds": max_run_seconds, "baseline": baseline_of(content, reuse)}
    order |= labels_of(file, content, tag, branch)
    with Client(server, token) as client:
        progress = Console(stderr=True, highlight=False, markup=False, quiet=quiet)
        print_outlook(client, file, content, progress)
        try:
            job = client.submit(content["job"], content["criteria"], order=order)
        except (TypeError, ValueError):
            raise UsageError(f"{file}: {UNSENDABLE}") from None
        if look := job.get("look"):
            shared = f", shared by {count(look['candidates'], 'candidate')}" if look["candidates"] > 1 else ""
            progress.print(f"look {look['number']} of {look['looks']} at this question{shared}")
        if not watch:
            if as_json:
                print_json({"id": job["id"], "url": client.page(job["id"])})
            else:
                print(f"{job['id']} {client.page(job['id'])}")
            return 0
        return _follow(client, job["id"], timeout, quiet=quiet, as_json=as_json, markdown=markdown)


@app.command(epilog="parity watch j0000000000001 --timeout 3600")
def watch(
    job: JobId,
    quiet: Quiet = False,
    timeout: Timeout = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> int:
    """Follow a job to its end and print its verdicts. Ctrl-C stops watching, not the job."""
    with Client(server, token) as client:
        return _follow(client, job, timeout, quiet=quiet, as_json=as_json, markdown=markdown)


@app.command(epilog="parity cancel j0000000000001")
def cancel(job: JobId, server: Server = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> int:
    """Cancel a job; a job that has ended stays as it is."""
    with Client(server, token) as client:
        state = client.cancel(job)["status"]
    if as_json:
        print_json({"id": job, "status": state})
    else:
        print(f"{job} {state}")
    return 0


@app.command(epilog="parity report j0000000000001 --html report.html")
def report(
    job: JobId,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Also write one HTML page with figures to this file.")
    ] = None,
) -> int:
    """Print the verdicts of a job that has ended.

    Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    with Client(server, token) as client:
        document = client.job(job)
        if html and document["verdicts"]:
            figures = {verdict["candidate"]["name"]: client.figure(job, verdict["candidate"]["name"]) for verdict in document["verdicts"]}
            write_file(html, render_page(cast(ConcludedJob, document), figures, client.page(job)).encode())
        return _finish(document, as_json=as_json, markdown=markdown)


def _follow(client: Client, job_id: str, timeout: float | None, *, quiet: bool, as_json: bool, markdown: bool) -> int:
    progress = Console(stderr=True, highlight=False, markup=False, quiet=quiet)
    progress.print(f"following {client.page(job_id)}", soft_wrap=True)
    with _kept_alive(job_id):
        document = watching.follow(client, job_id, progress, timeout)
    return _finish(document, as_json=as_json, markdown=markdown)


@contextmanager
def _kept_alive(job_id: str) -> Iterator[None]:
    """On Ctrl-C, leave the job running and print how to follow or cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        note = f"stopped watching; the job goes on. Follow it: parity watch {job_id}. End it: parity cancel {job_id}"
        raise JobEndedError(note) from None


def _finish(document: Mapping[str, Any], *, as_json: bool, markdown: bool) -> int:
    if document["status"] not in watching.ENDED:
        raise UsageError(
            f"job {document['id']} is {document['status']} and has no verdict yet; `parity watch {document['id']}` waits for it"
        )
    if document["status"] != "concluded":
        why = f": {document['message']}" if document["message"] else ""
        raise JobEndedError(f"job {document['id']} {document['status']} without a verdict{why}")
    if "why" in document.get("links", {}):
        raise UsageError(f"job {document['id']} is an analysis and has no verdict; print it with `parity why {document['id']}`")
    holding = accepted(document["verdicts"], document["criteria"], document.get("sign_offs", ()))
    show(document["verdicts"], as_json=as_json, markdown=markdown, accepted=holding)
    return exit_code(document["verdicts"])
