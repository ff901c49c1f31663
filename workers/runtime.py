"""A running worker: registered with its device, with a thread for each slot, for heartbeats and for
housekeeping.

A slot looks for a run when a message wakes it, after each run, and periodically; a message only
makes it look sooner. So a worker also works while the broker is unreachable, or if the broker's
client does not reconnect.
"""

import errno
import json
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from server import full_disk, logs
from server.concurrency.failures import RepeatedFailure, log_failure
from server.database import clock, tables
from server.database.sessions import Database
from server.database.tables import HOUSEKEEPING, Worker
from server.jobs.conclude import conclude
from server.jobs.stale_runs import mark_or_fail_stale
from server.outages import OUTAGES
from server.retention.keeper import DatabaseRetention, FileRetention
from server.settings import CHECKOUT, Settings
from training import provenance
from training.command import ENGINE as COMMAND
from training.spec import SPEC_VERSION
from workers import data_roots, lease, leftovers, supervisor
from workers.commands.checkout import remove_unused
from workers.commands.launchers import Launcher, LauncherError, read_launchers
from workers.duty import give_up, take
from workers.lease import Claim
from workers.patience import Patience
from workers.reconcile import EndedJobs, LiveWatch, give_back_expired
from workers.slots import Slot, environment
from workers.slots import slots as slots_of
from workers.submitted import Submitter
from workers.training_process import command, terminate_seconds

_log = logging.getLogger(__name__)

_LONGEST_REST_SECONDS = 60.0  # of a slot whose attempts crash
_DUTY_PERIODS = 3  # of silence, after which another worker does the housekeeping


class WorkerStartError(Exception):
    """A worker that cannot start with its settings; the message says why."""


class Runtime:
    """Claims and trains runs of one capability on a fixed number of slots."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database = Database(settings.database, settings.database_connections)
        self._stopping = threading.Event()
        self._retention, self._files = (
            DatabaseRetention(settings, self._database),
            FileRetention(settings, self._database),
        )
        self._patience = Patience(settings, self._database, self._stopping)
        self._wakeup = threading.Condition()
        self._wakes = 0
        self._left: set[str] = set()  # jobs for workers that may read their paths
        self._worker = Worker(
            id=tables.new_id("w"),
            name=f"{socket.gethostname()}:{os.getpid()}",
            capability=settings.serves,
            slots=settings.slots,
            device=_device(settings),
            started_at=time.time(),
            heartbeat_at=time.time(),
        )
        self._live, self._ended = LiveWatch(), EndedJobs()
        # Threads of their own: long work does not delay the heartbeat, without which the worker
        # would look dead and lose its runs.
        work: dict[str, Callable[[], None]] = {
            "heartbeat": partial(self._keep_doing, self._beat, settings.heartbeat_seconds),
            "housekeeping": partial(self._keep_doing, self._reconcile, settings.reconcile_seconds),
        }
        work |= {
            f"slot-{number}": partial(self._keep_training, slot)
            for number, slot in enumerate(slots_of(settings))
        }
        self._submitter = Submitter(settings, self._database, self._worker, self._stopping)
        if settings.capability == COMMAND:
            work["submitter"] = self._submitter.work
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True) for name, target in work.items()
        ]

    def start(self) -> None:
        """End what an earlier worker left on this machine's devices, register, and start the
        threads.
        """
        leftovers.reap(self._settings.processes, terminate_seconds(self._settings))
        supervisor.sweep(self._settings, self._patience)
        self._patience.written(self._register)
        for thread in self._threads:
            thread.start()

    def _register(self, session: Session) -> None:
        self._worker.heartbeat_at = clock.now(session)
        session.merge(self._worker)

    def wake(self) -> None:
        """Make the free slots look for a run now."""
        with self._wakeup:
            self._wakes += 1
            self._wakeup.notify_all()
        self._submitter.wake()

    def stop(self) -> None:
        """Stop the trainers; their runs are queued again."""
        self._stopping.set()
        self.wake()

    def sign_off(self) -> None:
        """Register that this worker is gone; call it after its last trainer has stopped."""
        for thread in self._threads:
            thread.join()
        try:
            self._patience.written(self._leave)
        except OUTAGES as error:  # the others notice by its heartbeat
            log_failure(_log, error, "the worker's end could not be registered")
        self._database.close()

    def _leave(self, session: Session) -> None:
        self._write(session, heartbeat_at=0.0)
        give_up(session, HOUSEKEEPING, self._worker.id)

    def _keep_training(self, slot: Slot) -> None:
        """Train run after run in this slot; look for a run at each wake-up and periodically.

        After a crash it rests, for twice as long after each further one: where a machine is what is
        wrong, such a slot would fail one run of the queue after another within a second.
        """
        failures, crashes = RepeatedFailure(_log, "no run could be claimed or concluded"), 0
        while not self._stopping.is_set():
            seen = self._wakes
            try:
                while not self._stopping.is_set() and (claim := self._claim()) is not None:
                    failures.worked()
                    crashes = crashes + 1 if self._train(claim, slot) else 0
                    if crashes:
                        self._stopping.wait(min(2.0 ** (crashes - 1), _LONGEST_REST_SECONDS))
            except Exception as error:  # noqa: BLE001
                failures.failed(error)
            else:
                failures.worked()
            self._wait_for_wake(seen)

    def _wait_for_wake(self, seen: int) -> None:
        """Wait for a wake-up after the first `seen` ones, at most for one period."""
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._wakes != seen, self._settings.reconcile_seconds)

    def _claim(self) -> Claim | None:
        """A run to train, or None. OSError while this machine's disk is full: each attempt would
        crash.
        """
        folder = self._settings.state_dir
        if full_disk.has_no_room(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        with self._database.write() as session:
            return lease.claim(session, self._worker, self._settings.lease_seconds, self._left)

    def _train(self, claim: Claim, slot: Slot) -> bool:
        """Train a claimed run to its end and conclude its job if it was the last; returns whether
        the attempt crashed.
        """
        has_crashed = False
        with logs.bound(
            worker=self._worker.id, job=claim.job_id, run=claim.run_id, attempt=claim.attempt_number
        ):
            refusal = data_roots.refusal(data_roots.allowed_roots(self._settings), claim.spec)
            if refusal is None:
                has_crashed = supervisor.train(
                    self._settings, self._database, claim, slot, self._stopping
                )
            else:
                self._patience.written(
                    partial(lease.fail, claim=claim, code=data_roots.CODE, message=refusal)
                )
        conclude(self._database, claim.job_id)
        return has_crashed

    def _keep_doing(self, what: Callable[[], None], seconds: float) -> None:
        """Do it every so many seconds until the worker stops."""
        failures = RepeatedFailure(_log, f"{threading.current_thread().name} failed")
        while not self._stopping.is_set():
            try:
                what()
            except Exception as error:  # noqa: BLE001
                failures.failed(error)
            else:
                failures.worked()
            self._stopping.wait(seconds)

    def _beat(self) -> None:
        with self._database.write() as session:
            self._write(session, heartbeat_at=clock.now(session))

    def _write(self, session: Session, **columns: object) -> None:
        """Change this worker's row."""
        session.execute(update(Worker).where(Worker.id == self._worker.id).values(columns))

    def _reconcile(self) -> None:
        """Register again if the trainer has changed and delete old files; then, if no other worker
        does it, put right what crashes left behind and delete old rows.
        """
        self._left.clear()  # such a worker may be gone
        self._register_trainer()
        self._files.work()
        for name in remove_unused(
            self._settings.repositories, self._settings.retention_mirror_days
        ):
            _log.info("mirror %s removed: no run used it", name)
        with self._database.write() as session:
            if not take(
                session,
                HOUSEKEEPING,
                self._worker.id,
                _DUTY_PERIODS * self._settings.reconcile_seconds,
            ):
                return
        try:
            self._keep_house()
        except Exception:
            # Another worker may be able to: one that has the version of the database.
            with suppress(SQLAlchemyError), self._database.write() as session:
                give_up(session, HOUSEKEEPING, self._worker.id)
            raise

    def _keep_house(self) -> None:
        if give_back_expired(self._settings, self._database):
            self.wake()
        mark_or_fail_stale(self._settings, self._database)
        self._live.look(self._database)
        self._ended.conclude(self._database)
        self._retention.work()

    def _register_trainer(self) -> None:
        """Register again if the trainer has changed: each run starts a new process, with the
        libraries installed and the file of launchers as they are at that time.
        """
        device = self._worker.device | _trainer(self._settings)
        if device != self._worker.device:
            with self._database.write() as session:
                self._write(session, device=device)
            self._worker.device = device


