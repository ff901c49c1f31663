"""Follows all runs that a worker has submitted to schedulers, hundreds of them, in threads of the one process that the worker is.

A submission is written down step by step, so that a worker that is killed after any of them leaves nothing behind that runs twice, waits
for ever or is forgotten. Whoever claims the run next goes on at the step that is on record:

    claimed     the files of the commit, the manifest; an equal run ends it here, and nothing is submitted
    intended    the row with the job's key is written before the scheduler is asked. Then its jobs of that key are listed: only where there
                is none is one submitted, held; of several the lowest id counts, and the others are swept
    held        the job's id is on record, behind the fence of the run, before the job may start; then it is released
    released    the job's own files tell of its starts and its end (`workers.commands.script`), the trainer's report of its steps
    ended       in one transaction with the end of the attempt

A start of the job after the first (it was preempted, or its node died) ends the attempt and begins the next in one transaction: a step
that is logged again replaces the earlier one. What the job's files say outranks the scheduler, which may call a job running that has ended.
A scheduler that does not answer is asked again for as long as it takes, and nothing fails meanwhile.
"""

import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from parity.judging.schedule import last_recorded
from parity.structure import fields_of, frozen
from server import logs
from server.database import sessions
from server.database.sessions import Database
from server.database.tables import Attempt, Run, Submission, Worker
from server.jobs import submissions
from server.jobs.conclude import conclude
from server.jobs.lifecycle import BrokenAttempt
from server.settings import Settings
from workers import lease
from workers.commands import checkout, script
from workers.commands.checkout import CheckoutError
from workers.commands.follow import Follower, LogRefusedError, Report, open_below
from workers.commands.kubernetes import Kubernetes
from workers.commands.launchers import STDOUT, Launcher, LauncherError, Limits, Reports, read_launchers
from workers.commands.schedulers import OVER, Job, RefusedError, Scheduler, UnreachableError, best_effort
from workers.commands.slurm import Slurm
from workers.commands.watch import EndedError, Watch, launcher_of, manifest, tail_of, trains_without_its_commit
from workers.lease import Claim, LeaseLostError
from workers.recorder import JUDGED_ANYWAY, AttemptRecord
from workers.supervisor import clear_checkpoints

MOST_RUNS = 400  # of one worker; the others wait for it, or for another one
LOST_SECONDS = 60.0  # that a job may be over for its scheduler without the file of its end
_LOST, _PREEMPTED = "JOB_LOST", "PREEMPTED"  # what the messages of such attempts begin with
_TICK_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 1.0  # between two rounds: as long as the last one took, within these
_PREPARED_AT_ONCE = 4
_RUNS_AT_ONCE = 50  # of one transaction
_SIZES = (60.0, 0.0005)  # seconds between two looks at the size of an output, and the most of the time that they may take
_MOST_LOG_BYTES, _PIECE = 64 * 2**20, 1 << 20
_FILES = 8192  # that this process may have open, if the system allows it

_log = logging.getLogger(__name__)


@frozen
class Plan:
    """What a launcher said when a run was submitted; the row of the submission has it as JSON."""

    reports: Reports
    limits: Limits
    paths: tuple[str, ...]
    scheduler: Mapping[str, Any]
    proves: bool

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        return fields_of(self) | {"reports": fields_of(self.reports), "limits": fields_of(self.limits)}


def _plan_of(submission: Submission) -> Plan:
    own = submission.plan
    return Plan(
        reports=Reports(**own["reports"]),
        limits=Limits(**own["limits"]),
        paths=tuple(own["paths"]),
        scheduler=own["scheduler"],
        proves=own["proves"],
    )


def scheduler_of(name: str, options: Mapping[str, Any]) -> Scheduler:
    """The scheduler of a launcher, or of a submission, by its name."""
    schedulers: Mapping[str, type[Slurm] | type[Kubernetes]] = {"slurm": Slurm, "kubernetes": Kubernetes}
    return schedulers[name](options)


@frozen
class Listing:
    """The jobs of a place by their ids, as of `asked_at` (of time.monotonic)."""

    asked_at: float
    jobs: Mapping[str, Job]


