"""Pairs trained through the service: REST, queue, worker and record, to the verdict and its
evidence bundle.

    python -m tools.gpu_evidence.pair emulated --folder DIR --steps 4000 [--tokens FILE] [--arms
    fp8_current nvfp4] [--small]

The stack is `workers.standalone`, whose worker has the GPU alone to offer (PARITY_CAPABILITY). The
manifest of every run must name the device that was asked for; else the exit status is 1, whatever
the verdict. In DIR: verdicts as text and JSON, evidence.zip, and runs.csv with the curves, also of
a session that was cut; below it the stack's state.

The first candidate whose runs have ended is judged while the others train, and its verdict is
written then. With --seconds, a job that shows at its first steps that it cannot end in that time is
cancelled, and a shorter one is trained in its place: on a GPU slower than the one of
docs/hardware.md a shorter pair with its verdict is worth more than a part of the long one.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console

from parity.cli.jobs import watching
from parity.client.rest import Client, ClientError, UnreachableError
from parity.report.view import view_of
from parity.report.words import words
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job
from server.jobs.conclude import settled
from server.process_settings import settings_or_exit
from server.settings import Settings
from tools.gpu_evidence.results import write_atomically, write_facts
from tools.gpu_evidence.steps import STEPS
from tools.gpu_evidence.text import VOCABULARY
from workers.standalone import stack as standalone
from workers.standalone.keeping import PartKeeper
from workers.standalone.processes import StartError

_CANDIDATES = {"emulated": ("fp8_current", "nvfp4"), "transformer_engine": ("fp8_current",)}
_MARGIN = "1.0%"
# on record, and in runs.csv
_COLUMNS = {
    "lm_loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "tokens": "tokens",
}
_WATCHED_SECONDS = 20.0  # of the first run's steps, from which the time of all is estimated
_STEP_RATIO = 1.4  # a step of all arms together, relative to one of bf16 alone, which trains first
_CONCLUSION_SECONDS = 45.0  # the programs of the other arms are compiled, and the judge works


class TooSlowError(Exception):
    """The job cannot end in its time; the message has its speed."""


class DeviceError(Exception):
    """A run was not trained on the device that was asked for, as its record says."""


def job_of(
    engine: str, arms: Sequence[str], steps: int, tokens: Path | None, *, small: bool
) -> dict[str, Any]:
    """A job of bf16 against each of the arms, two seeds each; of the smallest model with `small`,
    which a processor trains in seconds.
    """
    model: dict[str, Any] = {"preset": "llama3-0.3m-by128" if small else "llama3-20m"}
    data: dict[str, Any] = {"source": "python_stdlib", "validation_fraction": 0.02}
    if tokens is not None:
        data |= {"source": "tokens", "path": str(tokens)}
        model["vocab_size"] = VOCABULARY
    data |= (
        {"sequence_length": 64, "batch_size": 4}
        if small
        else {"sequence_length": 512, "batch_size": 32}
    )
    return {
        "name": f"gpu-evidence-{engine.replace('_', '-')}",
        "engine": engine,
        "layer_policy": "all_linears",
        "model": model,
        "data": data,
        "schedule": schedule_of(steps),
        "baseline": {"recipe": "bf16", "replicates": 2},
        "candidates": [{"recipe": arm, "replicates": 2} for arm in arms],
        # without it nothing would be assumed of the noise of an emulated run, and nothing decided
        "family": "any-decoder",
    }


def schedule_of(steps: int) -> dict[str, float]:
    """A schedule of so many steps: its warm-up is a tenth at most, and it ends at a tenth of its
    learning rate.
    """
    warmup, every = min(200, steps // 10), max(1, steps // 4)
    return {
        "steps": steps,
        "learning_rate": 1.0e-3,
        "warmup_steps": warmup,
        "final_fraction": 0.1,
        "validation_every": every,
    }


def shorter(steps: int, runs: int, rate: float, left: float) -> int | None:
    """The number of steps to train instead of `steps` by each of the runs, if those cannot end;
    None if they can, or if none is shorter.

    rate: steps a second of a run of the baseline. left: seconds.
    """

    def fits(count: int) -> bool:
        return count * runs * _STEP_RATIO / rate + _CONCLUSION_SECONDS <= left

    less = [count for count in STEPS if count < steps]
    if fits(steps) or not less:
        return None
    return next(filter(fits, less), less[-1])


class Pair:
    """One job from its submission to what is left of it in the folder; `facts` has all that is
    known so far.
    """

    def __init__(
        self, folder: Path, settings: Settings, facts: Path | None, seconds: float | None
    ) -> None:
        self.facts: dict[str, Any] = {"status": "not submitted", "summary": []}
        self._folder, self._settings, self._file = folder, settings, facts
        self._end = None if seconds is None else time.monotonic() + seconds
        self._first: tuple[float, int] | None = None  # when the first steps were seen, and how many
        self._is_timed = False
        self._shorter: int | None = None
        self._database: Database | None = None
        self._written = 0.0

    def train(self, job: dict[str, Any]) -> None:
        """Start the stack, submit the job and follow it; raises DeviceError for a run on another
        device.

        Raises StartError, StackRefusedError or ClientError where the stack or the job does not
        start.
        """
        console = Console(stderr=True)
        with ExitStack() as stack:
            keeper = stack.enter_context(standalone.running(self._settings, console))
            client = stack.enter_context(
                Client(f"http://{self._settings.host}:{self._settings.port}")
            )
            self._database = stack.enter_context(closing(Database(self._settings.database)))
            try:
                while (steps := self._follow(client, keeper, job, console)) is not None:
                    job = {**job, "schedule": schedule_of(steps)}
            finally:
                if "job" in self.facts:
                    self._keep_runs()

    def _follow(
        self, client: Client, keeper: PartKeeper, job: dict[str, Any], console: Console
    ) -> int | None:
        """Submit a job and follow it to its end; returns the steps of a shorter one if it was too
        slow and was cancelled.
        """
        submitted = client.submit(job, {"margin": _MARGIN})
        self.facts |= {"job": submitted["id"], "specification": job}
        self._first = None

        def check() -> None:
            keeper.check()
            self._look()
            self._check_speed(job["schedule"]["steps"])

        try:
            document = watching.follow(client, submitted["id"], console, check=check)
        except TooSlowError as error:
            client.cancel(submitted["id"])
            self.facts.setdefault("cancelled", []).append(str(error))
            return self._shorter
        self.facts |= {"status": document["status"], "message": document.get("message")}
        self._keep_verdicts(document.get("verdicts", []))
        if document["status"] == "concluded":
            self._keep_bundle(submitted["id"])
        return None

    def _check_speed(self, steps: int) -> None:
        """Raise TooSlowError once, if the speed of the first run's first steps shows that the job
        cannot end.
        """
        runs = self.facts.get("runs", [])
        if self._end is None or self._is_timed or not runs or not runs[0]["steps"]:
            return
        now = time.monotonic()
        if self._first is None:
            self._first = now, runs[0]["steps"]
        began, before = self._first
        if now - began < _WATCHED_SECONDS or runs[0]["steps"] == before:
            return
        self._is_timed = True
        rate = (runs[0]["steps"] - before) / (now - began)
        self.facts["steps_per_second"] = rate
        self._shorter = shorter(steps, len(runs), rate, self._end - now)
        if self._shorter is not None:
            raise TooSlowError(
                f"{steps} steps: {rate:.1f} steps a second of the first run, so {len(runs)} runs "
                "cannot end in time"
            )

    def _look(self) -> None:
        """Write what is known, every few seconds; judge the candidates whose runs have ended."""
        if time.monotonic() - self._written < 5.0 or self._database is None:
            return
        self._written = time.monotonic()
        with self._database.read() as session:
            judged: Collection[str] = {
                verdict["candidate"]["name"] for verdict in self.facts.get("verdicts", [])
            }
            early = settled(session, self.facts["job"], judged)
        if early:
            self._keep_verdicts([*self.facts.get("verdicts", []), *early])
        self._keep_runs()

    def _keep_verdicts(self, verdicts: Sequence[Any]) -> None:
        lines = [words(view_of(verdict)).line for verdict in verdicts]
        self.facts |= {"verdicts": list(verdicts), "lines": lines}
        write_atomically(
            self._folder / "verdicts.json", json.dumps(list(verdicts), indent=1) + "\n"
        )
        write_atomically(self._folder / "verdicts.txt", "".join(f"{line}\n" for line in lines))

    def _keep_bundle(self, job: str) -> None:
        answer = httpx2.get(
            f"http://{self._settings.host}:{self._settings.port}/api/v1/jobs/{job}/evidence.zip",
            timeout=60,
        )
        answer.raise_for_status()
        (self._folder / "evidence.zip").write_bytes(answer.content)
        self.facts["bundle"] = "evidence.zip"

    def _keep_runs(self) -> None:
        """Write the runs' states, devices and curves; raises DeviceError for a manifest that names
        another device.
        """
        if self._database is None:
            return
        runs, rows = [], []
        with self._database.read() as session:
            for run in session.get_one(Job, self.facts["job"]).runs:
                steps, columns = store.read(session, run.id, "train", [*_COLUMNS])
                device = (run.manifest or {}).get("device_class")
                runs.append(
                    {
                        "arm": run.arm.name,
                        "seed": run.seed,
                        "replicate": run.replicate,
                        "state": run.state,
                        "steps": len(steps),
                    }
                    | {"device_class": device, "message": run.message}
                )
                values = [column.tolist() for column in columns.values()]
                rows += [
                    (run.arm.name, run.replicate, run.seed, *row)
                    for row in zip(steps.tolist(), *values, strict=True)
                ]
        with (self._folder / "runs.csv").open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(("arm", "replicate", "seed", "step", *_COLUMNS.values()))
            table.writerows(rows)
        self.facts["runs"] = runs
        self.facts["summary"] = [*self.facts.get("lines", []), _progress_line(runs)]
        write_facts(self._file, self.facts)


def check_devices(runs: Sequence[dict[str, Any]], expected: str) -> None:
    """Raises DeviceError unless every run that was trained names a device of the expected platform
    in its manifest, and all the same.
    """
    named = {run["device_class"] for run in runs if run["steps"]}
    wrong = {name for name in named if name is None or name.partition(":")[0] != expected}
    if wrong or len(named) != 1:
        raise DeviceError(
            f"the runs' records name {', '.join(sorted(map(str, named))) or 'no device'}, expected "
            f"one {expected} for all"
        )


def _progress_line(runs: Sequence[dict[str, Any]]) -> str:
    done = sum(run["state"] == "finished" for run in runs)
    devices = (
        ", ".join(sorted({str(run["device_class"]) for run in runs if run["steps"]}))
        or "no device yet"
    )
    return (
        f"{done} of {len(runs)} runs finished, {sum(run['steps'] for run in runs):,} steps on "
        f"{devices}"
    )


def _settings(folder: Path, capability: str, tokens: Path | None) -> Settings:
    """The stack's settings, which its parts read from the environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["PARITY_STATE_DIR"] = str((folder / "state").resolve())
    os.environ |= {
        "PARITY_PORT": str(port),
        "PARITY_CAPABILITY": capability,
        "PARITY_MAX_ATTEMPTS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    os.environ["PARITY_SLOTS"] = "2" if capability == "cpu" else "1"
    if capability == "cpu":
        del os.environ["CUDA_VISIBLE_DEVICES"]
    if tokens is not None:
        os.environ["PARITY_DATA_ROOTS"] = json.dumps([str(tokens.parent)])
    settings = settings_or_exit()
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    # the training processes share the session's compiled programs
    if shared := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        Path(shared).mkdir(parents=True, exist_ok=True)
        (settings.state_dir / "jax-cache").symlink_to(shared)
    return settings


def main() -> int:
    """Train the pair; 0 with a verdict on the right device, 1 without one, 143 after SIGTERM, with
    what was trained by then.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence.pair", description="A pair trained through the service."
    )
    parser.add_argument("engine", choices=list(_CANDIDATES))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--arms", nargs="+")
    parser.add_argument("--small", action="store_true")
    parser.add_argument(
        "--seconds", type=float, help="time in which the job has to end; by default it has any"
    )
    parser.add_argument("--facts", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    is_processor = os.environ.get("JAX_PLATFORMS") == "cpu"
    capability = (
        "cpu" if is_processor else {"emulated": "gpu", "transformer_engine": "sm90"}[options.engine]
    )
    job = job_of(
        options.engine,
        options.arms or _CANDIDATES[options.engine],
        options.steps,
        options.tokens,
        small=options.small,
    )
    pair = Pair(
        options.folder,
        _settings(options.folder, capability, options.tokens),
        options.facts,
        options.seconds,
    )
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        pair.train(job)
        check_devices(pair.facts.get("runs", []), "cpu" if is_processor else "gpu")
    except (
        DeviceError,
        StartError,
        standalone.StackRefusedError,
        ClientError,
        UnreachableError,
        OSError,
        httpx2.HTTPError,
    ) as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    finally:
        with suppress(OSError):
            write_facts(options.facts, pair.facts)
    if pair.facts["status"] != "concluded":
        sys.stdout.write(f"the job ended as {pair.facts['status']}: {pair.facts.get('message')}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
