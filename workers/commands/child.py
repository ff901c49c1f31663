"""The process that trains a commit by a launcher: it checks the commit out, starts the trainer, follows its report, says how it ended.

    python -m workers.commands.child      its request on standard input, as `workers.child` has it

It speaks the messages of `workers.protocol`, so the supervisor treats it like any training process: its process group, which the trainer is
in, is killed at the end, and a watcher ends it if the worker dies. It loads neither jax nor the database.

    1. checkout     the files that decide the training, and their digest: the manifest
    2. go-ahead     one line from the supervisor, which it sends unless the curve of an equal run is reused; nothing was started before
    3. proof        once for each launcher: started without those files, the trainer must not report a loss. One that does runs code of its
                    own, not the commit's, and every verdict on a commit would be about nothing
    4. training     and the report of it
"""

import json
import os
import platform
import pwd
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

import psutil

from parity.judging.schedule import last_recorded
from training.command import PINNED, Command
from training.spec import Data, Model, RunSpec, Schedule
from workers.commands import checkout
from workers.commands.checkout import CheckoutError, Tree
from workers.commands.follow import Follower, LogRefusedError, Report
from workers.commands.launchers import STDOUT, Launcher, LauncherError, read_launchers
from workers.protocol import CRASHED, CommandRequest, claim_stdout

_POLL_SECONDS = 0.25
_SHARE_OF_TIME = 0.1  # that following a long report may take
_SIZE_SECONDS, _SIZE_SHARE = 1.0, 0.05  # between two looks at the size of the output, and the most of the time that they may take
_TERMINATE_SECONDS = 10.0
_ASK_SECONDS = 30.0  # for nvidia-smi, which may load a driver first
_TAIL_BYTES, _TAIL_LINES = 16_384, 30
_PIECE, _MOST_LOG_BYTES = 1 << 20, 64 * 2**20


class _EndedError(Exception):
    """How a trainer ended, where that is not its last step; `kind` is that of the message (`workers.protocol.ErrorMessage`)."""

    def __init__(self, code: str, message: str, kind: Literal["error", "broke_off"] = "error") -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


class _Sender:
    """Writes messages, one line each, from any thread."""

    def __init__(self, out: IO[str]) -> None:
        self._out, self._lock = out, threading.Lock()

    def __call__(self, kind: str, **values: object) -> None:
        with self._lock:
            self._out.write(json.dumps({"kind": kind, **values}) + "\n")
            self._out.flush()


def main() -> int:
    """Train the run on standard input; exits 0 after its end or its error was sent."""
    request: CommandRequest = json.loads(sys.stdin.readline())
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    send = _Sender(claim_stdout())
    alive = threading.Thread(target=_show_life, args=(send,), daemon=True)
    alive.start()
    try:
        _run(request, lines, send)
    except _EndedError as ended:
        _send_end(send, ended.kind, ended.code, str(ended))
    except CheckoutError as error:
        _send_end(send, "broke_off" if error.transient else "error", error.code, str(error))
    except (LauncherError, LogRefusedError) as error:
        send("error", code=error.code, message=str(error))
    else:
        send("end")
    return 0


def _send_end(send: _Sender, kind: str, code: str, message: str) -> None:
    """Send how it ended. An attempt that is tried again is a crash on record, whatever its code, so that its message has the code."""
    send(kind, code=code, message=f"{code}: {message}" if kind == "broke_off" else message)


def _run(request: CommandRequest, lines: "queue.Queue[str]", send: _Sender) -> None:
    spec = _spec(request["spec"])
    assert spec.command is not None  # noqa: S101 (of engine command)
    try:
        launchers = read_launchers(Path(request["launchers"]))
    except LauncherError as error:  # its operator may be writing it
        raise _EndedError(error.code, str(error), "broke_off") from None
    launcher = launchers.get(spec.command.launcher)
    if launcher is None:
        known = ", ".join(launchers)
        raise LauncherError(f"this worker has no launcher {spec.command.launcher!r}, expected one of {known}", "LAUNCHER_UNKNOWN")
    launcher.check(spec)
    mirror, tree = checkout.find(launcher, spec.revision, Path(request["mirrors"]))
    send("manifest", manifest=manifest(launcher, spec, tree), rounding=None)
    lines.get()  # the go-ahead
    folder = Path(request["folder"])
    _prove(launcher, spec, request)
    source = folder / "source"
    source.mkdir(parents=True)
    checkout.write(launcher, mirror, tree, source)
    with _trainer(launcher, spec, folder, Path(request["checkpoints"])) as trainer:
        trainer.train(send)
    if changed := checkout.changes(tree, source):
        send("note", message=f"the trainer changed files of its commit while it ran: {', '.join(changed[:3])}")


