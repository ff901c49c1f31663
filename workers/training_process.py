"""One training process: starts it in its own process group, reads its messages, measures its
memory, and kills the group at the end.
"""

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from server.settings import CHECKOUT, Settings
from workers import leftovers
from workers.protocol import CommandRequest, Message, TrainRequest

_log = logging.getLogger(__name__)

_LOG_LINES, _LOG_BYTES = 50, 65_536
_LONGEST_ARGUMENT = 100_000  # bytes; Linux accepts 131,072
_EXIT_SECONDS = 5.0
# between SIGTERM and SIGKILL, for a wrapper that ends its processes on other machines
_TERMINATE_SECONDS = 15.0
_CLOSE_SECONDS = 2.0  # for a wrapper whose first process ends as its input closes


class TrainingProcess:
    """A running training process. `None` follows its last message."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._messages: queue.Queue[Message | None] = queue.Queue()
        self.has_trained = False
        """Whether it has sent that the run was trained to its end; then it ends by itself."""
        threading.Thread(target=self._pump, name=f"run-{process.pid}", daemon=True).start()

    def go_ahead(self) -> None:
        """Let a trainer start that waits until its manifest is on record
        (`workers.commands.commit_trainer`).
        """
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def messages(self, seconds: float) -> Iterator[Message | None]:
        """All messages that have arrived, after waiting at most `seconds` for the first."""
        try:
            yield self._messages.get(timeout=seconds)
            while True:
                yield self._messages.get_nowait()
        except queue.Empty:
            return

    def memory_bytes(self) -> int:
        """Bytes of memory of the process and its children; 0 once it has ended."""
        total = 0
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
        return total

    def was_terminated(self) -> bool:
        """Whether SIGTERM ended it, which the worker itself sends only later: it came from a
        scheduler, or from an operator.
        """
        # a wrapper reports the signal of its processes as srun does
        return self._status() in (-signal.SIGTERM, 128 + signal.SIGTERM)

    def how_it_ended(self) -> str:
        """A sentence with its exit status, a likely cause where there is one, and the end of its
        log.
        """
        status = self._status()
        what = (
            "closed its pipe but did not end" if status is None else f"ended with status {status}"
        )
        hint = ""
        if status == -signal.SIGKILL:
            hint = (
                " (killed from outside, for example by the kernel if memory ran out; in that case "
                "reduce data.batch_size or the model)"
            )
        return f"the training process {what}{hint}; the end of its log: {self._tail()}"

    def _status(self) -> int | None:
        """Its exit status; None if it closed its pipe but goes on."""
        try:
            return self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def _tail(self) -> str:
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
        # the first line is cut
        whole = text.splitlines()[1 if size > _LOG_BYTES and "\n" in text else 0 :]
        return "\n".join(whole[-_LOG_LINES:]) or "(empty)"

    def _pump(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101
        try:
            with stdout:
                for line in stdout:
                    message: Message = json.loads(line)
                    self.has_trained = self.has_trained or message["kind"] == "end"
                    self._messages.put(message)
        except (ValueError, TypeError, KeyError):
            _log.warning("process %d ended within a line", self._process.pid)
        finally:
            self._messages.put(None)


def command(settings: Settings, *arguments: str) -> list[str]:
    """The command that starts one of our modules, under the wrapper if there is one."""
    python = (settings.wrapper_python if settings.wrapper else "") or sys.executable
    return [*settings.wrapper, python, "-m", *arguments]


@contextmanager
def started(
    settings: Settings,
    request: TrainRequest | CommandRequest,
    environment: Mapping[str, str],
    log_path: Path,
) -> Iterator[TrainingProcess]:
    """Start a training process with its request; the end of the block kills it with its whole
    group.

    If this worker dies first, a watcher ends the process; `log_path` names the run and its attempt.

    Under a wrapper the request is an argument, since not every wrapper passes standard input to all
    of its processes, and a large one (an analysis has all results in it) is a file next to the log,
    whose path is the argument; and the wrapper gets SIGTERM before it is killed, so that it can end
    the processes that it started on other machines.
    """
    line = json.dumps(request)
    wrapped = bool(settings.wrapper)
    with ExitStack() as watch:
        arguments = [watch.enter_context(_argument(line, log_path))] if wrapped else []
        log = watch.enter_context(log_path.open("w", encoding="utf-8"))
        process = subprocess.Popen(
            command(
                settings,
                "workers.commands.commit_trainer" if "launchers" in request else "workers.child",
                *arguments,
            ),
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
        assert stdin is not None  # noqa: S101
        trainer = TrainingProcess(process, log_path)
        try:
            watch.enter_context(
                leftovers.watched(
                    process.pid, log_path.stem, settings.processes, terminate_seconds(settings), log
                )
            )
            # it has already ended; its messages and its status give the reason
            with suppress(BrokenPipeError):
                if not wrapped:
                    stdin.write(line + "\n")
                    stdin.flush()
            yield trainer
        finally:
            if wrapped:
                _terminate(process, has_trained=trainer.has_trained)
            with suppress(ProcessLookupError):  # it had ended already, with all its children
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with suppress(BrokenPipeError):
                stdin.close()


@contextmanager
def _argument(line: str, log_path: Path) -> Iterator[str]:
    """A request as an argument of a command: itself, or `@` and the path of a file that holds it
    until the end of the block.
    """
    if len(line.encode()) <= _LONGEST_ARGUMENT:
        yield line
        return
    file = log_path.with_suffix(".request.json")
    try:
        file.write_text(line, encoding="utf-8")
        yield f"@{file.absolute()}"
    finally:
        file.unlink(missing_ok=True)


def terminate_seconds(settings: Settings) -> float:
    """Seconds between SIGTERM and SIGKILL for a process whose worker is gone."""
    if settings.wrapper:
        return _TERMINATE_SECONDS
    return _EXIT_SECONDS


def _terminate(process: subprocess.Popen[str], *, has_trained: bool) -> None:
    """Close the input, which ends our own process; then wait for the wrapper, and send SIGTERM if
    it continues.

    A wrapper whose processes have trained the run gets time first, so that it does not log its end
    as cancelled.
    """
    if has_trained:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TERMINATE_SECONDS)
            return
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_CLOSE_SECONDS)
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)
