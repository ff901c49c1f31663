"""The process that trains a commit by a launcher: it checks the commit out, starts the trainer,
follows its report (`launched_trainer`, which says how it ended) and passes on what it reports.

    python -m workers.commands.commit_trainer   its request on standard input, as of `workers.child`

It speaks the messages of `workers.protocol`, so the supervisor treats it like any training process:
its process group, which the trainer is in, is killed at the end, and a watcher ends it if the
worker dies. It loads neither jax nor the database.

    1. checkout     the files that decide the training, and their digest: the manifest
    2. go-ahead     one line from the supervisor, which it sends unless the curve of an equal run is
                    reused; nothing was started before
    3. proof        once for each launcher: started without those files, the trainer must not report
                    a loss. One that does runs code of its own, not the commit's, and every verdict
                    on a commit would be about nothing
    4. training     and the report of it
"""

import json
import os
import pwd
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from parity.judging.curves.outside_plan import last_recorded
from training.command import Command
from training.spec import Data, Model, RunSpec, Schedule
from workers.commands import checkout
from workers.commands.checkout import CheckoutError
from workers.commands.follow import LogRefusedError, Report, ReportFollower
from workers.commands.launched_trainer import (
    EndedError,
    Watch,
    launcher_of,
    manifest,
    tail_of,
    trains_without_its_commit,
)
from workers.commands.launchers import STDOUT, Launcher, LauncherError
from workers.commands.layer_logs import layer_messages
from workers.protocol import CRASHED, CommandRequest, claim_stdout

_POLL_SECONDS = 0.25
_SHARE_OF_TIME = 0.1  # that following a long report may take
# between two looks at the size of the output, and the most of the time that they may take
_SIZE_SECONDS, _SIZE_SHARE = 1.0, 0.05
_TERMINATE_SECONDS = 10.0
_PIECE, _MOST_LOG_BYTES = 1 << 20, 64 * 2**20


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
    except EndedError as ended:
        _send_end(send, ended.kind, ended.code, str(ended))
    except CheckoutError as error:
        _send_end(send, "broke_off" if error.transient else "error", error.code, str(error))
    except (LauncherError, LogRefusedError) as error:
        send("error", code=error.code, message=str(error))
    else:
        send("end")
    return 0


def _send_end(send: _Sender, kind: str, code: str, message: str) -> None:
    """Send how it ended. An attempt that is tried again is a crash on record, whatever its code, so
    that its message has the code.
    """
    send(kind, code=code, message=f"{code}: {message}" if kind == "broke_off" else message)


def _run(request: CommandRequest, lines: "queue.Queue[str]", send: _Sender) -> None:
    spec = _spec(request["spec"])
    launcher = launcher_of(spec, Path(request["launchers"]))
    mirror, tree = checkout.find(launcher, spec.revision, Path(request["mirrors"]))
    send("manifest", manifest=manifest(launcher, spec, tree), rounding=None)
    lines.get()  # the go-ahead
    folder = Path(request["folder"])
    _run_negative_control(launcher, spec, request)
    source = folder / "source"
    source.mkdir(parents=True)
    checkout.write(launcher, mirror, tree, source)
    with _trainer(launcher, spec, folder, Path(request["checkpoints"])) as trainer:
        try:
            trainer.train(send)
        finally:
            _send_layers(send, launcher, folder / "output")
    if changed := checkout.changes(tree, source):
        send(
            "note",
            message="the trainer changed files of its commit while it ran: "
            f"{', '.join(changed[:3])}",
        )


def _spec(values: Mapping[str, Any]) -> RunSpec:
    """A run from its document, which says nothing of a model or data."""
    run_fields = {
        name: values[name] for name in ("recipe", "engine", "seed", "replicate", "revision")
    }
    return RunSpec(
        **run_fields,
        environment=values.get("environment", ""),
        command=Command(**values["command"]),
        schedule=Schedule(**values["schedule"]),
        model=Model(),
        data=Data(),
        layer_policy="all_linears",
        devices=1,
    )