class Submitter:
    """Submits the runs of launchers that have a scheduler, follows them, and sweeps what killed workers left with the schedulers."""

    def __init__(self, settings: Settings, database: Database, worker: Worker, stopping: threading.Event) -> None:
        self.settings, self.database, self.worker, self.stopping = settings, database, worker, stopping
        self.listings: dict[str, Listing] = {}
        self._runs: dict[str, _Submitted] = {}
        self._bell = threading.Event()
        self._look = threading.Event()
        self._unrecorded: dict[str, set[str]] = {}
        self._away: dict[str, str] = {}
        self._next_claim = 0.0

    def ring(self) -> None:
        """Look for runs now."""
        self._bell.set()

    def work(self) -> None:
        """Claim, submit and follow runs until the worker stops; then leave their jobs to the next one."""
        _allow_many_files()
        others = [
            threading.Thread(target=self._keep_asking, name="schedulers"),
            threading.Thread(target=self._keep_renewing, name="leases"),
        ]
        for other in others:
            other.start()
        pool = ThreadPoolExecutor(_PREPARED_AT_ONCE, thread_name_prefix="submit")
        while not self.stopping.is_set():
            began = time.monotonic()
            try:
                self._claim(pool)
                self._follow(pool)
            except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
                _log.exception("the submitted runs could not be followed; retrying")
            self.stopping.wait(min(max(_TICK_SECONDS, time.monotonic() - began), _LONGEST_PAUSE_SECONDS))
        self._look.set()
        for other in others:
            other.join()
        pool.shutdown(wait=False, cancel_futures=True)  # what is submitted now is found by its key
        for run in self._runs.values():
            run.leave()
        self._runs.clear()

    def _claim(self, pool: ThreadPoolExecutor) -> None:
        """Claim what waits: at a ring, and periodically."""
        now = time.monotonic()
        if not self._bell.is_set() and now < self._next_claim:
            return
        self._bell.clear()
        self._next_claim = now + self.settings.reconcile_seconds
        while len(self._runs) < MOST_RUNS and not self.stopping.is_set():
            with self.database.write() as session:
                held = lease.claim(session, self.worker, self.settings.lease_seconds, submitted=True)
            if held is None:
                return
            self._runs[held.run_id] = run = _Submitted(self, held)
            pool.submit(run.prepare)

    def _renew(self) -> None:
        """Renew all leases at once; a run that is no longer held is left to whoever has it, and its job to the sweep."""
        held = {run: run.held for run in [*self._runs.values()]}
        with self.database.write() as session:
            lost = lease.renew_all(session, held.values(), self.settings.lease_seconds)
        for run, own in held.items():
            if own.run_id in lost and run.held is own:  # no other attempt has begun meanwhile
                run.over = True
                self._look.set()

    def _keep_renewing(self) -> None:
        while not self.stopping.is_set():
            try:
                self._renew()
            except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
                _log.exception("the leases of submitted runs could not be renewed; retrying")
            self.stopping.wait(self.settings.heartbeat_seconds)

    def _follow(self, pool: ThreadPoolExecutor) -> None:
        """Look at each run; one that is over is concluded."""
        for run_id, run in [*self._runs.items()]:
            if run.over:
                self._drop(run_id)
                pool.submit(self._conclude, run)
            elif run.waits_until is not None and time.monotonic() > run.waits_until:
                run.waits_until = None
                pool.submit(run.prepare)
            elif run.is_followed:
                run.look()
        self._flush([run for _, run in sorted(self._runs.items()) if run.is_due()])

    def _flush(self, runs: Sequence["_Submitted"]) -> None:
        """Write what was collected, of many runs in one transaction: a commit for each would take most of the time.

        In the order of their ids, as everybody locks them.
        """
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            part = runs[start : start + _RUNS_AT_ONCE]

            def write(part: Sequence[_Submitted] = part) -> list[_Submitted]:
                with self.database.write() as session:
                    return [run for run in part if run.is_written_in(session)]

            for run in part[0].record.retried(write):
                run.guarded(run.record.recorder.flushed)

    def _drop(self, run_id: str) -> None:
        if len(self._runs) == MOST_RUNS:
            self.ring()
        self._runs.pop(run_id).close()

    def _conclude(self, run: "_Submitted") -> None:
        try:
            clear_checkpoints(self.settings, self.database, run.held.run_id)
            conclude(self.database, run.held.job_id)
        except Exception:  # noqa: BLE001 (the housekeeping does it later)
            _log.exception("job %s could not be concluded now", run.held.job_id)

    # What is asked of the schedulers, once a period for all runs.

    def _keep_asking(self) -> None:
        while not self.stopping.is_set():
            try:
                self.sweep()
            except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
                _log.exception("the schedulers could not be asked; retrying")
            if self._look.wait(self.settings.reconcile_seconds):
                self._look.clear()

    def sweep(self) -> None:
        """List the jobs of every place once; end those whose run has ended, and those that are on no record; note where each waits."""
        with self.database.read() as session:
            rows = submissions.open_ones(session)
            prefix = submissions.deployment(session)
        for place, scheduler in (self._known() | {own.place: own for own in map(_scheduler_of, self._rows_of(rows))}).items():
            try:
                self._sweep(scheduler, prefix)
            except UnreachableError as error:
                self.is_away(place, str(error))
            else:
                self.is_back(place)
        self._remove_folders(rows)

    def _known(self) -> dict[str, Scheduler]:
        """The schedulers of the launchers, by their places."""
        assert self.settings.launchers is not None  # noqa: S101 (as this worker has launchers)
        with suppress(LauncherError):  # its operator may be writing it
            launchers = read_launchers(self.settings.launchers).values()
            schedulers = [scheduler_of(each.scheduler, each.submits_with) for each in launchers if each.scheduler]
            return {own.place: own for own in schedulers}
        return {}

    def _rows_of(self, rows: Sequence[tuple[Submission, bool]]) -> list[Submission]:
        """The submissions of runs that are followed here, or were by launchers that this worker still has."""
        return [row for row, _ in rows if row.run_id in self._runs or row.launcher in self.worker.device["launchers"]]

    def _sweep(self, scheduler: Scheduler, prefix: str) -> None:
        asked_at = time.monotonic()
        jobs = [job for job in scheduler.jobs() if job.key.startswith(f"{prefix}-")]
        self.listings[scheduler.place] = Listing(asked_at=asked_at, jobs={job.id: job for job in jobs})
        with self.database.read() as session:  # after the jobs were listed: each had its row before the scheduler was asked for it
            on_record = {submission.key: (submission, is_over) for submission, is_over in submissions.open_ones(session)}
        here = {key: each for key, each in on_record.items() if _scheduler_of(each[0]).place == scheduler.place}
        for submission, is_over in here.values():
            if is_over:
                for job in jobs:
                    if job.key == submission.key:
                        scheduler.cancel(job.id)
                with self.database.write() as session:
                    submissions.end(session, submission.run_id, submission.number, ended_at=_last_change(submission))
        stays = [job for job in jobs if scheduler.keeps_ended or job.state not in OVER]
        unrecorded = {job.id for job in stays if not _is_on_record(job, on_record)}
        for job_id in unrecorded & self._unrecorded.get(scheduler.place, set()):
            _log.info("job %s of %s is on no open record and was cancelled", job_id, scheduler.place)
            scheduler.cancel(job_id)
        self._unrecorded[scheduler.place] = unrecorded
        for job in jobs:  # its controller died, and came back with an older state
            if scheduler.forgets and job.state == "held" and job.key in here and here[job.key][0].state == "released":
                scheduler.release(job.id)
        by_key = {job.key: job for job in jobs if job.state not in OVER}
        reasons = [(row, _reason(by_key.get(row.key), row)) for row, is_over in here.values() if not is_over and row.scheduler_id]
        changed = [(row, reason) for row, reason in reasons if reason != row.reason]
        if changed:
            with self.database.write() as session:
                for row, reason in changed:
                    submissions.change(session, row.run_id, row.number, reason=reason)

    def is_away(self, place: str, why: str) -> None:
        """Say once that a scheduler does not answer."""
        if place not in self._away:
            _log.warning("%s: %s does not answer (%s); it is asked again, and no run fails meanwhile", UnreachableError.code, place, why)
        self._away[place] = why

    def is_back(self, place: str) -> None:
        """Say once that it answers again."""
        if self._away.pop(place, None) is not None:
            _log.warning("%s answers again", place)

    def _remove_folders(self, rows: Sequence[tuple[Submission, bool]]) -> None:
        """Remove the folders of submissions that are over."""
        for folder in sorted(folder_of(self.settings, "r", 0).parent.glob("r*-*-*")):
            run_id, _, number = folder.name.rpartition("-")
            if run_id in self._runs or str(folder) in {submission.folder for submission, _ in rows} or not number.isdecimal():
                continue
            with self.database.read() as session:
                run, row = session.get(Run, run_id), session.get(Submission, (run_id, int(number)))
                is_over = run is None or run.state != "running" if row is None else row.state == "ended"
            if is_over:
                shutil.rmtree(folder, ignore_errors=True)


