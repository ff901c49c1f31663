"""The verbs that talk to a server: submit, watch, status, cancel, report. `main` maps their errors to exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from parity.cli import watching
from parity.cli.exits import EXIT_CODES, exit_code
from parity.cli.gate_report import age_in_words
from parity.cli.inputs import read_yaml
from parity.cli.output import WIDTH, UsageError, show, write_file
from parity.client.rest import DEFAULT_URL, Client
from parity.report.html import ConcludedJob, render_page
from parity.wording import count

app = typer.Typer()

_STATES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}

Server = Annotated[str, typer.Option(envvar="PARITY_URL", help="Address of the server.")]
Token = Annotated[str | None, typer.Option(envvar="PARITY_TOKEN", help="Bearer token, where the server asks for one.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as `submit` and `status` print it.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, help="Seconds to wait for the end of the job; then exit code 5. Default: as long as it takes.")
]
Reuse = Annotated[
    bool | None,
    typer.Option("--reuse/--no-reuse", help="Take a baseline's curve from an equal run that was trained before. Default: the file's, yes."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print canonical JSON instead of text.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of text.")]


class JobEndedError(Exception):
    """The job ended without a verdict; the message says how and why."""


@app.command()
def submit(
    file: Annotated[str, typer.Argument(metavar="parity.yaml", help="Job file with `job:` and `criteria:`.")],
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job and print its verdicts. Default: print its id and leave.")] = False,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="The higher first; above 0 takes an admin's token. Default: 0.")] = 0,
    max_run_seconds: Annotated[
        float | None, typer.Option(min=1.0, help="Fail a run that trains for longer, in seconds. Default: what the operator allows.")
    ] = None,
    reuse: Reuse = None,
    timeout: Timeout = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> int:
    """Queue a job on the server; prints its id and its page."""
    content = job_file(file)
    order = {"priority": priority, "max_run_seconds": max_run_seconds, "baseline": baseline_of(content, reuse)}
    with Client(server, token) as client:
        try:
            job = client.submit(content["job"], content["criteria"], order=order)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{file}: holds a value that a job can't have ({error}); write dates as quoted text, numbers finite") from None
        if not watch:
            print(f"{job['id']} {client.page(job['id'])}")
            return 0
        return _follow(client, job["id"], timeout, as_json=as_json, markdown=markdown)


@app.command()
def watch(
    job: JobId,
    timeout: Timeout = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> int:
    """Follow a job to its end and print its verdicts. Ctrl-C stops the watching, never the job."""
    with Client(server, token) as client:
        return _follow(client, job, timeout, as_json=as_json, markdown=markdown)


@app.command()
def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id of a job. Default: the newest twenty.")] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
) -> int:
    """Where a job stands, or the newest jobs."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    with Client(server, token) as client:
        if job is None:
            _list_jobs(console, client.jobs()["items"])
        else:
            document = client.job(job)
            reason = document["message"] or document["waiting"] or f"{document['share_done']:.0%} of the steps are done"
            console.print(f"{document['id']} {document['name']}: {document['status']}. {reason}", soft_wrap=True)
            console.print(watching.table(document, {}))
            for line in reused_words(document):
                console.print(line, soft_wrap=True)
            if document["engine"] == "external":
                _list_runs(console, document)
    return 0


@app.command()
def cancel(job: JobId, server: Server = DEFAULT_URL, token: Token = None) -> int:
    """Cancel a job; one that has ended stays as it is."""
    with Client(server, token) as client:
        print(f"{job} {client.cancel(job)['status']}")
    return 0


@app.command()
def report(
    job: JobId,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Also write one page with figures here. Default: not written.")] = None,
) -> int:
    """The verdicts of a job that has ended. Exit code: the worst of fail, inconclusive, pass."""
    with Client(server, token) as client:
        document = client.job(job)
        if html and document["verdicts"]:
            figures = {verdict["candidate"]["name"]: client.figure(job, verdict["candidate"]["name"]) for verdict in document["verdicts"]}
            write_file(html, render_page(cast(ConcludedJob, document), figures, client.page(job)).encode())
        return _finish(document, as_json=as_json, markdown=markdown)


