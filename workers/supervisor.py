"""Train one claimed run in a child process and record it: takes its messages, flushes, renews, limits, cancels, ends.

The supervisor never imports jax. Whatever ends the run (cancel, a lost lease, a limit, shutdown, a full disk) kills the
training process with its whole group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from server.database import store
from server.database.sessions import Database
from server.database.states import RUN_ENDED
from server.database.tables import Attempt, AttemptState, Run, RunState
from server.settings import Settings
from workers import lease, settle, trainer
from workers.lease import Claim, LeaseLostError
from workers.recorder import Recorder
from workers.slots import Slot, environment
from workers.trainer import Trainer

Written = TypeVar("Written")

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


def train(settings: Settings, database: Database, held: Claim, slot: Slot, stopping: threading.Event) -> None:
    """Train and record the run that we hold until it ends, is cancelled, breaks, or `stopping` is set."""
    supervisor = Supervisor(settings, database, held, stopping)
    try:
        supervisor.train(slot)
    except LeaseLostError as lost:
        _log.info("%s: its trainer was stopped", lost)
    except Exception as error:  # noqa: BLE001 (a full disk, a database that stayed away: the run must not wait for its lease to say so)
        _log.exception("run %s can't go on", held.run_id)
        # Where the database is away, the reconciler finds the run by its lease.
        with suppress(OperationalError):
            supervisor.give_back(f"its supervisor failed: {error!r}", "crashed")
    with suppress(OperationalError):
        supervisor.clear()


class Supervisor:
    """One attempt at one run, from its claim to its end in the record."""

    def __init__(self, settings: Settings, database: Database, held: Claim, stopping: threading.Event) -> None:
        self._settings = settings
        self._database = database
        self._held = held
        self._stopping = stopping
        self._recorder = Recorder(database, held, settings.lease_seconds)
        self._checkpoints = settings.checkpoints / held.run_id

    def train(self, slot: Slot) -> None:
        """Start the training process in a slot and follow it to its end."""
        settings, held = self._settings, self._held
        log_path = settings.state_dir / "logs" / "runs" / f"{held.run_id}-{held.epoch}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        request = {
            "core": slot.core,
            "spec": dataclasses.asdict(held.spec),
            "checkpoints": self._checkpoint_request(),
            "silence_seconds": settings.silence_seconds,
            "artifacts": str(settings.artifacts / f"{held.run_id}-{held.epoch}"),
            "profile_steps": settings.profile_steps,
        }
        with trainer.started(settings, request, environment(settings, slot), log_path) as process:
            if not self._follow(process):
                # Asked before the block ends, because its end kills the process.
                released = self._stopping.is_set()
                why = "the worker was stopped" if released else process.how_it_ended()
                self.give_back(why, "released" if released else "crashed")

    def give_back(self, why: str, attempt: AttemptState) -> None:
        """Put the run back into the queue, or fail it when it broke too often."""
        held = self._held
        with self._database.write() as session:
            run = session.get_one(Run, held.run_id)
            if run.epoch == held.epoch:
                lease.give_back(session, run, why, attempt=attempt, max_attempts=self._settings.max_attempts)

    def clear(self) -> None:
        """Remove the checkpoints of a run that has ended; nobody will go on from them."""
        with self._database.read() as session:
            ended = session.get_one(Run, self._held.run_id).state in RUN_ENDED
        if ended:
            shutil.rmtree(self._checkpoints, ignore_errors=True)

    def _checkpoint_request(self) -> dict[str, Any]:
        """Where checkpoints are, and the step that none may be ahead of: what is not recorded must be trained again."""
        with self._database.read() as session:
            steps, _ = store.read(session, self._held.run_id, "train", [])
        # The first step that the record lacks. Steps are recorded in order, so a hole can only come from a damaged record.
        recorded = next((at for at, step in enumerate(steps.tolist()) if step != at), len(steps))
        return {"folder": str(self._checkpoints), "seconds": self._settings.checkpoint_seconds, "resume_at_most": recorded}

    def _follow(self, process: Trainer) -> bool:
        """Record what the process says; True once the run has ended in the record, False when it broke off or we stop."""
        settings, limits = self._settings, self._limits(process)
        next_flush = next_beat = 0.0
        steps_waiting = False
        heard = time.monotonic()
        while not self._stopping.is_set():
            for message in process.messages(settings.flush_seconds / 4):
                heard = time.monotonic()
                if message is None:
                    return False
                if message["kind"] == "step":
                    self._recorder.add(message)
                    steps_waiting = True
                elif self._told(message):
                    return True
            now = time.monotonic()
            if (steps_waiting and now >= next_flush) or now >= next_beat:
                self._retried(self._recorder.flush)
                steps_waiting = False
                next_flush, next_beat = now + settings.flush_seconds, now + settings.heartbeat_seconds
                broken = next(limits)
                if broken is not None:
                    self._end("failed", *broken)
                    return True
            if now - heard > settings.silence_seconds:
                self.give_back(f"its training process said nothing for {settings.silence_seconds:g} s and was killed as hung", "crashed")
                return True
        return False

    def _told(self, message: Mapping[str, Any]) -> bool:
        """Act on a message that is no step; True when it ended the run."""
        match message:
            case {"kind": "manifest", "manifest": manifest}:
                return self._settled(manifest)
            case {"kind": "layers", "layers": layers, "operands": operands, "statistics": statistics}:
                self._recorder.name_layers(layers, operands, statistics)
            case {"kind": "profile", "step": step, **values}:
                self._retried(partial(self._recorder.beside, "profile", step, values))
            case {"kind": "validation", "step": step, **values}:
                self._retried(partial(self._recorder.beside, "validation", step, values))
            case {"kind": "note", "message": text}:
                self._retried(partial(self._record_note, text))
            case {"kind": "broke_off", "message": text}:
                self._retried(self._recorder.flush)
                self.give_back(text, "crashed")
                return True
            case {"kind": "end"}:
                self._end("finished")
                return True
            case {"kind": "error", "code": code, "message": text}:
                # A run that diverged has told us what we asked: its curve ends in NaN, and the judge reads that.
                # One whose record has a gap was trained to its end: the judge sees the gap.
                self._end("finished" if code in ("DIVERGED", "METRICS_GAP") else "failed", code, text)
                return True
        return False

    def _limits(self, process: Trainer) -> Iterator[tuple[str, str] | None]:
        """At each look the code and sentence of a limit that is broken, or None."""
        began, memory = time.monotonic(), self._settings.max_run_memory_bytes
        operators = self._settings.max_run_seconds
        limits = (operators and operators - self._held.seconds_trained, self._held.max_seconds)
        allowed = min((limit for limit in limits if limit is not None), default=None)
        while True:
            broken = None
            held_bytes = process.memory_bytes() if memory is not None else 0
            if memory is not None and held_bytes > memory:
                remedy = "reduce data.batch_size, data.sequence_length or the model, or raise the worker's PARITY_MAX_RUN_MEMORY_BYTES"
                broken = ("MEMORY_LIMIT", f"the run took {held_bytes / 2**30:.2f} GiB, expected at most {memory / 2**30:.2f} GiB; {remedy}")
            elif allowed is not None and time.monotonic() - began > allowed:
                remedy = "plan fewer steps, or allow more seconds with max_run_seconds"
                broken = ("TIME_LIMIT", f"the run trained for longer than the {allowed:.0f} s that were left to it; {remedy}")
            yield broken

    def _settled(self, manifest: Mapping[str, str]) -> bool:
        """Record what the run is; True where that ends it: an equal one was trained before, or it doesn't fit its job's baseline."""
        ended = self._retried(partial(self._record_manifest, manifest))
        with self._database.read() as session:
            reason = None if ended else settle.refusal(session, self._held, manifest)
        if reason is not None:
            self._retried(partial(self._refuse, reason))
        return ended or reason is not None

    def _refuse(self, reason: str) -> None:
        with self._database.write() as session:
            settle.refuse(session, self._held, reason)

    def _record_manifest(self, manifest: Mapping[str, str]) -> bool:
        """True where the run ended with the curve of an equal one."""
        held, fingerprint = self._held, _fingerprint(self._held, manifest)
        with self._database.write() as session:
            lease.renew(session, held, self._settings.lease_seconds, manifest=manifest, fingerprint=fingerprint)
            session.execute(
                update(Attempt).where(Attempt.run_id == held.run_id, Attempt.epoch == held.epoch).values(fingerprint=fingerprint)
            )
            return settle.reused(session, held, fingerprint)

    def _record_note(self, text: str) -> None:
        held = self._held
        with self._database.write() as session:
            lease.renew(session, held, self._settings.lease_seconds)
            session.execute(update(Attempt).where(Attempt.run_id == held.run_id, Attempt.epoch == held.epoch).values(message=text))

    def _end(self, state: RunState, code: str | None = None, message: str | None = None) -> None:
        def write() -> None:
            with self._database.write() as session:
                lease.end(session, self._held, state, code=code, message=message)

        for step in (self._recorder.flush, self._recorder.seal, write):
            self._retried(step)

    def _retried(self, write: Callable[[], Written]) -> Written:
        """Write, and try again while the database is busy or away: training goes on meanwhile, and the fence keeps it honest."""
        deadline = time.monotonic() + self._settings.database_patience_seconds
        while True:
            try:
                return write()
            except OperationalError as error:
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise
                _log.warning("the database did not take a write, trying again: %s", error.orig)
            time.sleep(_RETRY_SECONDS)


def _fingerprint(held: Claim, manifest: Mapping[str, str]) -> str:
    """SHA-256 of everything that decides the run's bits: specification, data, code, libraries, device class, threads."""
    content = {"spec": dataclasses.asdict(held.spec), "manifest": manifest}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
