"""Train one claimed run in a child process and record it: reads its messages, flushes, renews the
lease, applies limits, ends the run.

The supervisor never imports jax. If the run ends for another reason than its last step (cancel,
lost lease, limit, shutdown, full disk), the training process is killed with its whole group.
"""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from server import full_disk
from server.database.metrics import store
from server.database.sessions import Database
from server.database.states import RUN_ENDED
from server.database.tables import Run
from server.errors import DamagedError
from server.jobs.lifecycle import BrokenAttempt
from server.outages import OUTAGES, passes, reason
from server.settings import Settings
from training.command import ENGINE as COMMAND
from training.step_values import StepStats
from workers import lease, training_process
from workers.attempt_record import CODES_OF_FINISHED_RUNS, AttemptRecord
from workers.lab_results import LabResults
from workers.lease import Claim, LeaseLostError
from workers.patience import RETRY_SECONDS, Patience
from workers.protocol import CheckpointRequest, CommandRequest, Message, TrainRequest
from workers.slots import Slot, environment
from workers.training_process import TrainingProcess

_log = logging.getLogger(__name__)

_SIGNAL_SECONDS = 2.0  # within which a signal for all reaches the worker too


def train(
    settings: Settings, database: Database, claim: Claim, slot: Slot, stopping: threading.Event
) -> bool:
    """Train and record a claimed run until it ends, is cancelled, fails, or `stopping` is set;
    returns whether the attempt crashed.
    """
    supervisor = Supervisor(settings, database, claim, stopping)
    try:
        supervisor.train(slot)
    except LeaseLostError as lost:
        _log.info("%s: its trainer was stopped", lost)
        with suppress(*OUTAGES):
            supervisor.forgive()
    except Exception as error:  # noqa: BLE001
        if isinstance(error, OUTAGES) and passes(error):
            why = _without_database(settings, stopping, error)
            _log.error("run %s cannot continue: %s", claim.run_id, why)
            supervisor.lose(why)
        else:
            _log.exception("run %s cannot continue", claim.run_id)
            # If the database stays away, the reconciler later finds the run by its lease.
            with suppress(*OUTAGES):
                supervisor.give_back(_failure(error), "crashed")
    with suppress(*OUTAGES):
        supervisor.clear()
    return supervisor.has_crashed


def _without_database(settings: Settings, stopping: threading.Event, error: SQLAlchemyError) -> str:
    if stopping.is_set():
        return f"the worker was stopped while {reason(error)}"
    return (
        f"{reason(error)}, for longer than the {settings.database_patience_seconds:g} s of "
        "PARITY_DATABASE_PATIENCE_SECONDS"
    )


def _failure(error: Exception) -> str:
    if isinstance(error, OSError) and full_disk.is_full(error):
        return f"on this worker {full_disk.sentence(error)}"
    if isinstance(error, DamagedError):
        return error.detail
    return f"its supervisor failed: {error!r}"


def sweep(settings: Settings, patience: Patience) -> None:
    """Remove the folders of launchers' trainers whose attempt is over: their worker was killed."""
    for folder in sorted((settings.state_dir / "commands").glob("r*-*")):
        run_id, _, attempt_number = folder.name.rpartition("-")
        run = patience.read(partial(_run_or_none, run_id=run_id))
        if run is None or run.state != "running" or str(run.attempt_number) != attempt_number:
            shutil.rmtree(folder, ignore_errors=True)


def _run_or_none(session: Session, run_id: str) -> Run | None:
    return session.get(Run, run_id)


def clear_checkpoints(settings: Settings, patience: Patience, run_id: str) -> None:
    """Remove the checkpoints of a run that has ended, but for those that it keeps for forks."""
    folder = settings.checkpoints / run_id
    run = patience.read(lambda session: session.get_one(Run, run_id))
    ended, keeps = run.state in RUN_ENDED, run.state == "finished" and bool(run.kept_checkpoints)
    if ended and not keeps:
        shutil.rmtree(folder, ignore_errors=True)
    elif ended:
        for checkpoint in folder.glob("step-*"):
            shutil.rmtree(checkpoint, ignore_errors=True)


