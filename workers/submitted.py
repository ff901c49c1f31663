"""Follows all runs that a worker has submitted to schedulers, hundreds of them, in threads of the
one process that the worker is.

`workers.submitting` has brought each to its scheduler. From then on the files of its job tell of
its starts and its end (`workers.commands.script`), and the trainer's report of its steps. What
these files say outranks the scheduler, which may call a job running that has ended; its word counts
for a job that has told nothing for a while. A node writes what it likes: anything but a regular
file is ignored, its times are brought to the clock of the record, and of one run's files no more is
read at once than others can wait for.

A start of the job after the first (it was preempted, or its node died) ends the attempt and begins
the next in one transaction: a step that is logged again replaces the earlier one. The end of the
job ends the attempt and its submission in one transaction.
"""

import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.judging.curves.outside_plan import last_recorded
from server import logs
from server.concurrency.failures import RepeatedFailure, log_failure
from server.database.sessions import Database
from server.database.tables import Attempt, Submission, Worker
from server.jobs import submissions
from server.jobs.conclude import conclude
from server.jobs.lifecycle import BrokenAttempt
from server.outages import OUTAGES, reason
from server.settings import Settings
from workers import lease, listings, negative_controls, submitting
from workers.attempt_record import CODES_OF_FINISHED_RUNS, AttemptRecord
from workers.commands import script
from workers.commands.checkout import CheckoutError
from workers.commands.follow import LogRefusedError, Report, ReportFollower, open_below
from workers.commands.launched_trainer import EndedError, Watch, tail_of
from workers.commands.launchers import STDOUT, LauncherError
from workers.commands.layer_logs import layer_messages
from workers.commands.schedulers import (
    LOG,
    OVER,
    JobRefusedError,
    ScheduledJob,
    SchedulerUnreachableError,
    best_effort,
)
from workers.lease import Claim, LeaseLostError
from workers.listings import Schedulers, last_change
from workers.protocol import LayerTableMessage
from workers.recorder import write_all
from workers.submitting import plan_of, scheduler_of
from workers.supervisor import clear_checkpoints

MOST_RUNS = 400  # of one worker; the others wait for it, or for another one
LOST_SECONDS = 60.0  # that a job may be over for its scheduler without the file of its end
_LOST, _PREEMPTED = "JOB_LOST", "PREEMPTED"  # what the messages of such attempts begin with
# between two rounds: as long as the last one took, within these
_TICK_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 0.5
_PREPARED_AT_ONCE = 4
_RUNS_AT_ONCE = 50  # of one transaction
_CLAIM_SECONDS, _MERGE_SECONDS = 0.5, 0.2  # of a round, for new runs, and for merging chunks
# of a processor: a look that takes longer; and the most that the looks at such a run take
_SLOW_SECONDS, _SHARE_OF_TIME = 0.1, 0.05
# seconds between two looks at the size of an output, and the most of the time that they may take
_SIZES = (60.0, 0.0005)
_MOST_LOG_BYTES, _PIECE = 64 * 2**20, 1 << 20
_MOST_STARTS = 1000  # of a job that are believed
_MOST_LOOKS = 2000  # at the rest of a report whose trainer has ended
_FILES = 8192  # that this process may have open, if the system allows it

_log = logging.getLogger(__name__)
# The output of a start, what it prints, and its errors where the losses are printed.
_TRAINER_FILES, _CONTROL_FILES = (
    ("output.{}", "stdout.{}", "stderr.{}"),
    ("without.{}/output", "without.{}/stdout", "without.{}/stderr"),
)


