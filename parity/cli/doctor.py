"""The command `doctor`: the workers of a server, what each can train, and the jobs that wait; or
whether one of them can hold a job that is still a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import typer
from rich.console import Console

from parity.cli.connection import ServerQuery
from parity.cli.jobs.job_file import UNSENDABLE, job_file, lines_named
from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import flat, option
from parity.cli.terminal.output import WIDTH, print_json, print_lines
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Client
from parity.gate.exit_codes import EXIT_CODES
from parity.wording import count

app = typer.Typer()

_MOST_WAITING = 5


class JobNeeds(TypedDict):
    """What a job file needs, in sentences: memory of a device, checkpoints, cut documents, device
    hours; and why no live worker with the job's devices can hold it, or null.
    """

    needs: list[str]
    refused: str | None


@app.command(epilog="parity doctor --job parity.yaml")
@flat
def doctor(
    job: str | None = option(
        None,
        "Say what this job file would need of a device and of the disk; nothing is queued.",
        "FILE",
        "--job",
        rich_help_panel="Job",
    ),
    verbose: bool = option(
        False,
        "Also print versions, and why a worker cannot train the rest.",
        None,
        "--verbose",
        "-v",
        rich_help_panel=OUTPUT,
    ),
    *,
    at: ServerQuery,
) -> int:
    """List workers, what each can train, and the jobs that wait for one.

    Exits 4 if no worker is alive. With --job it tells of that job alone, and exits 2 if workers
    with its devices are alive and none of them can hold it.
    """
    with at.client() as client:
        if job is not None:
            return _told_of(job, client, at)
        workers = client.workers()
        waiting = [] if at.as_json else _waiting(client)
    alive = [worker for worker in workers if worker["live"]]
    if at.as_json:
        print_json(workers)
    else:
        console = Console(width=WIDTH, highlight=False, markup=False)
        lines = [line for worker in alive for line in _described(worker, verbose=verbose)]
        silent = len(workers) - len(alive)
        lines.append(
            f"{len(alive)} alive, {silent} no longer responding"
            if workers
            else "no worker has registered yet; start one"
        )
        print_lines([*lines, *waiting], console)
    if alive:
        return 0
    return EXIT_CODES["infrastructure"]


def _told_of(file: str, client: Client, at: ServerQuery) -> int:
    """Print what a job file needs; raises UsageError where no registered worker can hold it."""
    content = job_file(file)
    try:
        with lines_named(file):
            plan = client.plan(content["job"], content["policy"], baseline=content.get("baseline"))
    except (TypeError, ValueError):
        raise UsageError(f"{file}: {UNSENDABLE}") from None
    at.show(JobNeeds(needs=plan["needs"], refused=plan["refused"]), plan["needs"])
    if plan["refused"] is not None:
        raise UsageError(f"{file}: {plan['refused']}")
    return 0


def _waiting(client: Client) -> Sequence[str]:
    """A line for each of the oldest queued jobs: what it waits for."""
    queued = client.jobs(_MOST_WAITING, filters={"status": "queued", "sort": "oldest"})["items"]
    return [
        f"waiting: {job['id']} {job['name']}: "
        f"{client.job(job['id'])['waiting'] or 'for a free slot'}"
        for job in queued
    ]


def _described(worker: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    """One line for a worker's machine and what it trains; with wrong codes another; if verbose,
    versions and reasons below it.
    """
    device = worker["device"]
    machine = [device.get("device_kind") or device.get("device_class", "unknown device")]
    machine += [f"SM {device['sm']}"] if device.get("sm") else []
    machine += [f"{device['memory_bytes'] / 2**30:.0f} GiB"] if device.get("memory_bytes") else []
    machine.append(count(worker["slots"], "slot"))
    can_run = device.get("can_run", {})
    able: dict[str, list[str]] = {}
    for name, can in can_run.items():
        engine, _, recipe = name.partition("/")
        able.setdefault(engine, []).extend([recipe] if can["ok"] else [])
    trained = [f"{engine} ({', '.join(recipes)})" for engine, recipes in able.items() if recipes]
    trained += [
        f"launcher {name} ({', '.join(launcher['recipes'])})"
        for name, launcher in device.get("launchers", {}).items()
    ]
    lacking = [engine for engine, recipes in able.items() if not recipes]
    yield f"{worker['name']}: {', '.join(machine)}; trains {'; '.join(trained) or 'nothing'}" + (
        f"; not {', '.join(lacking)}" if lacking else ""
    )
    if wrong := device.get("wrong_formats"):
        yield f"  codes WRONG: {'; '.join(f'{name}: {what}' for name, what in wrong.items())}"
    if not verbose:
        return
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(device.get("versions", {}).items())
    )
    yield f"  class {device.get('device_class', 'unknown')}; {versions or 'versions unknown'}"
    if device.get("wrong_formats") == {}:
        yield "  codes equal the known answers in every format"
    reasons: dict[str, list[str]] = {}
    for name, can in can_run.items():
        if not can["ok"]:
            reasons.setdefault(can["reason"], []).append(name)
    yield from (f"  not {', '.join(names)}: {reason}" for reason, names in reasons.items())
