"""A Slurm and a Kubernetes of the tests, and a worker that submits to them, step by step in the
test's own thread.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from workers.submitted import Submitter

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel")


class PlaySlurm:
    """Programs of Slurm in a folder for PATH, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        play = Path(__file__).with_name("play_slurm.py")
        for name in PROGRAMS:
            program = self.programs / name
            program.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -I -S "{play}" "{folder}" {name} "$@"\n'
            )
            program.chmod(0o755)

    @property
    def path(self) -> str:
        return os.pathsep.join((str(self.programs), os.environ["PATH"]))

    def call(self, *command: str) -> str:
        return subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def jobs(self) -> dict[str, dict]:
        self.call("squeue", "--states=all")
        return marshal.loads((self.folder / "jobs").read_bytes())  # noqa: S302

    def calls(self, program: str) -> list[list[str]]:
        made = []
        with (self.folder / "calls").open("rb") as file, contextlib.suppress(EOFError):
            while True:
                made.append(marshal.load(file))  # noqa: S302
        return [call for call in made if call[0] == program]

    def is_down(self, down: bool) -> None:
        _present(self.folder / "down", down)

    def is_full(self, full: bool) -> None:
        _present(self.folder / "full", full)

    def forget(self, job_id: str, **values: object) -> None:
        """Give a job an older state, as a controller does that was killed before it saved the newer
        one.
        """
        path = self.folder / "jobs"
        jobs = marshal.loads(path.read_bytes())  # noqa: S302
        jobs[job_id] |= {"pid": 0, **values}
        path.write_bytes(marshal.dumps(jobs))

    def cancel_all(self) -> None:
        self.is_down(False)
        for job_id in self.jobs():
            self.call("scancel", job_id)


class PlayKubernetes:
    """An API server of the tests (`play_kubernetes.py`) for the real kubectl, and what its Jobs
    did.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        play = Path(__file__).with_name("play_kubernetes.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(play), str(folder)], start_new_session=True
        )
        deadline = time.monotonic() + 60
        while not (folder / "port").exists():
            assert time.monotonic() < deadline, "the API server did not start"
            time.sleep(0.02)
        self.address = f"http://127.0.0.1:{(folder / 'port').read_text()}"
        self.kubeconfig = folder / "kubeconfig"
        cluster, context = {"server": self.address}, {"cluster": "play", "user": "play"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "play", "cluster": cluster}],
            "users": [{"name": "play", "user": {}}],
            "contexts": [{"name": "play", "context": context}],
            "current-context": "play",
        }
        self.kubeconfig.write_text(json.dumps(config))
        self.template = folder / "job.yaml"
        self.template.write_text(
            "apiVersion: batch/v1\nkind: Job\nspec:\n  backoffLimit: 3\n  template:\n    spec:\n   "
            "   restartPolicy: Never\n"
            "      containers:\n        - {name: trainer, image: example/trainer}\n"
        )

    @property
    def launcher(self) -> str:
        return (
            f'{{template = "{self.template}", kubeconfig = "{self.kubeconfig}", namespace = "ml"}}'
        )

    def jobs(self) -> dict[str, dict]:
        return {item["metadata"]["name"]: item for item in self._get("jobs")}

    def started(self) -> list[str]:
        """The names of Jobs by their starts."""
        return [event["started"] for event in self._events() if "started" in event]

    def created(self) -> list[str]:
        return [event["created"] for event in self._events() if "created" in event]

    def start_again(self, name: str) -> None:
        urllib.request.urlopen(  # noqa: S310
            urllib.request.Request(f"{self.address}/again/{name}", method="POST"),  # noqa: S310
            timeout=60,
        ).close()

    def is_down(self, down: bool) -> None:
        _present(self.folder / "down", down)

    def is_full(self, full: bool) -> None:
        _present(self.folder / "full", full)

    def end(self) -> None:
        self.is_down(False)
        for name in self.jobs():
            request = urllib.request.Request(  # noqa: S310
                f"{self.address}/apis/batch/v1/namespaces/ml/jobs/{name}", method="DELETE"
            )
            urllib.request.urlopen(request, timeout=60).close()  # noqa: S310
        self._process.kill()
        self._process.wait()

    def _get(self, kind: str) -> list[dict]:
        with urllib.request.urlopen(  # noqa: S310
            f"{self.address}/apis/batch/v1/namespaces/ml/{kind}", timeout=60
        ) as answer:
            return json.load(answer)["items"]

    def _events(self) -> list[dict]:
        path = self.folder / "events"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _present(path: Path, exists: bool) -> None:
    path.touch() if exists else path.unlink(missing_ok=True)


class AtOnce:
    """A pool of threads without threads."""

    def submit(self, work: Callable[..., object], *values: object) -> Future:
        done: Future = Future()
        done.set_result(work(*values))
        return done


class Stepping:
    """A submitter whose rounds a test makes; each round claims, follows and asks the scheduler
    once.
    """

    def __init__(self, stack, **changes: object) -> None:
        settings = stack.settings.model_copy(
            update={
                "reconcile_seconds": 0.01,
                "heartbeat_seconds": 0.05,
                "flush_seconds": 0.01,
                **changes,
            }
        )
        self.submitter = Submitter(settings, stack.database, stack.worker, threading.Event())
        self._pool = AtOnce()

    def round(self) -> None:
        self.submitter.wake()
        self.submitter._claim(self._pool)
        self.submitter._renew()
        self.submitter._follow(self._pool)
        self.submitter.sweep()

    def until(self, ready: Callable[[], object], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, "not in time"
            self.round()
            time.sleep(0.1)  # the cores are the trainers' meanwhile

    def forget(self) -> None:
        """Let go of everything without a word, as a worker that was killed does."""
        for run in self.submitter._runs.values():
            run.close()
        self.submitter._runs.clear()