class Submitter:
    """Submits the runs of launchers that have a scheduler, follows them, and sweeps what killed
    workers left with the schedulers.
    """

    def __init__(
        self, settings: Settings, database: Database, worker: Worker, stopping: threading.Event
    ) -> None:
        self.settings, self.database, self.worker, self.stopping = (
            settings,
            database,
            worker,
            stopping,
        )
        self.schedulers = Schedulers(settings, database, worker)
        self._runs: dict[str, _Submitted] = {}
        self._wakeup = threading.Event()
        self._look = threading.Event()
        self._next_claim = 0.0

    def wake(self) -> None:
        """Look for runs now."""
        self._wakeup.set()

    def work(self) -> None:
        """Claim, submit and follow runs until the worker stops; then leave their jobs to the next
        one.
        """
        _allow_many_files()
        others = [
            threading.Thread(target=self._keep_asking, name="schedulers"),
            threading.Thread(target=self._keep_renewing, name="leases"),
        ]
        for other in others:
            other.start()
        failures = RepeatedFailure(_log, "the submitted runs could not be followed")
        pool = ThreadPoolExecutor(_PREPARED_AT_ONCE, thread_name_prefix="submit")
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                self._claim(pool)
                self._follow(pool)
            except Exception as error:  # noqa: BLE001
                failures.failed(error)
            else:
                failures.worked()
            self.stopping.wait(
                min(max(_TICK_SECONDS, time.monotonic() - began), _LONGEST_PAUSE_SECONDS)
            )
        self._look.set()
        for other in others:
            other.join()
        pool.shutdown(wait=False, cancel_futures=True)  # what is submitted now is found by its key
        for run in self._runs.values():
            run.leave()
        self._runs.clear()

    def _claim(self, pool: ThreadPoolExecutor) -> None:
        """Claim what waits: at a wake-up, and periodically."""
        now = time.monotonic()
        if not self._wakeup.is_set() and now < self._next_claim:
            return
        self._wakeup.clear()
        self._next_claim = now + self.settings.reconcile_seconds
        until = now + _CLAIM_SECONDS
        while len(self._runs) < MOST_RUNS and not self.stopping.is_set():
            # those that are followed do not wait for hundreds of claims
            if time.monotonic() > until:
                self.wake()
                return
            with self.database.write() as session:
                claim = lease.claim(
                    session, self.worker, self.settings.lease_seconds, submitted=True
                )
            if claim is None:
                return
            self._runs[claim.run_id] = run = _Submitted(self, claim)
            pool.submit(run.prepare)

    def _renew(self) -> None:
        """Renew all leases at once; a run that is no longer held is left to whoever has it, and its
        job to the sweep.
        """
        claims = {run: run.claim for run in [*self._runs.values()]}
        with self.database.write() as session:
            lost = lease.renew_all(session, claims.values(), self.settings.lease_seconds)
        for run, claim in claims.items():
            if claim.run_id in lost and run.claim is claim:  # no other attempt has begun meanwhile
                run.over = True
                self._look.set()

    def _keep_renewing(self) -> None:
        failures = RepeatedFailure(_log, "the leases of submitted runs could not be renewed")
        while not self.stopping.is_set():
            try:
                self._renew()
            except Exception as error:  # noqa: BLE001
                failures.failed(error)
            else:
                failures.worked()
            self.stopping.wait(self.settings.heartbeat_seconds)

    def _follow(self, pool: ThreadPoolExecutor) -> None:
        """Look at each run, and write what is new; one that is over is concluded.

        In parts, each of which is written in one transaction before the next is looked at; by their
        ids, the order in which all lock them.
        """
        runs = sorted(self._runs.items())
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            part = runs[start : start + _RUNS_AT_ONCE]
            for run_id, run in part:
                if run.over:
                    self._drop(run_id)
                    pool.submit(self._conclude, run)
                elif run.may_ask_again():
                    run.waits_until = None
                    pool.submit(run.prepare)
                elif run.is_followed and time.monotonic() > run.next_look:
                    run.look()
            self._flush([run for _, run in part if run.is_due()])
        until = time.monotonic() + _MERGE_SECONDS
        for _, run in runs:  # the chunks of runs that began together are as many at the same time
            if run.is_followed and not run.over and time.monotonic() < until:
                run.guarded(partial(run.record.retried, run.record.recorder.merge))

    def _flush(self, runs: Sequence["_Submitted"]) -> None:
        """Write what was collected in one transaction."""
        if not runs:
            return

        def write() -> list[_Submitted]:
            with self.database.write() as session:
                lost = lease.renew_all(
                    session, [run.claim for run in runs], self.settings.lease_seconds
                )
                left = [run for run in runs if run.claim.run_id not in lost]
                for run in left:
                    run.write_start_in(session)
                waiting = [run.record.recorder for run in left if run.record.recorder.waits]
                written = write_all(session, waiting, self.settings.lease_seconds)
            return [
                run
                for run in left
                if run.record.recorder not in waiting or run.record.recorder in written
            ]

        try:
            written = runs[0].record.retried(write)
        except OUTAGES:
            raise
        except Exception:  # noqa: BLE001
            for run in runs:
                run.guarded(run.flush)
            return
        for run in runs:
            run.was_written(is_held=run in written)

    def _drop(self, run_id: str) -> None:
        if len(self._runs) == MOST_RUNS:
            self.wake()
        self._runs.pop(run_id).close()

    def _conclude(self, run: "_Submitted") -> None:
        try:
            clear_checkpoints(self.settings, run.record, run.claim.run_id)
            conclude(self.database, run.claim.job_id)
        except Exception as error:  # noqa: BLE001
            log_failure(_log, error, f"job {run.claim.job_id} could not be concluded now")

    # What is asked of the schedulers, once a period for all runs.

    def _keep_asking(self) -> None:
        failures = RepeatedFailure(_log, "the schedulers could not be asked")
        while not self.stopping.is_set():
            try:
                self.sweep()
            except Exception as error:  # noqa: BLE001
                failures.failed(error)
            else:
                failures.worked()
            if self._look.wait(self.settings.reconcile_seconds):
                self._look.clear()

    def sweep(self) -> None:
        """Ask all schedulers, and sweep what is left there."""
        self.schedulers.sweep(self._runs)


