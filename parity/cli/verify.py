"""The commands that examine: a verdict from its bundle, this machine's arithmetic, a server's
workers.
"""

import dataclasses
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.cli.connection import Asked
from parity.cli.jobs import job_file
from parity.cli.options import argument, flag, flat, option
from parity.cli.output import WIDTH, print_json, print_lines
from parity.cli.terminal import OUTPUT, UsageError
from parity.client.rest import Client
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.bundles.evidence import Verification, verify
from parity.version import JUDGE_VERSION
from parity.wording import count, did_you_mean

# The command `preflight`: examines this machine's arithmetic. The checks are the trainer's, and run
# in a process of their own.

app = typer.Typer()


_ENGINES = ("emulated", "transformer_engine")


@app.command(epilog="parity preflight --engine transformer_engine")
@flat
def preflight(
    engine: str | None = option(
        None, "Examine only emulated, or only transformer_engine.", "NAME", rich_help_panel="Checks"
    ),
    job: str | None = option(
        None,
        "Also examine the layers of this job file at their sizes, on its engine.",
        "FILE",
        rich_help_panel="Checks",
    ),
    as_json: bool = flag("--json", "Print JSON instead of text.", rich_help_panel=OUTPUT),
) -> int:
    """Compare this machine's arithmetic with known answers, in less than a minute. No server is
    needed.

    Checks the emulation on this device and Transformer Engine's kernels, if they can run: codes and
    scale bytes, rotation, stochastic rounding, delayed scaling, accumulation, products. Exits 0 if
    every check passes, 1 if one fails, 2 if none can run.
    """
    if engine not in (None, *_ENGINES):
        raise UsageError(
            f"--engine is {engine!r}; expected one of "
            f"{', '.join(_ENGINES)}{did_you_mean(engine, _ENGINES)}"
        )
    if find_spec("training") is None or find_spec("jax") is None:
        raise UsageError(
            "preflight needs the trainer, which is not installed here; run it in a worker's "
            "environment (docs/hardware.md)"
        )
    if engine and job:
        raise UsageError(
            f"--engine is {engine!r} with --job; expected only one of them: a job names its engine"
        )
    options = [
        *(("--engine", engine) if engine else ()),
        *(("--json",) if as_json else ()),
        *(("--job",) if job else ()),
    ]
    asked = json.dumps(job_file(job)["job"], default=str) if job else ""
    return subprocess.run(
        [sys.executable, "-m", "training.preflight", *options], check=False, input=asked, text=True
    ).returncode


# The command `verify`: recompute a verdict from its evidence bundle.


@app.command("verify", epilog="parity verify evidence.zip")
@flat
def verify_bundle(
    bundle: Annotated[
        str,
        argument("BUNDLE.zip", "Evidence bundle of `parity compare --bundle`, or of a job's page."),
    ],
    as_json: bool = flag("--json", "Print JSON instead of text.", rich_help_panel=OUTPUT),
) -> int:
    """Recompute a verdict from its evidence bundle, offline.

    Exits 0 if the result is identical, 1 if something differs, 6 if another version of the judge
    made the bundle.
    """
    if not Path(bundle).is_file():
        problem = "is a directory" if Path(bundle).is_dir() else "no such file"
        raise UsageError(
            f"{bundle}: {problem}; expected an evidence bundle of `parity compare --bundle`"
        )
    if not zipfile.is_zipfile(bundle):
        raise UsageError(
            f"{bundle}: not a zip file; expected an evidence bundle of `parity compare --bundle`"
        )
    verification = verify(bundle)
    if verification.differences:
        code, lines = "fail", list(verification.differences)
    elif verification.same_judge:
        code, lines = (
            "pass",
            [f"identical: {bundle} reproduces its recorded verdicts (numbers to 1e-9 relative)"],
        )
    else:
        code, lines = "other judge", _both_verdicts(bundle, verification)
    if as_json:
        print_json(_document(verification))
    else:
        print("\n".join([*lines, *verification.sign_offs]))
    return EXIT_CODES[code]


def _document(verification: Verification) -> dict[str, Any]:
    return {
        "identical": not verification.differences and verification.same_judge,
        "differences": list(verification.differences),
        "made_by_judge": verification.made_by,
        "this_judge": JUDGE_VERSION,
        "candidates": [dataclasses.asdict(candidate) for candidate in verification.rejudged],
        "sign_offs": list(verification.sign_offs),
    }


def _both_verdicts(bundle: str, verification: Verification) -> list[str]:
    """The recorded verdict of each candidate, and today's verdict on the same curves."""
    lines = [
        (
            f"{bundle} was made by judge {verification.made_by}; this is judge {JUDGE_VERSION}. "
            "Every file matches the manifest."
        )
    ]
    for candidate in verification.rejudged:
        name = candidate.candidate.encode("ascii", "backslashreplace").decode()
        lines.append(
            f"{name}: recorded as {candidate.recorded}, today {candidate.today} "
            f"({', '.join(candidate.codes)})"
        )
    return lines


# The command `doctor`: the workers of a server, what each can train, and the jobs that wait.

_MOST_WAITING = 5


@app.command(epilog="parity doctor --verbose")
@flat
def doctor(
    verbose: bool = option(
        False,
        "Also print versions, and why a worker cannot train the rest.",
        None,
        "--verbose",
        "-v",
        rich_help_panel=OUTPUT,
    ),
    *,
    at: Asked,
) -> int:
    """List workers, what each can train, and the jobs that wait for one.

    Exits 4 if no worker is alive.
    """
    with at.client() as client:
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