def _scheduler_of(row: Submission) -> Scheduler:
    return scheduler_of(row.scheduler, _plan_of(row).scheduler)


def folder_of(settings: Settings, run_id: str, number: int) -> Path:
    """The folder of a submission of a run."""
    return (settings.state_dir / "submitted").resolve() / f"{run_id}-{number}"


def _is_on_record(job: Job, on_record: Mapping[str, tuple[Submission, bool]]) -> bool:
    submission = on_record[job.key][0] if job.key in on_record else None
    return submission is not None and submission.scheduler_id in (None, job.id)


def _reason(job: Job | None, submission: Submission) -> str | None:
    """Why a job does not train, in the scheduler's words; None while it does."""
    if job is None or job.state not in ("held", "waiting"):
        return None if job is not None or submission.start is not None else submission.reason
    return job.said


def _allow_many_files() -> None:
    with suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _last_change(submission: Submission) -> float | None:
    """When the newest start of a job wrote something for the last time, which is when it ended at the latest; None where nobody knows."""
    if submission.start is None:
        return None
    folder, path = Path(submission.folder), _plan_of(submission).reports.path
    names = (f"started.{submission.start}", f"stdout.{submission.start}", f"output.{submission.start}/{path}", f"ended.{submission.start}")
    times = []
    for name in names:
        with suppress(OSError):
            times.append(os.lstat(folder / name).st_mtime)
    return max(times, default=None)