@app.command()
def doctor(server: Server = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> int:
    """What the server's workers are and what each can train, with the reason where it can't. Exit code 4 when none is alive."""
    with Client(server, token) as client:
        workers = client.workers()
    alive = [worker for worker in workers if worker["live"]]
    if as_json:
        print(json.dumps(workers, indent=1, sort_keys=True))
        return 0 if alive else EXIT_CODES["infrastructure"]
    console = Console(width=WIDTH, highlight=False, markup=False)
    for worker in alive:
        _describe(console, worker)
    silent = len(workers) - len(alive)
    console.print(f"{len(alive)} alive, {silent} registered earlier and silent now" if workers else "no worker ever registered; start one")
    return 0 if alive else EXIT_CODES["infrastructure"]


def _describe(console: Console, worker: Mapping[str, Any]) -> None:
    """One worker: its machine, its versions, what it can train and why not the rest."""
    device = worker["device"]
    machine = [device.get("device_kind") or device.get("device_class", "unknown device")]
    machine += [f"SM {device['sm']}"] if device.get("sm") else []
    machine += [f"{device['memory_bytes'] / 2**30:.0f} GiB"] if device.get("memory_bytes") else []
    versions = ", ".join(f"{name} {version}" for name, version in sorted(device.get("versions", {}).items()))
    console.print(f"{worker['name']}: {worker['capability']}, {worker['slots']} slots; {', '.join(machine)}")
    console.print(f"  class {device.get('device_class', 'unknown')}; {versions or 'versions unknown'}", soft_wrap=True)
    can_run = device.get("can_run", {})
    able = [name for name, can in can_run.items() if can["ok"]]
    console.print(f"  trains {', '.join(able) or 'nothing'}", soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for name, can in can_run.items():
        if not can["ok"]:
            reasons.setdefault(can["reason"], []).append(name)
    for reason, names in reasons.items():
        console.print(f"  not {', '.join(names)}: {reason}", soft_wrap=True)


def _follow(client: Client, job_id: str, timeout: float | None, *, as_json: bool, markdown: bool) -> int:
    progress = Console(stderr=True, highlight=False, markup=False)
    progress.print(f"following {client.page(job_id)}", soft_wrap=True)
    with _kept_alive(job_id):
        document = watching.follow(client, job_id, progress, timeout)
    return _finish(document, as_json=as_json, markdown=markdown)


@contextmanager
def _kept_alive(job_id: str) -> Iterator[None]:
    """Ctrl-C leaves the job alone, and says how to come back or to end it."""
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
    show(document["verdicts"], as_json=as_json, markdown=markdown)
    return exit_code(document["verdicts"])


def _list_runs(console: Console, document: Mapping[str, Any]) -> None:
    """The runs that a user's own scripts train: each takes one id (PARITY_RUN)."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "arm", "replicate", "state", "why"):
        table.add_column(heading, overflow="fold")
    for arm in document["arms"]:
        for run in arm["runs"]:
            table.add_row(run["id"], arm["name"], str(run["replicate"]), run["state"].replace("_", " "), run["message"] or "")
    console.print(table)


def reused_words(document: Mapping[str, Any]) -> list[str]:
    """A line for the named baseline of a job, and one for each run that was not trained because an equal one had been."""
    lines = []
    if named := document["baseline"]:
        lines.append(f"against baseline {named['name']} version {named['version']}, {count(named['controls'], 'control')}")
    for arm in document["arms"]:
        for run in arm["runs"]:
            if reused := run["reused"]:
                age = "" if reused["age_seconds"] is None else f", trained {age_in_words(reused['age_seconds'])} ago"
                lines.append(f"{arm['name']} replicate {run['replicate']} is reused: run {reused['run']} of job {reused['job']}{age}")
    return lines


def _list_jobs(console: Console, jobs: list[Mapping[str, Any]]) -> None:
    if not jobs:
        console.print("no job yet; submit one with `parity submit parity.yaml`")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "name", "status", "verdicts"):
        table.add_column(heading, overflow="fold")
    for job in jobs:
        verdicts = ", ".join(f"{verdict['candidate']} {_STATES[verdict['verdict']]}" for verdict in job["verdicts"])
        state = f"{job['status']} {job['share_done']:.0%}" if job["status"] == "running" else job["status"]
        table.add_row(job["id"], job["name"], state, verdicts)
    console.print(table)


def baseline_of(content: Mapping[str, Any], reuse: bool | None) -> dict[str, Any] | None:
    """The file's `baseline:`, with the flag over it; None where neither says anything."""
    baseline = dict(content.get("baseline") or {})
    return baseline | ({} if reuse is None else {"reuse": reuse}) or None


def job_file(path: str) -> Mapping[str, Any]:
    """What `parity.yaml` holds; what is in `job:` is for the server to check."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: holds no mapping; expected `job:` and `criteria:`")
    unknown = sorted(str(key) for key in content.keys() - {"job", "criteria", "baseline", "gate"})
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}; expected job, criteria, baseline and gate")
    if not isinstance(content.get("baseline") or {}, dict):
        raise UsageError(f"{path}: `baseline:` is no mapping; expected such as baseline: {{name: fp8}}")
    for key in ("job", "criteria"):
        if not isinstance(content.get(key), dict):
            raise UsageError(f"{path}: `{key}:` is missing or no mapping")
    return content