def _run_negative_control(launcher: Launcher, spec: RunSpec, request: CommandRequest) -> None:
    """Start the launcher without the commit's files, once for its digest. Raises LauncherError if
    that trains.
    """
    record = Path(request["proofs"]) / launcher.digest
    if not record.exists():
        folder = Path(request["folder"]) / "without"
        with _trainer(launcher, spec, folder, folder / "checkpoints") as trainer:
            step = trainer.first_step()
        shutil.rmtree(folder, ignore_errors=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("" if step is None else str(step), encoding="utf-8")
    if reported := record.read_text(encoding="utf-8"):
        raise LauncherError(
            trains_without_its_commit(launcher.name, ", ".join(launcher.paths), reported)
        )


@contextmanager
def _trainer(
    launcher: Launcher, spec: RunSpec, folder: Path, checkpoints: Path
) -> "Iterator[_Trainer]":
    """A started trainer in a folder of its own; ended with all its children at the end of the
    block.
    """
    source, output = folder / "source", folder / "output"
    for place in (source, output, checkpoints):
        place.mkdir(parents=True, exist_ok=True)
    account = pwd.getpwnam(launcher.user) if launcher.user else None
    if account is not None:
        for place in (output, checkpoints):
            os.chown(place, account.pw_uid, account.pw_gid)
    places = {"source": str(source), "output": str(output), "checkpoints": str(checkpoints)}
    holder = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    run_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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
            raise LauncherError(
                f"launcher {launcher.name} cannot start {launcher.command[0]!r}: {error.strerror}"
            ) from None
        reports = launcher.reports
        base, path = (run_folder, STDOUT) if reports.path == STDOUT else (holder, reports.path)
        follower = ReportFollower(base, path, reports.pattern, last_recorded(spec.schedule.steps))
        watch = Watch(
            launcher.limits,
            follower,
            spec.schedule.steps,
            output,
            printed.tail,
            began=time.monotonic(),
            sizes=(_SIZE_SECONDS, _SIZE_SHARE),
        )
        try:
            yield _Trainer(process, watch, printed)
        finally:
            _end(process)
            printed.copy()
            watch.close()
    finally:
        printed.close()
        os.close(holder)
        os.close(run_folder)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a trainer, and what it started, also outside of its group."""
    others: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        others = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)
    for other in others:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            other.kill()
    process.kill()
    process.wait()


class _Printed:
    """What a trainer prints: a file that is read by its own descriptor, whatever the trainer puts
    in its place.
    """

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        self._copied = 0

    def copy(self) -> None:
        """Copy what is new to the log of the attempt, as far as a reader would look."""
        while self._copied < _MOST_LOG_BYTES and (
            piece := os.pread(self.descriptor, _PIECE, self._copied)
        ):
            self._copied += len(piece)
            sys.stderr.buffer.write(piece)
        sys.stderr.flush()

    def tail(self) -> str:
        """The last lines."""
        return tail_of(self.descriptor)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


class _Trainer:
    """A running trainer and the report that it writes."""

    def __init__(self, process: "subprocess.Popen[bytes]", watch: Watch, printed: _Printed) -> None:
        self._process, self._watch, self._printed = process, watch, printed

    def first_step(self) -> int | None:
        """Wait for the first reported step, or for the trainer's end without one."""
        while True:
            ended = self._process.poll() is not None
            if self._watch.reports_a_step(ended=ended) or ended:
                return self._watch.last_step
            self._watch.check_limits()
            time.sleep(_POLL_SECONDS)

    def train(self, send: _Sender) -> None:
        """Follow the trainer to its end. Raises EndedError for any end but that of its last step,
        LogRefusedError.
        """
        while True:
            looked = time.monotonic()
            ended = self._process.poll() is not None
            for report in self._watch.rows(ended=ended):
                _send_rows(send, report)
            if ended:
                break
            self._printed.copy()
            self._watch.check_limits()
            time.sleep(max(_POLL_SECONDS, (time.monotonic() - looked) / _SHARE_OF_TIME))
        self._watch.check_end(self._process.returncode)


def _send_rows(send: _Sender, report: Report) -> None:
    columns = {name: values.tolist() for name, values in report.columns.items()}
    send("report", steps=report.steps.tolist(), columns=columns)
    for step, loss in zip(
        report.validation["step"].tolist(), report.validation["loss"].tolist(), strict=True
    ):
        send("row", name="validation", step=int(step), columns={"loss": loss})


def _send_layers(send: _Sender, launcher: Launcher, output: Path) -> None:
    """Send the statistics by layer that the trainer left, however it ended."""
    if not launcher.reports.layers:
        return
    opened = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for message in layer_messages(opened, launcher.reports.layers):
            send(**message)
    except (LogRefusedError, OSError) as error:
        send("note", message=f"statistics by layer are not recorded: {error}")
    finally:
        os.close(opened)


def _listen(lines: "queue.Queue[str]") -> None:
    """Hand on the supervisor's lines; its end is the end of this process, and of the trainer in its
    group.
    """
    while line := sys.stdin.readline():
        lines.put(line)
    # With the whole group: a watcher that finds this process gone takes the trainer for gone as
    # well.
    with suppress(PermissionError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(CRASHED)


def _show_life(send: _Sender) -> None:
    while True:
        time.sleep(5.0)
        send("alive")


if __name__ == "__main__":
    sys.exit(main())