def _spec(values: Mapping[str, Any]) -> RunSpec:
    """A run from its document, which says nothing of a model or data."""
    own = {name: values[name] for name in ("recipe", "engine", "seed", "replicate", "revision")}
    return RunSpec(
        **own,
        environment=values.get("environment", ""),
        command=Command(**values["command"]),
        schedule=Schedule(**values["schedule"]),
        model=Model(),
        data=Data(),
        layer_policy="all_linears",
        devices=1,
    )


def manifest(launcher: Launcher, spec: RunSpec, tree: Tree) -> dict[str, str]:
    """The facts of a run that must agree between arms, and those that say what was compared. The commit is shown, its files decide."""
    assert spec.command is not None  # noqa: S101 (of engine command)
    facts = {
        "engine": spec.engine,
        "launcher": launcher.name,
        "launcher_digest": launcher.digest,
        "parameters": json.dumps(launcher.check(spec), sort_keys=True),
        "repository": checkout.shown(launcher),
        "code_revision": spec.revision,
        "code_digest": tree.digest,
    }
    stated = {"environment": spec.environment, PINNED: launcher.pinned, "device_class": launcher.device_class or _devices()}
    return facts | {name: value for name, value in stated.items() if value}


def _devices() -> str:
    """What this machine trains on, as far as it can be asked: its GPUs by name and number, else its processor."""
    try:
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        named = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return f"cpu:{platform.machine()}"
    return ", ".join(f"{number} x {name}" for name, number in Counter(named).items())


def _prove(launcher: Launcher, spec: RunSpec, request: CommandRequest) -> None:
    """Start the launcher without the commit's files, once for its digest. Raises LauncherError if that trains."""
    record = Path(request["proofs"]) / launcher.digest
    if not record.exists():
        folder = Path(request["folder"]) / "without"
        with _trainer(launcher, spec, folder, folder / "checkpoints") as trainer:
            step = trainer.first_step()
        shutil.rmtree(folder, ignore_errors=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("" if step is None else str(step), encoding="utf-8")
    if step_text := record.read_text(encoding="utf-8"):
        raise LauncherError(
            f"launcher {launcher.name} does not run the commit: started without the files of its paths ({', '.join(launcher.paths)}) it "
            f"still reported the loss of step {step_text}. Let its command start a file of the repository"
        )


@contextmanager
def _trainer(launcher: Launcher, spec: RunSpec, folder: Path, checkpoints: Path) -> "Iterator[_Trainer]":
    """A started trainer in a folder of its own; ended with all its children at the end of the block."""
    source, output = folder / "source", folder / "output"
    for place in (source, output, checkpoints):
        place.mkdir(parents=True, exist_ok=True)
    account = pwd.getpwnam(launcher.user) if launcher.user else None
    if account is not None:
        for place in (output, checkpoints):
            os.chown(place, account.pw_uid, account.pw_gid)
    places = {"source": str(source), "output": str(output), "checkpoints": str(checkpoints)}
    holder = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    own = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    printed = _Printed(folder / STDOUT)
    try:
        try:
            process = subprocess.Popen(
                launcher.argv(spec, places),
                cwd=source,
                env=launcher.variables(spec, places),
                stdin=subprocess.DEVNULL,
                stdout=printed.descriptor,
                stderr=sys.stderr if launcher.reports.path == STDOUT else subprocess.STDOUT,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [account.pw_gid],
            )
        except OSError as error:
            raise LauncherError(f"launcher {launcher.name} cannot start {launcher.command[0]!r}: {error.strerror}") from None
        reports = launcher.reports
        base, path = (own, STDOUT) if reports.path == STDOUT else (holder, reports.path)
        follower = Follower(base, path, reports.pattern, last_recorded(spec.schedule.steps))
        try:
            yield _Trainer(launcher, spec, process, follower, printed, output)
        finally:
            _end(process)
            printed.copy()
            follower.close()
    finally:
        printed.close()
        os.close(holder)
        os.close(own)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a trainer, and what it started, also outside of its group."""
    others: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        others = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)
    for each in others:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            each.kill()
    process.kill()
    process.wait()


class _Printed:
    """What a trainer prints: a file that is read by its own descriptor, whatever the trainer puts in its place."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self._copied = 0

    def copy(self) -> None:
        """Copy what is new to the log of the attempt, as far as a reader would look."""
        while self._copied < _MOST_LOG_BYTES and (piece := os.pread(self.descriptor, _PIECE, self._copied)):
            self._copied += len(piece)
            sys.stderr.buffer.write(piece)
        sys.stderr.flush()

    def tail(self) -> str:
        """The last lines."""
        size = os.fstat(self.descriptor).st_size
        lines = os.pread(self.descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:]) or "(empty)"

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


