"""`make test-integrations`: real trainers that log with parity.integrations, killed and resumed,
against the real service.

    python -m tools.integrations_check PYTHON     # PYTHON has what locks/integrations.lock names

Each of transformers' Trainer, Lightning's Trainer and a loop of optax.MultiSteps trains the same
tiny model four times:

1. whole, into a run of the server;
2. with micro-steps (and in two processes, where the trainer has them), without a run: kept on disk
   and sent with `parity resend --as-run`;
3. killed with SIGKILL after 25 steps and resumed from its checkpoint of step 20;
4. with a NaN.

What it checks: each run has all 30 steps once, its evaluations apart, and the losses of the first;
only one process wrote; the NaN is recorded. The exit status is 0 where all of it holds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from parity.client.rest import Client
from parity.frozen import frozen
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job
from server.settings import CHECKOUT, Settings
from workers.standalone import stack
from workers.standalone.processes import StartError

STEPS = 30
NAN_AT = 12
# Sums of micro-batches and of ranks are rounded in another order.
ROUNDING = 1e-4


class IntegrationError(Exception):
    """Something is not as it must be."""


@frozen
class CheckedTrainer:
    """A script of tools.trainers: its interpreter and launcher, the number of its first step, and
    how it trains in micro-steps.
    """

    name: str
    python: str
    first: int
    micro: tuple[str, ...]
    launcher: tuple[str, ...] = ()
    validates: bool = True

    def run(
        self,
        folder: Path,
        *options: str,
        run: str | None = None,
        server: str = "",
        launcher: tuple[str, ...] = (),
    ) -> str:
        """Train in a folder; what it wrote to stderr. Raises IntegrationError where it failed other
        than by SIGKILL.
        """
        command = [
            self.python,
            *launcher,
            "-m",
            f"tools.trainers.{self.name}",
            str(folder),
            "--steps",
            str(STEPS),
            *options,
        ]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PARITY_URL": server} | (
            {"PARITY_RUN": run} if run else {}
        )
        ended = subprocess.run(
            command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        if ended.returncode != (-9 if "--kill-at" in options else 0):
            raise IntegrationError(
                f"{' '.join(command)} exited with {ended.returncode}:\n{ended.stderr[-3000:]}"
            )
        return ended.stderr


def main() -> int:
    """Run the check; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.integrations_check",
        description="Real trainers against the real service.",
    )
    parser.add_argument("python", help="a Python with transformers and lightning")
    python = str(Path(parser.parse_args().python).absolute())
    two = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    trainers = (
        CheckedTrainer(
            name="huggingface", python=python, first=1, micro=("--accumulation", "2"), launcher=two
        ),
        CheckedTrainer(
            name="lightning",
            python=python,
            first=0,
            micro=("--accumulation", "2", "--processes", "2"),
        ),
        CheckedTrainer(
            name="multi_steps",
            python=sys.executable,
            first=0,
            micro=("--accumulation", "2"),
            validates=False,
        ),
    )
    with tempfile.TemporaryDirectory(prefix="parity-integrations-") as folder:
        settings = Settings(state_dir=Path(folder) / "state", port=8398)
        os.environ["PARITY_STATE_DIR"], os.environ["PARITY_PORT"] = (
            str(settings.state_dir),
            str(settings.port),
        )
        server = f"http://{settings.host}:{settings.port}"
        with stack.running(settings, Console(stderr=True)), Client(server) as client:
            for trainer in trainers:
                _check(trainer, Path(folder) / trainer.name, settings, client, server)
                sys.stdout.write(f"{trainer.name}: all as it must be\n")
    return 0


def _check(
    trainer: CheckedTrainer, folder: Path, settings: Settings, client: Client, server: str
) -> None:
    folder.mkdir()
    job = {
        "name": f"integrations-{trainer.name}",
        "engine": "external",
        "layer_policy": "all_linears",
        "schedule": {"steps": STEPS, "warmup_steps": 1},
        "baseline": {"recipe": "bf16", "replicates": 4},
        "candidates": [{"recipe": "fp8_current"}],
    }
    submitted = client.submit(job, {"margin": "2.0%"})
    whole, micro, killed, broken = (
        run["id"] for run in client.job(submitted["id"])["arms"][0]["runs"]
    )

    trainer.run(folder / "whole", run=whole, server=server)
    words = trainer.run(folder / "micro", *trainer.micro, launcher=trainer.launcher)
    _resend(words, micro, server)
    trainer.run(folder / "killed", "--kill-at", "25", run=killed, server=server)
    trainer.run(folder / "killed", run=killed, server=server)
    trainer.run(folder / "broken", "--nan-at", str(NAN_AT), run=broken, server=server)

    curves = _curves(settings, submitted["id"], trainer)
    if not np.array_equal(curves[whole], curves[killed]):
        raise IntegrationError(
            f"{trainer.name}: killed and resumed, it has other losses: "
            f"{curves[whole] - curves[killed]}"
        )
    if not np.allclose(curves[whole], curves[micro], rtol=0, atol=ROUNDING):
        raise IntegrationError(
            f"{trainer.name}: in micro-steps it has other losses: {curves[whole] - curves[micro]}"
        )
    finite = np.isfinite(curves[broken])
    at = NAN_AT - trainer.first
    if (
        finite[at]
        or not finite[:at].all()
        or not np.array_equal(curves[broken][:at], curves[whole][:at])
    ):
        raise IntegrationError(
            f"{trainer.name}: expected the first NaN at step {NAN_AT}, the losses are "
            f"{curves[broken]}"
        )


def _resend(words: str, run: str, server: str) -> None:
    """Send what a trainer kept on disk, with the line that it printed once."""
    lines = re.findall(r"`(parity resend .+ --as-run) RUN`", words)
    if len(lines) != 1:
        raise IntegrationError(
            f"expected one line that says how to send, there are {len(lines)} in:\n{words[-3000:]}"
        )
    spools = list(Path(lines[0].split()[2]).glob("*.jsonl"))
    if len(spools) != 1:
        raise IntegrationError(f"expected the spool of one process, there are {len(spools)}")
    command = [sys.executable, "-m", *lines[0].split(), run, "--server", server]
    subprocess.run(command, check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)


def _curves(settings: Settings, job_id: str, trainer: CheckedTrainer) -> dict[str, Any]:
    """The losses of the baseline's runs, each with every step once."""
    database = Database(settings.database)
    curves = {}
    with database.read() as session:
        runs = [run for run in session.get_one(Job, job_id).runs if run.arm.name == "bf16"]
        for run in runs:
            steps, columns = store.read(session, run.id, "train", ["lm_loss"])
            expected = list(range(trainer.first, trainer.first + STEPS))
            if run.state != "finished" or steps.tolist() != expected:
                raise IntegrationError(
                    f"{trainer.name}: run {run.id} is {run.state} with steps {steps.tolist()}: "
                    f"{run.message}"
                )
            validated, _ = store.read(session, run.id, "validation", ["loss"])
            if validated.tolist() != (
                [expected[at - 1] for at in (10, 20, 30)] if trainer.validates else []
            ):
                raise IntegrationError(
                    f"{trainer.name}: run {run.id} has validation losses at {validated.tolist()}"
                )
            curves[run.id] = columns["lm_loss"]
    database.close()
    return curves


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (IntegrationError, stack.StackRefusedError, StartError) as error:
        sys.stderr.write(f"failed: {error}\n")
        sys.exit(1)