class Supervisor(AttemptRecord):
    """One attempt at one run, from its claim to its end in the database."""

    def __init__(
        self, settings: Settings, database: Database, claim: Claim, stopping: threading.Event
    ) -> None:
        super().__init__(settings, database, claim, stopping)
        self._results = LabResults(database, claim, settings.lease_seconds)
        self._checkpoints = settings.checkpoints / claim.run_id
        self._attempt = (
            settings.state_dir / "commands"
        ).resolve() / f"{claim.run_id}-{claim.attempt_number}"

    def train(self, slot: Slot) -> None:
        """Start the training process in a slot and follow it to its end."""
        settings, claim = self._settings, self._claim
        log_path = (
            settings.state_dir / "logs" / "runs" / f"{claim.run_id}-{claim.attempt_number}.log"
        )
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with training_process.started(
            settings, self._request(slot), environment(settings, slot), log_path
        ) as process:
            if not self._follow(process):
                # before the end of the block, which kills the process
                self.give_back(*self._why_it_ended(process))

    def _request(self, slot: Slot) -> TrainRequest | CommandRequest:
        """What the training process is asked."""
        settings, claim = self._settings, self._claim
        if claim.spec.engine == COMMAND:
            return {
                "spec": claim.spec.document(),
                "launchers": str(settings.launchers),
                "folder": str(self._attempt),
                "checkpoints": str(self._checkpoints),
                "mirrors": str(settings.repositories),
                "proofs": str((settings.state_dir / "launchers").resolve()),
            }
        return {
            "core": slot.core,
            "spec": claim.spec.document(),
            "steps": claim.steps,
            "checkpoints": self._checkpoint_request(),
            "measure": claim.measure,
            "fork": claim.fork,
            "silence_seconds": settings.silence_seconds,
            "artifacts": str(settings.artifacts / f"{claim.run_id}-{claim.attempt_number}"),
            "profile_steps": settings.profile_steps,
            "slices": list(claim.slices),
        }

    def _why_it_ended(self, process: TrainingProcess) -> tuple[str, BrokenAttempt]:
        """Why the training process ended without the end of its run, and how the attempt ended.

        A scheduler that takes an allocation back, or preempts it, sends SIGTERM to the processes
        under the wrapper and to the worker, in any order, and to the worker maybe only after a
        grace period. That is no crash of the run.
        """
        if self._stopping.is_set():
            return "the worker was stopped", "released"
        if process.was_terminated():
            if self._stopping.wait(_SIGNAL_SECONDS):
                return "the worker was stopped", "released"
            if self._settings.wrapper:
                return (
                    (
                        "its processes were ended from outside, for example preempted: "
                        f"{process.how_it_ended()}"
                    ),
                    "released",
                )
        return process.how_it_ended(), "crashed"

    def lose(self, why: str) -> None:
        """Queue the run again as soon as the database answers, unless the reconciler was faster or
        the worker stops before that.
        """
        while True:
            try:
                self.give_back(why, "lost")
                self.forgive()
            except OUTAGES:
                if self._stopping.wait(RETRY_SECONDS):
                    return
            else:
                return

    def clear(self) -> None:
        """Remove the files of a launcher's trainer, and the checkpoints of a run that has ended."""
        shutil.rmtree(self._attempt, ignore_errors=True)
        clear_checkpoints(self._settings, self, self._claim.run_id)

    def _checkpoint_request(self) -> CheckpointRequest:
        """The request for checkpoints: their folder, and the first unrecorded step, beyond which no
        checkpoint may be used.
        """
        steps, damage = self.read(
            lambda session: store.steps_before_damage(session, self._claim.run_id, "train")
        )
        first = 0 if self._claim.fork is None else self._claim.fork["step"]
        # The first step that is not recorded. Steps are recorded in order, so a hole means a
        # damaged database.
        recorded = next(
            (at for at, step in enumerate(steps.tolist(), first) if step != at), first + len(steps)
        )
        if damage is not None:
            # A crash here would repeat in each attempt. Steps that are trained again replace the
            # damaged ones, and have the same bits.
            why = f"resumed at or before step {recorded}: {damage.detail}"
            _log.warning("run %s: %s", self._claim.run_id, why)
            self.note(why)
        return {
            "folder": str(self._checkpoints),
            "seconds": self._settings.checkpoint_seconds,
            "resume_at_most": recorded,
            "keep": [*self._claim.keep],
        }

    def _follow(self, process: TrainingProcess) -> bool:
        """Record the process's messages; True once the run has ended in the database, False if the
        process failed or is stopped.
        """
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
                    self.recorder.add(StepStats(**message["values"]))
                    steps_waiting = True
                elif message["kind"] == "report":
                    self.recorder.add_report(message)
                    steps_waiting = True
                elif message["kind"] == "result":
                    self._results.add(message)
                    steps_waiting = True
                elif self._act_on(message):
                    return True
                elif message["kind"] == "manifest" and self._claim.spec.engine == COMMAND:
                    process.go_ahead()
            now = time.monotonic()
            if (steps_waiting and now >= next_flush) or now >= next_beat:
                self.flush()
                steps_waiting = False
                next_flush, next_beat = (
                    now + settings.flush_seconds,
                    now + settings.heartbeat_seconds,
                )
                broken = next(limits)
                if broken is not None:
                    self.fail(*broken)
                    return True
            if now - heard > settings.silence_seconds:
                self.give_back(
                    f"its training process sent no message for {settings.silence_seconds:g} s and "
                    "was killed as hung",
                    "crashed",
                )
                return True
        return False

    def _act_on(self, message: Message) -> bool:
        """Handle a message other than a step; True if it ended the run."""
        match message["kind"]:
            case "manifest":
                return self.record_manifest(message["manifest"], message["rounding"])
            case "layers":
                self.recorder.name_layers(message["layers"], message["columns"])
            case "layer_table":
                self.retried(partial(self.recorder.write_layers, message))
            case "row":
                self.retried(
                    partial(
                        self.recorder.write_row,
                        message["name"],
                        message["step"],
                        message["columns"],
                    )
                )
            case "kept":
                renewed = partial(
                    lease.renew, claim=self._claim, lease_seconds=self._settings.lease_seconds
                )
                self.written(partial(renewed, kept_checkpoints=message["steps"]))
            case "note":
                self.note(message["message"])
            case "broke_off":
                self.flush()
                self.give_back(message["message"], "crashed")
                return True
            case "end":
                self.finish()
                return True
            case "error":
                end = self.finish if message["code"] in CODES_OF_FINISHED_RUNS else self.fail
                end(message["code"], message["message"])
                return True
        return False

    def _limits(self, process: TrainingProcess) -> Iterator[tuple[str, str] | None]:
        """At each check, the code and sentence of an exceeded limit, or None."""
        began, memory = time.monotonic(), self._settings.max_run_memory_bytes
        operators = self._settings.max_run_seconds
        limits = (operators and operators - self._claim.seconds_trained, self._claim.max_seconds)
        allowed = min((limit for limit in limits if limit is not None), default=None)
        while True:
            broken = None
            held_bytes = process.memory_bytes() if memory is not None else 0
            if memory is not None and held_bytes > memory:
                remedy = (
                    "reduce data.batch_size, data.sequence_length or the model, or raise the "
                    "worker's PARITY_MAX_RUN_MEMORY_BYTES"
                )
                broken = (
                    "MEMORY_LIMIT",
                    (
                        f"the run took {held_bytes / 2**30:.2f} GiB, expected at most "
                        f"{memory / 2**30:.2f} GiB; {remedy}"
                    ),
                )
            elif allowed is not None and time.monotonic() - began > allowed:
                remedy = "plan fewer steps, or raise max_run_seconds"
                broken = (
                    "TIME_LIMIT",
                    f"the run trained for longer than its remaining {allowed:.0f} s; {remedy}",
                )
            yield broken

    def flush(self) -> None:
        """Write what was collected, and renew the lease."""
        self.retried(self._results.flush)
        super().flush()
