"""The command `doctor`: the workers of a server, what each can train, and why it cannot train the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console

from parity.cli.connection import Asked
from parity.cli.options import flat
from parity.cli.terminal.exits import EXIT_CODES
from parity.cli.terminal.output import WIDTH, print_json

app = typer.Typer()


@app.command(epilog="parity doctor")
@flat
def doctor(at: Asked) -> int:
    """List workers, what each can train, and why it cannot train the rest.

    Exits 4 if no worker is alive.
    """
    with at.client() as client:
        workers = client.workers()
    alive = [worker for worker in workers if worker["live"]]
    if at.as_json:
        print_json(workers)
    else:
        console = Console(width=WIDTH, highlight=False, markup=False)
        for worker in alive:
            _describe(console, worker)
        silent = len(workers) - len(alive)
        console.print(f"{len(alive)} alive, {silent} no longer responding" if workers else "no worker has registered yet; start one")
    return 0 if alive else EXIT_CODES["infrastructure"]


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
