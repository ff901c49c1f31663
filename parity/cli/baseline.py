"""The commands `baseline …` for named baselines, which a server keeps."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from parity.cli.connection import ServerQuery
from parity.cli.terminal.help import Group
from parity.cli.terminal.options import argument, flat, option
from parity.cli.terminal.output import WIDTH, print_json, table_of
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.gate.exit_codes import EXIT_CODES
from parity.wording import age_in_words, count, percent

baselines = typer.Typer(
    name="baseline",
    help="Manage named baselines: train once, promote with a reason, and use by name in job files "
    "(`baseline: {name: fp8}`).",
    cls=Group,
    epilog="parity baseline promote fp8 j0000000000001 --reason 'first release'",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Which = Annotated[
    str, argument("NAME[@VERSION]", "Name of a baseline; without a version the newest one.")
]
_Name = Annotated[str, argument("NAME", "1 to 64 letters, digits, '_', '.' or '-'.")]
_Job = Annotated[str, argument("JOB", "Id of the job whose arm becomes the baseline.")]
_VERSION = "Version"  # the title of its options
_Reason = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=_VERSION,
        help="State the reason; it is kept with the user and the time.",
    ),
]


@baselines.command("list", epilog="parity baseline list")
@flat
def index(
    name: Annotated[str | None, argument("[NAME]", "List only versions of this name.")] = None,
    *,
    at: ServerQuery,
) -> int:
    """List the fifty newest versions; in a pipe, one per line."""
    with at.client() as client:
        versions = client.baselines(name)["items"]
    if not versions and not at.as_json:
        print(
            "no baseline yet; `parity baseline promote NAME JOB --reason TEXT` makes one of a "
            "finished job",
            file=sys.stderr,
        )
        return 0
    return at.show_rows(
        versions,
        ("baseline", "recipe", "runs + controls", "promoted", "by", "expires"),
        map(_row, versions),
    )


@baselines.command(epilog="parity baseline show fp8")
@flat
def show(which: _Which, at: ServerQuery) -> int:
    """Show one version: its runs and their age, its run-to-run noise, its history, and the workers
    whose software has changed since.
    """
    name, version = _parsed(which)
    with at.client() as client:
        return _show(client.baseline(name, version), at)


@baselines.command(epilog="parity baseline promote fp8 j0000000000001 --reason 'first release'")
@flat
def promote(
    name: _Name,
    job: _Job,
    reason: _Reason,
    arm: str | None = option(
        None, "Use this arm of the job. [default: its baseline]", "NAME", rich_help_panel=_VERSION
    ),
    days: float | None = option(
        None,
        "Let the version expire after DAYS. [default: never]",
        "DAYS",
        rich_help_panel=_VERSION,
    ),
    *,
    at: ServerQuery,
) -> int:
    """Make the finished runs of a job's arm the next version of a baseline; every run must be
    complete and must not have diverged.
    """
    with at.client() as client:
        return _show(client.promote(name, job, reason, arm=arm, days=days), at)


@baselines.command(epilog="parity baseline control fp8 j0000000000002 --reason 'four reruns'")
@flat
def control(
    which: _Which,
    runs_of: Annotated[
        str, argument("JOB|RUN", "Id of a job with reruns of the baseline, or of one run.")
    ],
    reason: _Reason,
    at: ServerQuery,
) -> int:
    """Attach reruns to a version: later jobs use their measured run-to-run noise instead of an
    assumed one.
    """
    name, version = _parsed(which)
    with at.client() as client:
        return _show(
            client.attach_controls(
                name, version or client.baseline(name)["version"], runs_of, reason
            ),
            at,
        )


@baselines.command(epilog="parity baseline expire fp8@1 --reason 'new data'")
@flat
def expire(
    which: Annotated[str, argument("NAME@VERSION", "Version to end.")],
    reason: _Reason,
    at: ServerQuery,
) -> int:
    """End a version now: later jobs cannot use it; earlier verdicts stay."""
    name, version = _parsed(which)
    if version is None:
        raise UsageError(f"{which!r} has no version; expected NAME@VERSION such as {name}@1")
    with at.client() as client:
        return _show(client.expire(name, version, reason), at)


@baselines.command(epilog="parity baseline diff fp8@1 fp8@2")
@flat
def diff(
    which: _Which,
    other: Annotated[str, argument("NAME[@VERSION]|JOB", "Another version, or a job's id.")],
    at: ServerQuery,
) -> int:
    """Compare specification and environment of a baseline with another version or a job.

    Exits 0 if nothing differs, 1 if something does.
    """
    name, version = _parsed(which)
    with at.client() as client:
        difference = client.baseline_diff(name, version or client.baseline(name)["version"], other)
    differs = difference["specification"] or difference["environment"]
    if at.as_json:
        print_json(difference)
    else:
        console = Console(width=WIDTH, highlight=False, markup=False)
        for part in ("specification", "environment"):
            if difference[part]:
                rows = [
                    (
                        one["key"],
                        *(value or "not stated" for value in (one["baseline"], one["other"])),
                    )
                    for one in difference[part]
                ]
                console.print(table_of((part, difference["baseline"], difference["other"]), rows))
        if not difference["told"]:
            console.print(
                f"no run of {difference['other']} has begun, so its environment is unknown"
            )
        elif not differs:
            console.print(
                f"nothing differs between {difference['baseline']} and {difference['other']}"
            )
    if differs:
        return EXIT_CODES["fail"]
    return EXIT_CODES["pass"]


def _row(version: Document) -> tuple[str, ...]:
    until = "expired" if version["expired"] else (version["expires_at"] or "never")[:10]
    runs = f"{version['runs']} + {version['controls']}"
    return (
        _called(version),
        version["recipe"],
        runs,
        version["promoted_at"][:10],
        version["promoted_by"],
        until,
    )


def _show(document: Document, at: ServerQuery) -> int:
    return at.show(document, _version_lines(document))


def _version_lines(document: Document) -> Iterator[str]:
    """A version: one sentence first, then runs, noise, history, and workers whose software
    differs.
    """
    until = "does not expire"
    if document["expires_at"]:
        until = f"{'expired' if document['expired'] else 'expires'} {document['expires_at'][:10]}"
    yield (
        f"{_called(document)}: {document['recipe']} (engine {document['engine']}), "
        f"{count(document['runs'], 'run')} of job "
        f"{document['job']}, {count(document['controls'], 'control')}; {until}"
    )
    for run in document["members"]:
        if run["age_seconds"] is None:
            age = ""
        else:
            age = f", trained {age_in_words(run['age_seconds'])} ago"
        yield f"  {run['role']} replicate {run['replicate']}: {run['run']}{age}"
    yield f"  {_noise_words(document['noise'])}"
    for entry in document["audit"]:
        yield f"  {entry['at'][:16]} {entry['kind']} by {entry['who']}: {entry['reason']}"
    for line in document["workers"]:
        yield f"  differs: {line}"


def _noise_words(noise: Document | None) -> str:
    """What its reruns show; what a verdict makes of that, with what it borrows or assumes, is the
    verdict's own.
    """
    if noise is None:
        return "run-to-run noise: unknown, because its runs have no step in common in the window"
    if noise["measured"] is None:
        return "run-to-run noise: not measured by one run; a verdict borrows or assumes it"
    share = percent(noise["measured"] / noise["tau_nats"] * noise["tau_rel"])
    return (
        f"run-to-run noise: its reruns differ by {noise['measured']:.4f} nats ({share} of the "
        f"loss, {count(noise['measured_df'], 'degree')} of freedom); a verdict combines this with "
        "what it borrows or assumes"
    )


def _called(document: Document) -> str:
    return f"{document['name']}@{document['version']}"


def _parsed(which: str) -> tuple[str, int | None]:
    name, mark, number = which.partition("@")
    if not name or (mark and not (number.isdecimal() and int(number))):
        raise UsageError(
            f"{which!r} is not the name of a baseline; expected NAME or NAME@VERSION such as fp8@1"
        )
    return name, int(number) if mark else None