class _Trainer:
    """A running trainer and the report that it writes."""

    def __init__(
        self, launcher: Launcher, spec: RunSpec, process: "subprocess.Popen[bytes]", follower: Follower, printed: _Printed, output: Path
    ) -> None:
        self._launcher, self._spec, self._process, self._follower = launcher, spec, process, follower
        self._printed, self._output = printed, output
        self._seen = 0
        self._began = self._wrote = time.monotonic()
        self._next_size_check = self._began

    def first_step(self) -> int | None:
        """Wait for the first reported step, or for the trainer's end without one."""
        while True:
            ended = self._process.poll() is not None
            with suppress(LogRefusedError):
                self._follower.finish() if ended else self._follower.poll()
            if self._follower.last_step is not None or ended:
                return self._follower.last_step
            self._check_limits()
            time.sleep(_POLL_SECONDS)

    def train(self, send: _Sender) -> None:
        """Follow the trainer to its end. Raises _EndedError for any end but that of its last step, LogRefusedError."""
        while True:
            looked = time.monotonic()
            ended = self._process.poll() is not None
            _send_rows(send, self._follower.finish() if ended else self._follower.poll())
            if ended:
                break
            self._printed.copy()
            self._check_limits()
            time.sleep(max(_POLL_SECONDS, (time.monotonic() - looked) / _SHARE_OF_TIME))
        self._check_end()

    def _check_end(self) -> None:
        status, last = self._process.returncode, self._follower.last_step
        if status < 0:
            raise _EndedError("TRAINER_KILLED", f"the trainer was killed by signal {-status}{self._end_of_log()}", "broke_off")
        if status and self._follower.has_diverged:  # many trainers stop at a NaN, and say so by their status
            why = f"the loss of step {last} is not finite, and the trainer ended with status {status}"
            raise _EndedError("DIVERGED", f"{why}{self._end_of_log()}")
        if status:
            raise _EndedError("TRAINER_FAILED", f"the trainer ended with status {status}{self._end_of_log()}")
        if last is None:
            why = f"the trainer ended without a loss: {self._follower.problem()}"
            raise _EndedError("NO_LOSS", f"{why}{self._end_of_log()}")
        planned, above = self._spec.schedule.steps, self._follower.left_out
        if above is not None:
            message = f"the trainer reported step {above:,} of {planned:,}; no step after {last_recorded(planned):,} is recorded"
            raise _EndedError("STEPS_ABOVE_PLAN", message)
        if not self._follower.reaches(planned):
            message = f"the trainer ended at step {last:,} of {planned:,}, and said that it had succeeded{self._end_of_log()}"
            raise _EndedError("ENDED_EARLY", message)

    def _check_limits(self) -> None:
        limits, now = self._launcher.limits, time.monotonic()
        seen = self._follower.bytes_seen
        if seen != self._seen:
            self._seen, self._wrote = seen, now
        if now - self._began > limits.seconds:
            raise _EndedError("TIME_LIMIT", f"the trainer ran for longer than its launcher's {limits.seconds:g} s")
        if now - self._wrote > limits.silent_seconds:
            why = f"the trainer reported nothing for {limits.silent_seconds:g} s"
            raise _EndedError("TRAINER_SILENT", f"{why}{self._end_of_log()}", "broke_off")
        if now > self._next_size_check:
            size = _bytes_below(self._output)
            self._next_size_check = now + max(_SIZE_SECONDS, (time.monotonic() - now) / _SIZE_SHARE)
            if size > limits.output_bytes:
                message = f"the trainer wrote {size:,} bytes, expected at most its launcher's {limits.output_bytes:,.0f}"
                raise _EndedError("OUTPUT_LIMIT", message)

    def _end_of_log(self) -> str:
        return f"; the end of its output: {self._printed.tail()}"


def _send_rows(send: _Sender, report: Report | None) -> None:
    if report is None:
        return
    columns = {name: values.tolist() for name, values in report.columns.items()}
    send("report", steps=report.steps.tolist(), columns=columns)
    for step, loss in zip(report.validation["step"].tolist(), report.validation["loss"].tolist(), strict=True):
        send("row", name="validation", step=int(step), columns={"loss": loss})


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 (of many thousand files)
    return total


def _listen(lines: "queue.Queue[str]") -> None:
    """Hand on the supervisor's lines; its end is the end of this process, and of the trainer in its group."""
    while line := sys.stdin.readline():
        lines.put(line)
    # With the whole group: a watcher that finds this process gone takes the trainer for gone as well.
    with suppress(PermissionError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(CRASHED)


def _show_life(send: _Sender) -> None:
    while True:
        time.sleep(5.0)
        send("alive")


if __name__ == "__main__":
    sys.exit(main())
