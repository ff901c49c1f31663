"""One training process: started in a group of its own, listened to, measured, and gone with all its children at the end."""

from __future__ import annotations

import json
import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from server.settings import CHECKOUT, Settings

_log = logging.getLogger(__name__)
_LOG_LINES = 50
_EXIT_SECONDS = 5.0
_TERMINATE_SECONDS = 15.0
_CLOSE_SECONDS = 2.0  # for a launcher whose first process ends as its input closes
_REPORT_SECONDS = 120.0  # for Nsight Systems to write its report after the process has ended


class Trainer:
    """A running training process. Its messages are JSON objects, `None` after the last."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._pump, name=f"run-{process.pid}", daemon=True).start()

    def messages(self, seconds: float) -> Iterator[dict[str, Any] | None]:
        """Everything that has come, after waiting at most so long for the first."""
        try:
            yield self._messages.get(timeout=seconds)
            while True:
                yield self._messages.get_nowait()
        except queue.Empty:
            return

    def memory_bytes(self) -> int:
        """What the process and its children hold of the machine's memory; 0 once it has ended."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            total = process.memory_info().rss
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    total += child.memory_info().rss
            return int(total)
        return 0

    def how_it_ended(self) -> str:
        """A sentence with its exit status, a likely cause where there is one, and the end of its log."""
        try:
            status: int | None = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        what = "closed its pipe but did not end" if status is None else f"ended with status {status}"
        hint = ""
        if status == -signal.SIGKILL:
            hint = " (killed from outside; the kernel does so when memory runs out: then reduce data.batch_size or the model)"
        return f"the training process {what}{hint}; the end of its log: {self._tail()}"

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join(lines) or "(empty)"

    def _pump(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 (PIPE)
        try:
            with stdout:
                for line in stdout:
                    self._messages.put(json.loads(line))
        except ValueError:
            _log.warning("process %d broke off inside a line", self._process.pid)
        finally:
            self._messages.put(None)


def command(settings: Settings, *arguments: str) -> list[str]:
    """The command that starts a module of ours as a run's process starts, under the launcher where there is one."""
    return [*settings.launcher, *_ours(settings, *arguments)]


def _ours(settings: Settings, *arguments: str) -> list[str]:
    return [(settings.launcher_python if settings.launcher else "") or sys.executable, "-m", *arguments]


def nsys(settings: Settings, artifacts: str) -> list[str]:
    """What records a process with Nsight Systems into the folder of a run's profiles; empty where it is not asked for or not there."""
    if not settings.nsys:
        return []
    found = shutil.which("nsys")
    if found is None:
        _log.warning("PARITY_NSYS is set and nsys is not on the PATH of this worker; the run is not recorded")
        return []
    Path(artifacts).mkdir(parents=True, exist_ok=True)
    options = ("--trace=cuda,nvtx,osrt,cublas,cudnn", "--force-overwrite=true", f"--output={artifacts}/nsys-%h-%p")
    return [found, "profile", *options]


@contextmanager
def started(settings: Settings, request: Mapping[str, Any], environment: Mapping[str, str], log_path: Path) -> Iterator[Trainer]:
    """A training process that was given its request, and is gone when the block ends, its whole group with it.

    Under a launcher the request is an argument, since not every one gives standard input to all of its processes; the launcher is asked
    to end before it is killed, because what it started elsewhere ends with it only then.
    """
    told = json.dumps(request)
    launched = bool(settings.launcher)
    recorder = nsys(settings, request["artifacts"])
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*settings.launcher, *recorder, *_ours(settings, "workers.child", *([told] if launched else []))],
            cwd=CHECKOUT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 (PIPE)
    try:
        with suppress(BrokenPipeError):  # it ended already; its messages and its status say why
            if not launched:
                stdin.write(told + "\n")
                stdin.flush()
        yield Trainer(process, log_path)
    finally:
        if launched or recorder:
            _ask_to_end(process, _REPORT_SECONDS if recorder else _CLOSE_SECONDS)
        with suppress(ProcessLookupError):  # it had ended already, with all its children
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with suppress(BrokenPipeError):
            stdin.close()


def _ask_to_end(process: subprocess.Popen[str], seconds: float) -> None:
    """Close the input, which ends our own process; wait so long for what stands around it, then tell that to end and wait again."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)
