"""Train one claimed run in a child process and record it: pulls the child's lines, flushes, renews, cancels, ends.

The supervisor never imports jax. Whatever ends the run (cancel, a lost lease, shutdown, a full disk) kills the child's
whole process group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from server.database.engine import Database
from server.database.models import Run, RunState
from server.settings import CHECKOUT, Settings
from workers import lease
from workers.lease import Claim, LeaseLostError
from workers.recorder import Recorder

_log = logging.getLogger(__name__)
_LOG_LINES = 50
_RETRY_SECONDS = 1.0
_EXIT_SECONDS = 5.0


def train(settings: Settings, database: Database, held: Claim, core: int | None, stopping: threading.Event) -> None:
    """Train and record the run that we hold until it ends, is cancelled, breaks, or `stopping` is set."""
    log_path = settings.state_dir / "logs" / "runs" / f"{held.run_id}-{held.epoch}.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(database, held, settings.lease_seconds)
    try:
        with _child(settings, held, core, log_path) as child:
            ended = _follow(settings, database, held, child, recorder, stopping)
            status = None if ended or stopping.is_set() else _exit_status(child)
    except LeaseLostError as lost:
        _log.info("%s: its trainer was stopped", lost)
    except Exception as error:  # noqa: BLE001 (a full disk, a database that stayed away: the run must not wait for its lease to say so)
        _log.exception("run %s can't go on", held.run_id)
        _give_back(settings, database, held, f"its supervisor failed: {error!r}", crashed=True)
    else:
        if stopping.is_set() and not ended:
            _give_back(settings, database, held, "the worker was stopped", crashed=False)
        elif not ended:
            why = f"the training process ended with status {status}; the end of its log: {_tail(log_path)}"
            _give_back(settings, database, held, why, crashed=True)


def _exit_status(child: subprocess.Popen[str]) -> int | None:
    """How the child ended by itself; None when it has stopped talking but has not ended."""
    try:
        return child.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _follow(
    settings: Settings, database: Database, held: Claim, child: subprocess.Popen[str], recorder: Recorder, stopping: threading.Event
) -> bool:
    """Record what the child says; True once the run has ended in the record, False when the child broke off."""
    lines = _lines(child)
    next_flush = next_beat = 0.0
    steps_waiting = False
    while not stopping.is_set():
        for message in _drain(lines, settings.flush_seconds / 4):
            match message:
                case None:
                    return False
                case {"kind": "step"}:
                    recorder.add(message)
                    steps_waiting = True
                case {"kind": "manifest", "manifest": manifest}:
                    _retried(settings, partial(_tell_manifest, settings, database, held, manifest))
                case {"kind": "end"}:
                    _end(settings, database, held, recorder, "finished")
                    return True
                case {"kind": "error", "code": code, "message": text}:
                    # A run that diverged has told us what we asked: its curve ends in NaN, and the judge reads that.
                    _end(settings, database, held, recorder, "finished" if code == "DIVERGED" else "failed", code, text)
                    return True
        now = time.monotonic()
        if (steps_waiting and now >= next_flush) or now >= next_beat:
            _retried(settings, recorder.flush)
            steps_waiting = False
            next_flush, next_beat = now + settings.flush_seconds, now + settings.heartbeat_seconds
    return False


def _tell_manifest(settings: Settings, database: Database, held: Claim, manifest: Mapping[str, str]) -> None:
    with database.write() as session:
        lease.renew(session, held, settings.lease_seconds, manifest=manifest, fingerprint=_fingerprint(held, manifest))


def _end(
    settings: Settings,
    database: Database,
    held: Claim,
    recorder: Recorder,
    state: RunState,
    code: str | None = None,
    message: str | None = None,
) -> None:
    def write() -> None:
        with database.write() as session:
            lease.end(session, held, state, code=code, message=message)

    for step in (recorder.flush, recorder.seal, write):
        _retried(settings, step)


def _give_back(settings: Settings, database: Database, held: Claim, why: str, *, crashed: bool) -> None:
    with database.write() as session:
        run = session.get_one(Run, held.run_id)
        if run.epoch == held.epoch:
            lease.give_back(session, run, why, crashed=crashed, max_attempts=settings.max_attempts)


def _retried(settings: Settings, write: Callable[[], None]) -> None:
    """Write, and try again while the database is busy or away, for as long as a lease lasts."""
    deadline = time.monotonic() + settings.lease_seconds
    while True:
        try:
            return write()
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise
            _log.warning("the database did not take a write, trying again: %s", error.orig)
        time.sleep(_RETRY_SECONDS)


@contextmanager
def _child(settings: Settings, held: Claim, core: int | None, log_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A training process that is gone when the block ends, and its whole group with it."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(settings.state_dir.resolve() / "jax-cache"),
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }
    with log_path.open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "workers.child"],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
    assert child.stdin is not None  # noqa: S101 (PIPE above)
    try:
        child.stdin.write(json.dumps({"core": core, "spec": dataclasses.asdict(held.spec)}) + "\n")
        child.stdin.flush()
        yield child
    finally:
        with suppress(ProcessLookupError):  # it had ended already, with all its children
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        with suppress(BrokenPipeError):
            child.stdin.close()


def _lines(child: subprocess.Popen[str]) -> queue.Queue[dict[str, Any] | None]:
    """The child's messages as they come, None after the last."""
    lines: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def pump() -> None:
        assert child.stdout is not None  # noqa: S101 (PIPE)
        try:
            with child.stdout:
                for line in child.stdout:
                    lines.put(json.loads(line))
        except ValueError:
            _log.warning("process %d broke off inside a line", child.pid)
        finally:
            lines.put(None)

    threading.Thread(target=pump, name=f"run-{child.pid}", daemon=True).start()
    return lines


def _drain(lines: queue.Queue[dict[str, Any] | None], seconds: float) -> Iterator[dict[str, Any] | None]:
    """Everything that has come, after waiting at most so long for the first."""
    try:
        yield lines.get(timeout=seconds)
        while True:
            yield lines.get_nowait()
    except queue.Empty:
        return


def _fingerprint(held: Claim, manifest: Mapping[str, str]) -> str:
    """SHA-256 of everything that decides the run's bits: specification, data, code, libraries, device class, threads."""
    content = {"spec": dataclasses.asdict(held.spec), "manifest": manifest}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _tail(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(lines) or "(empty)"
