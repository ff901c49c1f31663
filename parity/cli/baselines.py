"""The verbs of named baselines: list, show, promote, control, expire, diff. A server keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from parity.cli.exits import EXIT_CODES
from parity.cli.gate_report import age_in_words
from parity.cli.jobs import Server, Token
from parity.cli.output import WIDTH, UsageError
from parity.client.rest import DEFAULT_URL, Client
from parity.wording import count, percent

app = typer.Typer(
    name="baseline",
    help="Named baselines: trained once, promoted with a reason, named by job files (`baseline: {name: fp8}`).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Which = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A baseline; without a version its newest.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="1 to 64 letters, digits, '_', '.' or '-'.")]
_Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job whose arm becomes the baseline.")]
_Reason = Annotated[str, typer.Option(help="Why; kept with who and when. Needed.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command("list")
def index(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only versions of this name. Default: all.")] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: _AsJson = False,
) -> int:
    """The fifty versions that were promoted last."""
    with Client(server, token) as client:
        versions = client.baselines(name)["items"]
    if as_json:
        print(json.dumps(versions, indent=1, sort_keys=True))
        return 0
    console = _console()
    if not versions:
        console.print("no baseline yet; `parity baseline promote NAME JOB --reason TEXT` makes one of a finished job")
        return 0
    rows = [
        (
            _called(one),
            one["recipe"],
            f"{one['runs']} + {one['controls']}",
            one["promoted_at"][:10],
            one["promoted_by"],
            "expired" if one["expired"] else (one["expires_at"] or "never")[:10],
        )
        for one in versions
    ]
    _print_table(console, ("baseline", "recipe", "runs + controls", "promoted", "by", "expires"), rows)
    return 0


@app.command()
def show(which: _Which, server: Server = DEFAULT_URL, token: Token = None, as_json: _AsJson = False) -> int:
    """One version: its runs and their age, its run noise, what was done to it, and which workers train with something else by now."""
    name, version = _parsed(which)
    with Client(server, token) as client:
        _show(client.baseline(name, version), as_json=as_json)
    return 0


@app.command()
def promote(
    name: _Name,
    job: _Job,
    reason: _Reason,
    arm: Annotated[str | None, typer.Option(help="Arm of the job. Default: its baseline.")] = None,
    days: Annotated[float | None, typer.Option(help="Days after which no job may name it. Default: it does not expire.")] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: _AsJson = False,
) -> int:
    """Make the finished runs of a job's arm the next version of a name. Refused where one is broken, diverged or not complete."""
    with Client(server, token) as client:
        _show(client.promote(name, job, reason, arm=arm, days=days), as_json=as_json)
    return 0


@app.command()
def control(
    which: _Which,
    runs_of: Annotated[str, typer.Argument(metavar="JOB|RUN", help="A job with reruns of the baseline, or one run.")],
    reason: _Reason,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: _AsJson = False,
) -> int:
    """Attach reruns: jobs that name the version from now on get its run-to-run noise measured on them, not assumed."""
    name, version = _parsed(which)
    with Client(server, token) as client:
        _show(client.attach_controls(name, version or client.baseline(name)["version"], runs_of, reason), as_json=as_json)
    return 0


@app.command()
def expire(
    which: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version.")],
    reason: _Reason,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: _AsJson = False,
) -> int:
    """End a version now: no later job may name it. What was judged against it stays."""
    name, version = _parsed(which)
    if version is None:
        raise UsageError(f"{which!r} names no version; expected such as {name}@1")
    with Client(server, token) as client:
        _show(client.expire(name, version, reason), as_json=as_json)
    return 0


@app.command()
def diff(
    which: _Which,
    other: Annotated[str, typer.Argument(metavar="NAME[@VERSION]|JOB", help="Another version, or a job's id.")],
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: _AsJson = False,
) -> int:
    """What differs in specification and environment. Exit code 0 where nothing does, 1 where something does."""
    name, version = _parsed(which)
    with Client(server, token) as client:
        difference = client.baseline_diff(name, version or client.baseline(name)["version"], other)
    differs = difference["specification"] or difference["environment"]
    if as_json:
        print(json.dumps(difference, indent=1, sort_keys=True))
    else:
        console = _console()
        for part in ("specification", "environment"):
            if difference[part]:
                rows = [(one["key"], *(value or "not stated" for value in (one["baseline"], one["other"]))) for one in difference[part]]
                _print_table(console, (part, difference["baseline"], difference["other"]), rows)
        if not difference["told"]:
            console.print(f"no run of {difference['other']} has begun, so its environment is not known yet")
        elif not differs:
            console.print(f"nothing differs between {difference['baseline']} and {difference['other']}")
    return EXIT_CODES["fail"] if differs else EXIT_CODES["pass"]


def _show(document: Mapping[str, Any], *, as_json: bool) -> None:
    """A version in words: the sentence first, then runs, noise, audit trail, and who trains with something else."""
    if as_json:
        print(json.dumps(document, indent=1, sort_keys=True))
        return
    console = _console()
    until = (
        f"{'expired' if document['expired'] else 'expires'} {document['expires_at'][:10]}" if document["expires_at"] else "does not expire"
    )
    console.print(
        f"{_called(document)}: {document['recipe']} (engine {document['engine']}), {count(document['runs'], 'run')} of job "
        f"{document['job']}, {count(document['controls'], 'control')}; {until}",
        soft_wrap=True,
    )
    for run in document["members"]:
        age = "" if run["age_seconds"] is None else f", trained {age_in_words(run['age_seconds'])} ago"
        console.print(f"  {run['role']} replicate {run['replicate']}: {run['run']}{age}", soft_wrap=True)
    console.print(f"  {_noise_words(document['noise'])}", soft_wrap=True)
    for entry in document["audit"]:
        console.print(f"  {entry['at'][:16]} {entry['kind']} by {entry['who']}: {entry['reason']}", soft_wrap=True)
    for line in document["workers"]:
        console.print(f"  differs: {line}", soft_wrap=True)


def _noise_words(noise: Mapping[str, Any] | None) -> str:
    if noise is None:
        return "run noise: not known, its runs have no step in common in the window"
    tau = f"run noise: {noise['tau_nats']:.4f} nats ({percent(noise['tau_rel'])} of the loss)"
    if noise["measured"] is None:
        return f"{tau}, assumed: attach controls to measure it"
    basis = f"measured as {noise['measured']:.4f} with {count(noise['measured_df'], 'degree')} of freedom"
    return f"{tau}, {basis}, prior {noise['prior_nats']:.4f}"


def _called(document: Mapping[str, Any]) -> str:
    return f"{document['name']}@{document['version']}"


def _parsed(which: str) -> tuple[str, int | None]:
    name, mark, number = which.partition("@")
    if not name or (mark and not (number.isdecimal() and int(number))):
        raise UsageError(f"{which!r} names no baseline; expected NAME or NAME@NUMBER")
    return name, int(number) if mark else None


def _console() -> Console:
    return Console(width=WIDTH, highlight=False, markup=False)


def _print_table(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
