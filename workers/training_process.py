"""One training process in its slot: a core or a GPU, its own process group, its messages, memory
and end.
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

from parity.frozen import frozen
from server.settings import CHECKOUT, Settings
from training.command import ENGINE as COMMAND
from workers import leftovers
from workers.protocol import CommandRequest, Message, TrainRequest

# Slots of a worker, one core or one GPU each, and the environment of the training process in a
# slot.
#
# The environment is part of a run: one variable such as NVTE_NVFP4_DISABLE_RHT=1 silently turns
# nvfp4 into another recipe. So a training process gets only the variables listed here; those that
# affect bits are recorded with the run (`training.trainer.checkpoint.manifest`), and no secret of
# the service reaches it.

# Paths of programs, libraries, certificates and temporary files, and the language of messages.
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TERM",
        "LD_LIBRARY_PATH",
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
)
# Settings of jax, XLA, CUDA and Transformer Engine; the manifest records those that affect bits.
_PREFIXES = (
    "LC_",
    "NVTE_",
    "XLA_",
    "JAX_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "OMP_",
    "TF_CPP_",
    "DECOUPLE_",
    "HF_HOME",
    "HF_HUB_OFFLINE",
)
# For a wrapper to find its allocation, and for its processes to find each other
# (training.environment.processes).
_WRAPPERS = (
    "SLURM_",
    "PMI",
    "OMPI_",
    "PRTE_",
    "HYDRA_",
    "KUBE",
    "PARITY_PROCESS",
    "PARITY_COORDINATOR",
    "JOB_COMPLETION_INDEX",
    "MUNGE_",
)
_ENGINES = ("PARITY_MAXTEXT_PYTHON",)  # the path of an engine's own trainer

# XLA frees its buffers after every block of steps and allocates them again. With 4 KiB pages, the
# page faults cost half a step of 1 M parameters (131 ms instead of 94 ms for a block of one step).
# This changes no bits, and has no effect without glibc.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


@frozen
class Slot:
    """One processor core or one GPU (an entry of CUDA_VISIBLE_DEVICES); None: not pinned."""

    core: int | None = None
    gpu: str | None = None


def slots(settings: Settings) -> list[Slot]:
    """The slots of this worker: one core each for emulated runs, one GPU each on a GPU machine; not
    pinned under a wrapper, which places its processes itself, and for the trainers of launchers.

    Raises ValueError if CUDA_VISIBLE_DEVICES names fewer GPUs than there are slots. A GPU named
    twice counts once.
    """
    if settings.wrapper or settings.capability == COMMAND:
        return [Slot()] * settings.slots
    if settings.capability != "cpu":
        named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(settings.slots))))
        gpus = list(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))
        if len(gpus) < settings.slots:
            raise ValueError(
                f"PARITY_SLOTS is {settings.slots}, expected at most the {len(gpus)} GPUs of "
                f"CUDA_VISIBLE_DEVICES={named}"
            )
        return [Slot(gpu=gpus[slot]) for slot in range(settings.slots)]
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [
        Slot(core=usable[slot] if len(usable) >= settings.slots else None)
        for slot in range(settings.slots)
    ]


def environment(
    settings: Settings, slot: Slot, given: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The complete environment of a training process in this slot."""
    prefixes = (*_PREFIXES, *_WRAPPERS) if settings.wrapper else _PREFIXES
    kept = {
        name: value
        for name, value in given.items()
        if name in _NAMES or name in _ENGINES or name.startswith(prefixes)
    }
    kept |= {
        # An absolute path without links: the path is part of jax's cache key, so another name for
        # the same folder would find nothing.
        "JAX_COMPILATION_CACHE_DIR": str((settings.state_dir / "jax-cache").resolve()),
        # Explicit, so that a machine without its GPU fails the run instead of training it on the
        # CPU.
        "JAX_PLATFORMS": "cpu" if settings.capability == "cpu" else "cuda",
        "PYTHONUNBUFFERED": "1",
        "GLIBC_TUNABLES": given.get("GLIBC_TUNABLES", HUGE_PAGES),
    }
    return kept | ({"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu is not None else {})


# One training process: starts it in its own process group, reads its messages, measures its memory,
# and kills the group at the end.

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
        (`workers.commands.child`).
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
            own = psutil.Process(self._process.pid)
            for process in (own, *own.children(recursive=True)):
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
                "workers.commands.child" if "launchers" in request else "workers.child",
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