def _allow_many_files() -> None:
    with suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _seconds_until(submission: Submission) -> float:
    """Seconds of training on all starts of a job up to the newest on record."""
    last, began = last_change(submission), submission.started_at
    return submission.earlier_seconds + (
        0.0 if last is None or began is None else max(0.0, last - began)
    )


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


class _Reported:
    """What a trainer on a node reports and prints."""

    def __init__(
        self, watch: Watch, folder: int, output: int, printed: Sequence[str], layers: str
    ) -> None:
        self.watch = watch
        self._folder, self._output, self._layers = folder, output, layers
        self._copied = dict.fromkeys(printed, 0)

    @classmethod
    def opened(
        cls, folder: int, row: Submission, places: Sequence[str], planned: int, began: float
    ) -> "_Reported | None":
        """What the newest start of a job writes below an open folder; None if it is not there yet.
        `began`: of time.monotonic().
        """
        output, stdout, stderr = (place.format(row.start) for place in places)
        plan = plan_of(row)
        if not _exists(folder, stdout):
            return None
        opened = open_below(folder, output)
        if opened is None:
            return None
        prints = plan.reports.path == STDOUT
        base, path = (folder, stdout) if prints else (opened, plan.reports.path)
        follower = ReportFollower(base, path, plan.reports.pattern, last_recorded(planned))
        tail = partial(_tail, folder, stderr if prints else stdout)
        watch = Watch(
            plan.limits,
            follower,
            planned,
            Path(row.folder) / output,
            tail,
            began=began,
            sizes=_SIZES,
        )
        printed = (stdout, stderr) if prints else (stdout,)
        return cls(watch, folder, opened, printed, plan.reports.layers)

    def copy(self, log: Path, *, all_of_it: bool = False) -> None:
        """Copy what is newly printed to the log of the attempt, a piece of it or all, as far as a
        reader would look.
        """
        if not log.exists():
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        for name, copied in self._copied.items():
            with suppress(LogRefusedError, OSError):
                source = open_below(self._folder, name)
                if source is None:
                    continue
                try:
                    most = _MOST_LOG_BYTES - copied
                    piece = os.pread(source, most if all_of_it else min(_PIECE, most), copied)
                finally:
                    os.close(source)
                if piece:
                    with log.open("ab") as out:
                        out.write(piece)
                    self._copied[name] = copied + len(piece)

    def layers(self) -> Iterator[LayerTableMessage]:
        """The statistics by layer that the trainer left. Raises LogRefusedError."""
        if self._layers:
            yield from layer_messages(self._output, self._layers)

    def close(self) -> None:
        """Let go of the files."""
        self.watch.close()
        os.close(self._output)


def _tail(folder: int, name: str) -> str:
    try:
        opened = open_below(folder, name)
    except LogRefusedError as error:
        return str(error)
    if opened is None:
        return "(empty)"
    try:
        return tail_of(opened)
    finally:
        os.close(opened)


