"""The command `preflight`: examines this machine's arithmetic.

The checks are the trainer's, and run in a process of their own.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

import typer

from parity.cli.jobs.job_file import job_file
from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import flag, flat, option
from parity.cli.terminal.wrong_calls import UsageError
from parity.wording import did_you_mean

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
        "Also examine the layers of this job file at their sizes, on its engine; of engine "
        "maxtext, only count the documents that it cuts.",
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