def _trainer(settings: Settings) -> dict[str, Any]:
    """What a worker registers of its trainer, or of its launchers."""
    if settings.capability == COMMAND:
        return {
            "launchers": {
                name: launcher.document() for name, launcher in launchers_of(settings).items()
            }
        }
    return {"trainer": provenance.trainer_facts(environment(settings, Slot()))}


def launchers_of(settings: Settings) -> Mapping[str, Launcher]:
    """The launchers of a worker. Raises LauncherError for a file that is wrong, and where none is
    named.
    """
    if settings.launchers is None:
        raise LauncherError(
            "PARITY_CAPABILITY is command, and PARITY_LAUNCHERS is not set; expected the path of a "
            "file of launchers"
        )
    if settings.wrapper:
        raise LauncherError(
            "PARITY_WRAPPER and PARITY_LAUNCHERS are both set; expected one: launchers start their "
            "trainers themselves"
        )
    return read_launchers(settings.launchers)


def _device(settings: Settings) -> dict[str, Any]:
    """This machine's device with its trainer; of a worker with launchers only that it has them, for
    its trainers know their devices.
    """
    if settings.capability == COMMAND:
        return {
            "device_class": COMMAND,
            "threads_per_run": 1,
            "devices": 1,
            "spec_version": SPEC_VERSION,
            **_trainer(settings),
        }
    roots = {"data_roots": data_roots.registered_roots(settings)}
    device = _asked_device(settings)
    if settings.capability == "gpu":  # a job of MaxText that asks for a cpu stays on one
        others = {
            "ok": False,
            "reason": "PARITY_CAPABILITY is gpu, with which a worker trains engine emulated alone",
        }
        device["can_run"] = {
            name: can if name.startswith("emulated/") else others
            for name, can in device["can_run"].items()
        }
    return device | {
        "threads_per_run": 1,
        "spec_version": SPEC_VERSION,
        **roots,
        **_trainer(settings),
    }


def _asked_device(settings: Settings) -> dict[str, Any]:
    """This machine's device, from a separate process, because the worker must not import jax."""
    words = command(settings, "training.device", "--json")
    try:
        process = subprocess.run(
            words,
            cwd=CHECKOUT,
            env=environment(settings, slots_of(settings)[0]),  # a slot has one of several GPUs
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise WorkerStartError(
            f"{words[0]!r} cannot be started ({error.strerror}); expected a program on this "
            "machine: check PARITY_WRAPPER"
        ) from error
    if process.returncode:
        raise WorkerStartError(
            f"`python -m training.device` ended with status {process.returncode}: "
            f"{process.stderr[-2000:]}"
        )
    # each of a wrapper's processes prints it
    device: dict[str, Any] = json.loads(process.stdout.splitlines()[0])
    return device