class _Submitted:
    """One run with its job at a scheduler. `prepare` runs in a thread of the pool, `look` in that
    of the submitter, one after the other.
    """

    def __init__(self, submitter: Submitter, claim: Claim) -> None:
        self._all, self.claim = submitter, claim
        self.is_followed = self.over = False
        self.waits_until: float | None = None
        """When (of time.monotonic) a scheduler that was away is asked again."""
        self.next_look = 0.0
        self._was_slow = False
        self.record = AttemptRecord(
            submitter.settings, submitter.database, claim, submitter.stopping
        )
        self._row: Submission | None = None
        self._has_recorded = False
        self._skip_below = 0
        self._trainer: _Reported | None = None
        self._control: _Reported | None = None
        self._folder: int | None = None
        self._next_flush = 0.0
        self._looks_at_rest = 0
        self._unwritten: dict[str, Any] = {}  # columns of the newest start
        self._not_started_at = 0.0  # unix seconds of the last look that found no further start
        self._place = ""
        self._followed_since = 0.0
        self._gone_since: float | None = None

    # Steps 1 to 6.

    def prepare(self) -> None:
        """Bring the run to its scheduler, from the step that is on record."""
        with logs.bound(
            worker=self._all.worker.id,
            job=self.claim.job_id,
            run=self.claim.run_id,
            attempt=self.claim.attempt_number,
        ):
            self.guarded(self._prepare)

    def _prepare(self) -> None:
        self._row = submitting.intended(self._all.settings, self.claim, self.record)
        if self._row is None:
            self.over = True
            return
        submitting.submit(self._row, self.record)
        self._all.schedulers.is_back(scheduler_of(self._row).place)
        self._attach()

    def _attach(self) -> None:
        """Follow the job from now on, from the first step that is not recorded yet."""
        row = self._submission
        since = Attempt.attempt_number >= row.attempt_number
        recorded = select(func.count()).where(
            Attempt.run_id == row.run_id, since, Attempt.first_step.is_not(None)
        )
        has_recorded = row.start is not None and self.record.read(
            lambda session: session.scalar(recorded)
        )
        self._skip_below = self.claim.steps_done if has_recorded else 0
        self._folder = os.open(row.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._place = scheduler_of(row).place
        self._followed_since = time.monotonic()
        self.is_followed = True

    # Steps 7 and 8.

    def look(self) -> None:
        """Record what is new, and how the run ended if it has."""
        with logs.bound(
            worker=self._all.worker.id,
            job=self.claim.job_id,
            run=self.claim.run_id,
            attempt=self.claim.attempt_number,
        ):
            # A busy machine, or a lock of the database, is not this run's doing; but that clock is
            # slow to read.
            began, processor = time.monotonic(), time.thread_time() if self._was_slow else None
            self.guarded(self._look)
            took = 0.0 if processor is None else time.thread_time() - processor
            self._was_slow = time.monotonic() - began > _SLOW_SECONDS
            self.next_look = (
                0.0 if took < _SLOW_SECONDS else time.monotonic() + took / _SHARE_OF_TIME
            )

    def _look(self) -> None:
        assert self._folder is not None  # noqa: S101
        self._note_starts()
        row, ended = self._submission, None
        if row.start is not None:
            ended = script.read_end(self._folder, row.start)
            self._check_negative_control(is_over=ended is not None)
            self._open()
        trainer = self._trainer
        if trainer is not None:
            self._add(trainer.watch.rows(ended=False))
            trainer.copy(self._log_path())
        if ended is not None:
            if trainer is None:
                raise EndedError("NO_LOSS", "the trainer ended, and its output folder is gone")
            self._looks_at_rest += 1
            if trainer.watch.is_behind and self._looks_at_rest < _MOST_LOOKS:
                return
            self._add(trainer.watch.rows(ended=True))
            trainer.copy(self._log_path(), all_of_it=True)
            self._record_layers(trainer)
            trainer.watch.check_end(int(ended.word))
            self._end(
                partial(lease.finish, claim=self.claim), int(ended.word), self._ended_at(ended.at)
            )
            return
        job = self._job()
        if trainer is not None and not (job is not None and job.state in ("held", "waiting")):
            trainer.watch.check_limits()
            self._check_time()
        self._check_job()

    def _ended_at(self, node_time: float) -> float | None:
        """When the newest start ended, by this record's clock: it took as long as its node says;
        None where that is unknown.
        """
        row = self._submission
        if self._folder is None or row.start is None:
            started = None
        else:
            started = script.read_start(self._folder, row.start)
        if started is None or row.started_at is None:
            return None
        return min(
            row.started_at + max(0.0, node_time - started.at), max(time.time(), row.started_at)
        )

    def is_due(self) -> bool:
        """Whether it has steps that are to be written now."""
        is_new = self.record.recorder.waits or bool(self._unwritten)
        return self.is_followed and not self.over and is_new and time.monotonic() > self._next_flush

    def write_start_in(self, session: Session) -> None:
        """Write a start that is not on record yet, in the transaction of its first steps or
        before.
        """
        if self._unwritten:
            submissions.change(
                session, self._submission.run_id, self._submission.number, **self._unwritten
            )

    def flush(self) -> None:
        """Write what is new, of this run alone."""
        self._write_start()
        self.record.flush()

    def _write_start(self) -> None:
        if self._unwritten:
            self.record.fenced(self.write_start_in)
            self._unwritten = {}

    def was_written(self, *, is_held: bool) -> None:
        """What it had is on record, unless it is no longer held."""
        if not is_held:
            _log.info(
                "run %s is no longer held: its job is left to whoever holds it, or to the sweep",
                self.claim.run_id,
            )
            self.over = True
            return
        self.record.recorder.flushed()
        self._unwritten = {}
        self._next_flush = time.monotonic() + self._all.settings.flush_seconds

    def _note_starts(self) -> None:
        """Note that the job was started, or started again."""
        assert self._folder is not None  # noqa: S101
        row, number = (
            self._submission,
            -1 if self._submission.start is None else self._submission.start,
        )
        start, looked_at = None, time.time()
        while number < _MOST_STARTS and (newer := script.read_start(self._folder, number + 1)):
            number, start = number + 1, newer
        if start is None:
            self._not_started_at = looked_at
            return
        # A node's clock may be wrong: it was not started before the last look, nor after this one.
        earliest = max(row.created_at, self._not_started_at, row.started_at or 0.0)
        started_at = min(max(start.at, earliest), max(looked_at, earliest))
        columns: dict[str, Any] = {
            "start": number,
            "started_at": started_at,
            "reason": None,
            "earlier_seconds": _seconds_until(row),
        }
        if not self._has_recorded:  # nothing of this attempt came from an earlier start
            columns["attempt_number"] = self.claim.attempt_number
            submitting.update(row, **columns)
            self._unwritten |= columns
        else:
            self._begin_next_attempt(columns)
        self._skip_below = 0
        self._close_trainer()

    def _begin_next_attempt(self, columns: dict[str, Any]) -> None:
        """End the attempt of an earlier start and begin the next, in one transaction."""
        row, settings = self._submission, self._all.settings
        if self._trainer is not None:
            self._add(self._trainer.watch.rows(ended=True))
            self._trainer.copy(self._log_path(), all_of_it=True)
            self._record_layers(self._trainer)
        self._write_start()
        self.record.write_last_steps()
        why = f"its job {row.scheduler_id} was taken from its node, and started again"

        def begin(session: Session) -> Claim:
            claim = lease.next_attempt(
                session, self.claim, self._all.worker, settings.lease_seconds, why
            )
            submissions.change(
                session, row.run_id, row.number, **columns, attempt_number=claim.attempt_number
            )
            return claim

        self.claim = self.record.written(begin)
        submitting.update(row, **columns, attempt_number=self.claim.attempt_number)
        self.record = AttemptRecord(settings, self._all.database, self.claim, self._all.stopping)
        self._has_recorded = False

    def _open(self) -> None:
        """Open what the newest start of the job reports and prints, once it is there."""
        row = self._submission
        if self._trainer is None and self._control is None and self._folder is not None:
            began = time.monotonic() - max(0.0, time.time() - (row.started_at or 0.0))
            self._trainer = _Reported.opened(
                self._folder, row, _TRAINER_FILES, self.claim.spec.schedule.steps, began
            )

    def _check_negative_control(self, *, is_over: bool) -> None:
        """Look whether the launcher trains without the commit's files; the job starts with that
        where it was not known.
        """
        row, folder = self._submission, self._folder
        if (
            folder is None
            or self._trainer is not None
            or not (plan := plan_of(row)).negative_control
        ):
            return
        settings, digest = self._all.settings, row.launcher_digest
        if negative_controls.is_needed(settings, digest, row.launcher, plan.paths):
            if self._control is None:
                self._control = _Reported.opened(
                    folder, row, _CONTROL_FILES, self.claim.spec.schedule.steps, time.monotonic()
                )
            if self._control is None:
                return
            has_begun = is_over or _exists(folder, f"stdout.{row.start}")
            reports = self._control.watch.reports_a_step(ended=has_begun)
            if not reports and not has_begun:
                self._control.watch.check_limits()
                return
            negative_controls.write_result(
                settings, digest, self._control.watch.last_step if reports else None
            )
        if self._control is not None:
            self._control.close()
            self._control = None
        negative_controls.is_needed(settings, digest, row.launcher, plan.paths)

    def _add(self, reports: Iterable[Report]) -> None:
        """Keep the new rows of reports that are not recorded yet."""
        for report in reports:
            new = report.steps >= self._skip_below
            if new.any():
                columns = {name: values[new].tolist() for name, values in report.columns.items()}
                self.record.recorder.add_report(
                    {"kind": "report", "steps": report.steps[new].tolist(), "columns": columns}
                )
                self._has_recorded = True
            held_out = np.asarray(report.validation["step"])
            for step, loss in zip(
                held_out.tolist(), report.validation["loss"].tolist(), strict=True
            ):
                if step >= self._skip_below:
                    self.record.retried(
                        partial(
                            self.record.recorder.write_row, "validation", int(step), {"loss": loss}
                        )
                    )

    def _record_layers(self, trainer: _Reported) -> None:
        """Record the statistics by layer that a trainer left, however it ended."""
        try:
            for message in trainer.layers():
                self.record.retried(partial(self.record.recorder.write_layers, message))
        except (LogRefusedError, OSError) as error:
            self.record.note(f"statistics by layer are not recorded: {error}")

    def _check_time(self) -> None:
        """Raises EndedError for a run that trained for longer than its job, or the operator,
        allows; waiting is no training.
        """
        claim, row = self.claim, self._submission
        job_limit = None if claim.max_seconds is None else claim.max_seconds + claim.seconds_trained
        allowed = min(
            (
                limit
                for limit in (job_limit, self._all.settings.max_run_seconds)
                if limit is not None
            ),
            default=None,
        )
        if allowed is not None and submissions.device_seconds(row, time.time()) > allowed:
            raise EndedError(
                "TIME_LIMIT",
                f"the run trained for longer than its {allowed:.0f} s; plan fewer steps, or raise "
                "max_run_seconds",
            )

    def _check_job(self) -> None:
        """Give the attempt up if the scheduler has called the job over for a while, and the job has
        not told its end.
        """
        row, listing, job = self._submission, self._listing(), self._job()
        if listing is None:
            return
        if job is not None and job.state not in OVER:
            self._gone_since = None
            return
        self._gone_since = self._gone_since or listing.asked_at
        # one that reports is there, whatever is said
        reported_at = 0.0 if self._trainer is None else self._trainer.watch.wrote_at
        if listing.asked_at - max(self._gone_since, reported_at) < LOST_SECONDS:
            return
        said = job.said if job is not None else f"{row.scheduler.capitalize()} no longer knows it"
        why = f"its job {row.scheduler_id} is over ({said}) and has not told its end"
        if job is not None and job.state == "preempted":
            self._give_back(f"{_PREEMPTED}: {why}", "released")
        else:
            assert self._folder is not None  # noqa: S101
            self._give_back(
                f"{_LOST}: {why}; the end of its log: {_tail(self._folder, LOG)}", "crashed"
            )

    def _listing(self) -> listings.Listing | None:
        """What the scheduler said last, since the run is followed."""
        listing = self._all.schedulers.listings.get(self._place)
        if listing is None or listing.asked_at < self._followed_since:
            return None
        return listing

    def _job(self) -> ScheduledJob | None:
        listing = self._listing()
        job = None if listing is None else listing.jobs.get(self._submission.scheduler_id or "")
        # a controller that forgets gives an id again
        return job if job is not None and job.key == self._submission.key else None

    # What both have.

    def guarded(self, work: Callable[[], None]) -> None:
        """Do a part of the work; whatever ends the attempt ends it on record."""
        try:
            work()
        except SchedulerUnreachableError as error:
            self._wait(error)
        except LeaseLostError as lost:
            _log.info("%s: its job is left to whoever holds it, or to the sweep", lost)
            self.over = True
        except OUTAGES as error:
            _log.error(
                "run %s cannot go on without the database, and its job trains on: %s",
                self.claim.run_id,
                reason(error),
            )
            self.over = True
        except Exception as error:  # noqa: BLE001
            try:
                self._end_by(error)
            except (LeaseLostError, *OUTAGES):
                pass  # whoever holds the run, or claims it next, finds the same
            except Exception:  # noqa: BLE001
                _log.exception("run %s cannot be ended", self.claim.run_id)
                with suppress(Exception):
                    self.record.give_back(f"its submitter failed: {error!r}", "crashed")
            self.over = True

    def _end_by(self, error: Exception) -> None:
        """End the attempt for the reason of an error."""
        if self._row is not None and self._row.state != "ended":
            with best_effort():
                scheduler = scheduler_of(self._row)
                for job in scheduler.jobs(self._row.key):
                    scheduler.cancel(job.id)
        code, message = getattr(error, "code", ""), f"{getattr(error, 'code', '')}: {error}"
        is_transient = (isinstance(error, EndedError) and error.kind == "broke_off") or (
            isinstance(error, CheckoutError) and error.transient
        )
        if is_transient:
            self._give_back(message, "crashed")
        elif not isinstance(
            error, (EndedError, CheckoutError, LauncherError, LogRefusedError, JobRefusedError)
        ):
            _log.exception("run %s cannot be followed", self.claim.run_id)
            self._give_back(f"its submitter failed: {error!r}", "crashed")
        else:
            how = lease.finish if code in CODES_OF_FINISHED_RUNS else lease.fail
            self._end(partial(how, claim=self.claim, code=code, message=str(error)))

    def _give_back(self, why: str, attempt: BrokenAttempt) -> None:
        def give_back(session: Session) -> None:
            if not self.record.give_back_in(session, why, attempt):
                raise LeaseLostError(
                    f"attempt {self.claim.attempt_number} no longer holds run {self.claim.run_id}"
                )

        self._end(give_back)

    def _end(
        self,
        change: Callable[[Session], object],
        status: int | None = None,
        ended_at: float | None = None,
    ) -> None:
        """End the attempt, and the submission in the same transaction."""
        row = self._row
        self._write_start()
        self.record.write_last_steps()

        def both(session: Session) -> None:
            change(session)
            if row is not None:
                when = last_change(row) if ended_at is None else ended_at
                submissions.end(session, row.run_id, row.number, ended_at=when, exit_status=status)

        self.record.written(both)
        if row is not None:
            shutil.rmtree(row.folder, ignore_errors=True)
        self.over = True

    def _wait(self, error: SchedulerUnreachableError) -> None:
        """Try again later: the scheduler does not answer, or takes no more jobs for now."""
        row, reason = self._row, str(error)
        if row is not None:
            self._place = scheduler_of(row).place
            if not error.is_full:
                self._all.schedulers.is_away(self._place, reason)
                reason = f"{error.code}: {reason}"
            if reason != row.reason:
                with suppress(LeaseLostError, *OUTAGES):
                    self._change(reason=reason)
        self.waits_until = time.monotonic() + self._all.settings.reconcile_seconds

    def may_ask_again(self) -> bool:
        """Whether it waits for a scheduler, and may ask it again; one that is away is asked by the
        sweep, once for all.
        """
        is_time = self.waits_until is not None and time.monotonic() > self.waits_until
        return is_time and self._all.schedulers.answers(self._place)

    def leave(self) -> None:
        """Queue the run again, with its job as it is: the next worker that claims it goes on."""
        with suppress(LeaseLostError, *OUTAGES):
            self.flush()
            self.record.give_back("the worker was stopped; its job goes on", "released")
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self.is_followed = False
        self._close_trainer()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _close_trainer(self) -> None:
        for reported in (self._trainer, self._control):
            if reported is not None:
                reported.close()
        self._trainer = self._control = None

    @property
    def _submission(self) -> Submission:
        assert self._row is not None  # noqa: S101
        return self._row

    def _change(self, **columns: Any) -> None:
        """Change the row behind the fence of the run."""
        submitting.change(self._submission, self.record, **columns)

    def _log_path(self) -> Path:
        return (
            self._all.settings.state_dir
            / "logs"
            / "runs"
            / f"{self.claim.run_id}-{self.claim.attempt_number}.log"
        )
