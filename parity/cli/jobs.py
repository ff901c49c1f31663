"""The commands that talk to a server: submit, watch, status, cancel, report, doctor. `application` maps their errors to exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from parity.cli import watching
from parity.cli.outlook import print_outlook
from parity.cli.record.labels import Branch, Tags, labels_of, remark_words
from parity.cli.terminal.exits import EXIT_CODES, exit_code
from parity.cli.terminal.help import NOISE, OUTPUT, QUEUE
from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import WIDTH, UsageError, print_json, print_rows, show, write_file
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client
from parity.comparing.policy import read_yaml
from parity.judging.early_stops.usable import MAX_NOISE_RUNS
from parity.judging.sign_offs import accepted
from parity.report.html import ConcludedJob, render_page
from parity.wording import age_in_words, count, did_you_mean

app = typer.Typer()

_JOB_KEYS = ("job", "criteria", "baseline", "gate", "tags", "search")
SORTS = ("newest", "oldest", "name", "ended", "gap")
FILTERS = "Filters of the list"
JOB_STATES = ("queued", "running", "concluded", "failed", "cancelled")
_STATES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as printed by `submit` and `status`.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Stop waiting after SECONDS with exit code 5; the job goes on.")
]
Reuse = Annotated[
    bool | None,
    typer.Option("--reuse/--no-reuse", help="Reuse the curve of an equal, earlier baseline run. [default: yes, or the job file's]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", rich_help_panel=OUTPUT, help="Print Markdown instead of text.")]


UNSENDABLE = "contains a value that JSON cannot hold, such as a date or .inf; quote dates and use finite numbers"


class JobEndedError(Exception):
    """The job ended without a verdict; the message gives the reason."""


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
    content = _with_noise(job_file(file), noise_runs, stop_at)
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


@app.command(epilog="parity doctor")
def doctor(server: Server = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> int:
    """List workers, what each can train, and why it cannot train the rest.

    Exits 4 if no worker is alive.
    """
    with Client(server, token) as client:
        workers = client.workers()
    alive = [worker for worker in workers if worker["live"]]
    if as_json:
        print_json(workers)
        return 0 if alive else EXIT_CODES["infrastructure"]
    console = Console(width=WIDTH, highlight=False, markup=False)
    for worker in alive:
        _describe(console, worker)
    silent = len(workers) - len(alive)
    console.print(f"{len(alive)} alive, {silent} no longer responding" if workers else "no worker has registered yet; start one")
    return 0 if alive else EXIT_CODES["infrastructure"]


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


def _describe(console: Console, worker: Mapping[str, Any]) -> None:
    """One worker: its machine, its versions, what it can train and why it cannot train the rest."""
    device = worker["device"]
    machine = [device.get("device_kind") or device.get("device_class", "unknown device")]
    machine += [f"SM {device['sm']}"] if device.get("sm") else []
    machine += [f"{device['memory_bytes'] / 2**30:.0f} GiB"] if device.get("memory_bytes") else []
    versions = ", ".join(f"{name} {version}" for name, version in sorted(device.get("versions", {}).items()))
    console.print(f"{worker['name']}: {worker['capability']}, {worker['slots']} slots; {', '.join(machine)}")
    console.print(f"  class {device.get('device_class', 'unknown')}; {versions or 'versions unknown'}", soft_wrap=True)
    if "wrong_formats" in device:
        wrong = "; ".join(f"{name}: {what}" for name, what in device["wrong_formats"].items())
        console.print(f"  codes {f'WRONG: {wrong}' if wrong else 'equal the known answers in every format'}", soft_wrap=True)
    can_run = device.get("can_run", {})
    able = [name for name, can in can_run.items() if can["ok"]]
    console.print(f"  trains {', '.join(able) or 'nothing'}", soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for name, can in can_run.items():
        if not can["ok"]:
            reasons.setdefault(can["reason"], []).append(name)
    for reason, names in reasons.items():
        console.print(f"  not {', '.join(names)}: {reason}", soft_wrap=True)


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
        lines.append(f"against baseline {named['name']} version {named['version']}, {count(named['controls'], 'control')}")
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


def _with_noise(content: Mapping[str, Any], runs: int | None, stop_at: float | None) -> Mapping[str, Any]:
    """The job file with the options in place of its `noise:`; the server checks the values."""
    if runs is None and stop_at is None:
        return content
    job = dict(content["job"])
    noise = job.pop("noise", None)
    if runs == 0 or (runs is None and not isinstance(noise, Mapping)):
        if stop_at is not None:
            raise UsageError(f"--stop-at is {stop_at:g}, but the job has no reruns that stop early; state their number with --noise-runs")
        return {**content, "job": job}
    stated = {"runs": runs, "stop_at": stop_at}
    return {
        **content,
        "job": job
        | {
            "noise": (dict(noise) if isinstance(noise, Mapping) else {})
            | {name: value for name, value in stated.items() if value is not None}
        },
    }


def baseline_of(content: Mapping[str, Any], reuse: bool | None) -> dict[str, Any] | None:
    """The file's `baseline:`, overridden by the option; None if neither is given."""
    baseline = dict(content.get("baseline") or {})
    return baseline | ({} if reuse is None else {"reuse": reuse}) or None


def job_file(path: str) -> Mapping[str, Any]:
    """The content of `parity.yaml`; the server checks the part below `job:`."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is not a job file; expected the keys `job:` and `criteria:`")
    unknown = sorted(str(key) for key in content.keys() - set(_JOB_KEYS))
    if unknown:
        raise UsageError(
            f"{path}: unknown key {unknown[0]!r}; expected {', '.join(_JOB_KEYS[:-1])} or search{did_you_mean(unknown[0], _JOB_KEYS)}"
        )
    if not isinstance(content.get("baseline") or {}, dict):
        raise UsageError(f"{path}: `baseline:` is {content['baseline']!r}; expected a mapping such as baseline: {{name: fp8}}")
    for key in ("job", "criteria"):
        if not isinstance(content.get(key), dict):
            raise UsageError(f"{path}: `{key}:` is missing or has no keys below it; compare with examples/demo.yaml")
    return content