def _seconds_until(submission: Submission) -> float:
    """Seconds of training on all starts of a job up to the newest on record."""
    last, began = _last_change(submission), submission.started_at
    return submission.earlier_seconds + (0.0 if last is None or began is None else max(0.0, last - began))


def _found_or_submitted(scheduler: Scheduler, row: Submission) -> str:
    """The id of the job of a submission; one is submitted only where the scheduler has none of that key. The sweep ends others."""
    found = [job.id for job in scheduler.jobs(row.key)]
    return min(found, key=lambda each: (len(each), each)) if found else scheduler.submit(row.key, Path(row.folder))


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody reads a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{threading.get_ident()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


# The output of a start, what it prints, and its errors where the losses are printed.
_OF_TRAINER, _OF_PROOF = ("output.{}", "stdout.{}", "stderr.{}"), ("without.{}/output", "without.{}/stdout", "without.{}/stderr")


class _Reported:
    """What a trainer on a node reports and prints."""

    def __init__(self, watch: Watch, folder: int, output: int, printed: Sequence[str]) -> None:
        self.watch = watch
        self._folder, self._output = folder, output
        self._copied = dict.fromkeys(printed, 0)

    @classmethod
    def opened(cls, folder: int, row: Submission, places: Sequence[str], planned: int, began: float) -> "_Reported | None":
        """What the newest start of a job writes below an open folder; None if it is not there yet. `began`: of time.monotonic()."""
        output, stdout, stderr = (place.format(row.start) for place in places)
        plan = _plan_of(row)
        if not _exists(folder, stdout):
            return None
        opened = open_below(folder, output)
        if opened is None:
            return None
        prints = plan.reports.path == STDOUT
        base, path = (folder, stdout) if prints else (opened, plan.reports.path)
        follower = Follower(base, path, plan.reports.pattern, last_recorded(planned))
        tail = partial(_tail, folder, stderr if prints else stdout)
        watch = Watch(plan.limits, follower, planned, Path(row.folder) / output, tail, began=began, sizes=_SIZES)
        return cls(watch, folder, opened, (stdout, stderr) if prints else (stdout,))

    def copy(self, log: Path) -> None:
        """Copy what is newly printed to the log of the attempt, as far as a reader would look."""
        if not log.exists():
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        for name, copied in self._copied.items():
            with suppress(LogRefusedError, OSError):
                source = open_below(self._folder, name)
                if source is None:
                    continue
                try:
                    piece = os.pread(source, min(_PIECE, _MOST_LOG_BYTES - copied), copied)
                finally:
                    os.close(source)
                if piece:
                    with log.open("ab") as out:
                        out.write(piece)
                    self._copied[name] = copied + len(piece)

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
    """One run with its job at a scheduler. `prepare` runs in a thread of the pool, `look` in that of the submitter, one after the other."""

    def __init__(self, submitter: Submitter, held: Claim) -> None:
        self._all, self.held = submitter, held
        self.is_followed = self.over = False
        self.waits_until: float | None = None
        """When (of time.monotonic) a scheduler that was away is asked again."""
        self.record = AttemptRecord(submitter.settings, submitter.database, held, submitter.stopping)
        self._row: Submission | None = None
        self._has_recorded = False
        self._skip_below = 0
        self._trainer: _Reported | None = None
        self._proof: _Reported | None = None
        self._folder: int | None = None
        self._next_flush = 0.0
        self._place = ""
        self._followed_since = 0.0
        self._gone_since: float | None = None

    # Steps 1 to 6.

    def prepare(self) -> None:
        """Bring the run to its scheduler, from the step that is on record."""
        with logs.bound(worker=self._all.worker.id, job=self.held.job_id, run=self.held.run_id, attempt=self.held.attempt_number):
            self.guarded(self._prepare)

    def _prepare(self) -> None:
        with self._all.database.read() as session:
            self._row = submissions.open_of(session, self.held.run_id)
        if self._row is None and not self._intend():
            self.over = True
            return
        row = self._row
        assert row is not None  # noqa: S101 (as intended)
        scheduler = _scheduler_of(row)
        if row.state == "intended":
            job_id = _found_or_submitted(scheduler, row)
            try:
                self._change(scheduler_id=job_id, state="held", reason=None)
            except LeaseLostError:
                with best_effort():
                    scheduler.cancel(job_id)
                raise
        if row.state == "held":
            assert row.scheduler_id is not None  # noqa: S101 (of a held job)
            scheduler.release(row.scheduler_id)
            self._change(state="released")
        self._all.is_back(scheduler.place)
        self._attach()

    def _intend(self) -> bool:
        """Write the files of the run and the row of its submission; False if the run has ended without one."""
        settings, held, spec = self._all.settings, self.held, self.held.spec
        assert settings.launchers is not None  # noqa: S101 (as this worker has launchers)
        launcher = launcher_of(spec, settings.launchers)
        if not launcher.scheduler:  # it changed since the run was claimed: a slot takes it
            raise EndedError("LAUNCHER_REFUSED", f"launcher {launcher.name} has no scheduler any more", "broke_off")
        mirror, tree = checkout.find(launcher, spec.revision, settings.repositories)
        if self.record.record_manifest(manifest(launcher, spec, tree), None):
            return False
        with self._all.database.read() as session:
            number, prefix = submissions.next_number(session, held.run_id), submissions.deployment(session)
        key, folder = f"{prefix}-{held.run_id}-{number}", folder_of(settings, held.run_id, number)
        shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed before it wrote the row
        (folder / "source").mkdir(parents=True)
        checkout.write(launcher, mirror, tree, folder / "source")
        proves = self._is_unproven(launcher)
        script.write(folder, key, launcher, spec, settings.checkpoints / held.run_id, proves=proves)
        plan = Plan(reports=launcher.reports, limits=launcher.limits, paths=launcher.paths, scheduler=launcher.submits_with, proves=proves)

        def intend(session: Session) -> Submission:
            row = Submission(
                run_id=held.run_id,
                number=number,
                attempt_number=held.attempt_number,
                key=key,
                scheduler=launcher.scheduler,
                launcher=launcher.name,
                launcher_digest=launcher.digest,
                plan=plan.document(),
                folder=str(folder),
                state="intended",
                created_at=sessions.now(session),
            )
            session.add(row)
            session.flush()
            session.expunge(row)
            return row

        self._row = self.record.fenced(intend)
        return True

    def _is_unproven(self, launcher: Launcher) -> bool:
        """Whether the launcher has yet to be started without the commit's files. Raises LauncherError if it was, and trained."""
        proof = self._proof_of(launcher.digest)
        if proof.exists() and (step := proof.read_text(encoding="utf-8")):
            raise LauncherError(trains_without_its_commit(launcher.name, ", ".join(launcher.paths), step))
        return not proof.exists()

    def _proof_of(self, digest: str) -> Path:
        return (self._all.settings.state_dir / "launchers").resolve() / digest

    def _attach(self) -> None:
        """Follow the job from now on, from the first step that is not recorded yet."""
        row = self._submission
        with self._all.database.read() as session:
            since = Attempt.attempt_number >= row.attempt_number
            recorded = select(func.count()).where(Attempt.run_id == row.run_id, since, Attempt.first_step.is_not(None))
            self._skip_below = self.held.steps_done if row.start is not None and session.scalar(recorded) else 0
        self._folder = os.open(row.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._place = _scheduler_of(row).place
        self._followed_since = time.monotonic()
        self.is_followed = True

    # Steps 7 and 8.

    def look(self) -> None:
        """Record what is new, and how the run ended if it has."""
        with logs.bound(worker=self._all.worker.id, job=self.held.job_id, run=self.held.run_id, attempt=self.held.attempt_number):
            self.guarded(self._look)

    def _look(self) -> None:
        assert self._folder is not None  # noqa: S101 (as followed)
        self._note_starts()
        row, ended = self._submission, None
        if row.start is not None:
            ended = script.ended(self._folder, row.start)
            self._prove(is_over=ended is not None)
            self._open()
        trainer = self._trainer
        if trainer is not None:
            self._add(trainer.watch.rows(ended=ended is not None))
            trainer.copy(self._log_path())
        if ended is not None:
            if trainer is None:
                raise EndedError("NO_LOSS", "the trainer ended, and its output folder is gone")
            trainer.watch.check_end(int(ended.word))
            self._end(partial(lease.finish, held=self.held), int(ended.word), ended.at)
            return
        job = self._job()
        if trainer is not None and not (job is not None and job.state in ("held", "waiting")):
            trainer.watch.check_limits()
            self._check_time()
        self._check_job()

    def is_due(self) -> bool:
        """Whether it has steps that are to be written now."""
        return self.is_followed and not self.over and self.record.recorder.waits and time.monotonic() > self._next_flush

    def is_written_in(self, session: Session) -> bool:
        """Write what was collected in a transaction; False, without a write, if the run is no longer held."""
        try:
            self.record.recorder.flush_in(session)
        except LeaseLostError as lost:
            _log.info("%s: its job is left to whoever holds it, or to the sweep", lost)
            self.over = True
            return False
        self._next_flush = time.monotonic() + self._all.settings.flush_seconds
        return True

    def _note_starts(self) -> None:
        """Note that the job was started, or started again."""
        assert self._folder is not None  # noqa: S101 (as followed)
        row, number = self._submission, -1 if self._submission.start is None else self._submission.start
        told = None
        while newer := script.started(self._folder, number + 1):
            number, told = number + 1, newer
        if told is None:
            return
        columns: dict[str, Any] = {"start": number, "started_at": told.at, "reason": None, "earlier_seconds": _seconds_until(row)}
        if not self._has_recorded:  # nothing of this attempt came from an earlier start
            self._change(**columns, attempt_number=self.held.attempt_number)
        else:
            self._begin_anew(columns)
        self._skip_below = 0
        self._close_trainer()

    def _begin_anew(self, columns: dict[str, Any]) -> None:
        """End the attempt of an earlier start and begin the next, in one transaction."""
        row, settings = self._submission, self._all.settings
        if self._trainer is not None:
            self._add(self._trainer.watch.rows(ended=True))
            self._trainer.copy(self._log_path())
        self.record.write_last_steps()
        why = f"its job {row.scheduler_id} was taken from its node, and started again"

        def begin(session: Session) -> Claim:
            held = lease.next_attempt(session, self.held, self._all.worker, settings.lease_seconds, why)
            submissions.change(session, row.run_id, row.number, **columns, attempt_number=held.attempt_number)
            return held

        self.held = self.record.written(begin)
        self._update(**columns, attempt_number=self.held.attempt_number)
        self.record = AttemptRecord(settings, self._all.database, self.held, self._all.stopping)
        self._has_recorded = False

    def _open(self) -> None:
        """Open what the newest start of the job reports and prints, once it is there."""
        row = self._submission
        if self._trainer is None and self._proof is None and self._folder is not None:
            began = time.monotonic() - max(0.0, time.time() - (row.started_at or 0.0))
            self._trainer = _Reported.opened(self._folder, row, _OF_TRAINER, self.held.spec.schedule.steps, began)

    def _prove(self, *, is_over: bool) -> None:
        """Look whether the launcher trains without the commit's files; the job starts with that where it was not known."""
        row, folder = self._submission, self._folder
        if folder is None or self._trainer is not None or not (plan := _plan_of(row)).proves:
            return
        proof = self._proof_of(row.launcher_digest)
        if not proof.exists():
            if self._proof is None:
                self._proof = _Reported.opened(folder, row, _OF_PROOF, self.held.spec.schedule.steps, time.monotonic())
            if self._proof is None:
                return
            has_begun = is_over or _exists(folder, f"stdout.{row.start}")
            reports = self._proof.watch.reports_a_step(ended=has_begun)
            if not reports and not has_begun:
                self._proof.watch.check_limits()
                return
            _write_whole(proof, str(self._proof.watch.last_step) if reports else "")
        if self._proof is not None:
            self._proof.close()
            self._proof = None
        if step := proof.read_text(encoding="utf-8"):
            raise LauncherError(trains_without_its_commit(row.launcher, ", ".join(plan.paths), step))

    def _add(self, report: Report | None) -> None:
        """Keep the new rows of a report that are not recorded yet."""
        if report is None:
            return
        new = report.steps >= self._skip_below
        if new.any():
            columns = {name: values[new].tolist() for name, values in report.columns.items()}
            self.record.recorder.add_report({"kind": "report", "steps": report.steps[new].tolist(), "columns": columns})
            self._has_recorded = True
        held_out = np.asarray(report.validation["step"])
        for step, loss in zip(held_out.tolist(), report.validation["loss"].tolist(), strict=True):
            if step >= self._skip_below:
                self.record.retried(partial(self.record.recorder.write_row, "validation", int(step), {"loss": loss}))

    def _check_time(self) -> None:
        """Raises EndedError for a run that trained for longer than its job, or the operator, allows; waiting is no training."""
        held, row = self.held, self._submission
        own = None if held.max_seconds is None else held.max_seconds + held.seconds_trained
        allowed = min((limit for limit in (own, self._all.settings.max_run_seconds) if limit is not None), default=None)
        if allowed is not None and submissions.device_seconds(row, time.time()) > allowed:
            raise EndedError(
                "TIME_LIMIT", f"the run trained for longer than its {allowed:.0f} s; plan fewer steps, or raise max_run_seconds"
            )

    def _check_job(self) -> None:
        """Give the attempt up if the scheduler has called the job over for a while, and the job has not told its end."""
        row, listing, job = self._submission, self._listing(), self._job()
        if listing is None:
            return
        if job is not None and job.state not in OVER:
            self._gone_since = None
            return
        self._gone_since = self._gone_since or listing.asked_at
        if listing.asked_at - self._gone_since < LOST_SECONDS:
            return
        said = job.said if job is not None else f"{row.scheduler.capitalize()} no longer knows it"
        why = f"its job {row.scheduler_id} is over ({said}) and has not told its end"
        if job is not None and job.state == "preempted":
            self._give_back(f"{_PREEMPTED}: {why}", "released")
        else:
            self._give_back(f"{_LOST}: {why}; see {row.folder}/scheduler.log", "crashed")

    def _listing(self) -> Listing | None:
        """What the scheduler said last, since the run is followed."""
        listing = self._all.listings.get(self._place)
        return None if listing is None or listing.asked_at < self._followed_since else listing

    def _job(self) -> Job | None:
        listing = self._listing()
        job = None if listing is None else listing.jobs.get(self._submission.scheduler_id or "")
        return job if job is not None and job.key == self._submission.key else None  # a controller that forgets gives an id again

    # What both have.

    def guarded(self, work: Callable[[], None]) -> None:
        """Do a part of the work; whatever ends the attempt ends it on record."""
        try:
            work()
        except UnreachableError as error:
            self._wait(str(error))
        except LeaseLostError as lost:
            _log.info("%s: its job is left to whoever holds it, or to the sweep", lost)
            self.over = True
        except OperationalError:
            _log.exception("run %s cannot go on without the database; its job trains on", self.held.run_id)
            self.over = True
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one run must not stop the others)
            with suppress(LeaseLostError, OperationalError):
                self._end_by(error)
            self.over = True

    def _end_by(self, error: Exception) -> None:
        """End the attempt for the reason of an error."""
        if self._row is not None and self._row.state != "ended":
            with best_effort():
                scheduler = _scheduler_of(self._row)
                for job in scheduler.jobs(self._row.key):
                    scheduler.cancel(job.id)
        code, told = getattr(error, "code", ""), f"{getattr(error, 'code', '')}: {error}"
        is_transient = (isinstance(error, EndedError) and error.kind == "broke_off") or (
            isinstance(error, CheckoutError) and error.transient
        )
        if is_transient:
            self._give_back(told, "crashed")
        elif not isinstance(error, (EndedError, CheckoutError, LauncherError, LogRefusedError, RefusedError)):
            _log.exception("run %s cannot be followed", self.held.run_id)
            self._give_back(f"its submitter failed: {error!r}", "crashed")
        else:
            how = lease.finish if code in JUDGED_ANYWAY else lease.fail
            self._end(partial(how, held=self.held, code=code, message=str(error)))

    def _give_back(self, why: str, attempt: BrokenAttempt) -> None:
        def give_back(session: Session) -> None:
            if not self.record.give_back_in(session, why, attempt):
                raise LeaseLostError(f"attempt {self.held.attempt_number} no longer holds run {self.held.run_id}")

        self._end(give_back)

    def _end(self, change: Callable[[Session], object], status: int | None = None, ended_at: float | None = None) -> None:
        """End the attempt, and the submission in the same transaction."""
        row = self._row
        self.record.write_last_steps()

        def both(session: Session) -> None:
            change(session)
            if row is not None:
                when = _last_change(row) if ended_at is None else ended_at
                submissions.end(session, row.run_id, row.number, ended_at=when, exit_status=status)

        self.record.written(both)
        if row is not None:
            shutil.rmtree(row.folder, ignore_errors=True)
        self.over = True

    def _wait(self, why: str) -> None:
        """Try again later: the scheduler does not answer."""
        row = self._row
        if row is not None:
            self._all.is_away(_scheduler_of(row).place, why)
            with suppress(LeaseLostError, OperationalError):
                self._change(reason=f"{UnreachableError.code}: {why}")
        self.waits_until = time.monotonic() + self._all.settings.reconcile_seconds

    def leave(self) -> None:
        """Queue the run again, with its job as it is: the next worker that claims it goes on."""
        with suppress(LeaseLostError, OperationalError):
            if self.record.recorder.waits:
                self.record.flush()
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
        for own in (self._trainer, self._proof):
            if own is not None:
                own.close()
        self._trainer = self._proof = None

    @property
    def _submission(self) -> Submission:
        assert self._row is not None  # noqa: S101 (as submitted)
        return self._row

    def _change(self, **columns: Any) -> None:
        """Change the row behind the fence of the run."""
        row = self._submission
        self.record.fenced(lambda session: submissions.change(session, row.run_id, row.number, **columns))
        self._update(**columns)

    def _update(self, **columns: Any) -> None:
        for name, value in columns.items():
            setattr(self._submission, name, value)

    def _log_path(self) -> Path:
        return self._all.settings.state_dir / "logs" / "runs" / f"{self.held.run_id}-{self.held.attempt_number}.log"
