"""Brings runs to their schedulers, write by write, and sweeps what killed workers left there.

A submission is written down step by step, so that a worker that is killed after any of them leaves
nothing behind that runs twice, waits for ever or is forgotten. Whoever claims the run next goes on
at the step that is on record:

    claimed     the files of the commit, the manifest; an equal run ends it here, and nothing is
                submitted
    intended    the row with the job's key is written before the scheduler is asked. Then its jobs
                of that key are listed: only where there
                is none is one submitted, held; of several the lowest id counts, and the others are
                swept
    held        the job's id is on record, behind the fence of the run, before the job may start;
                then it is released
    released    `workers.submitted` follows the job
    ended       in one transaction with the end of the attempt

`Schedulers` asks every scheduler once a period for all of its jobs. One that does not answer is
asked again for as long as it takes, and nothing fails meanwhile.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from parity.canonical_json import fields_of
from parity.frozen import frozen
from server.database import sessions
from server.database.sessions import Database
from server.database.tables import Run, Submission, Worker
from server.jobs import submissions
from server.settings import Settings
from workers.commands import checkout, script
from workers.commands.kubernetes import Kubernetes
from workers.commands.launchers import LauncherError, Limits, Reports, read_launchers
from workers.commands.schedulers import OVER, Job, Scheduler, UnreachableError, best_effort
from workers.commands.slurm import Slurm
from workers.commands.watch import EndedError, launcher_of, manifest, trains_without_its_commit
from workers.lease import Claim, LeaseLostError
from workers.recorder import AttemptRecord

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
        return fields_of(self) | {
            "reports": fields_of(self.reports),
            "limits": fields_of(self.limits),
        }


def plan_of(row: Submission) -> Plan:
    """The plan of a submission."""
    own = row.plan
    return Plan(
        reports=Reports(**own["reports"]),
        limits=Limits(**own["limits"]),
        paths=tuple(own["paths"]),
        scheduler=own["scheduler"],
        proves=own["proves"],
    )


def _scheduler(name: str, options: Mapping[str, Any]) -> Scheduler:
    schedulers: Mapping[str, type[Slurm] | type[Kubernetes]] = {
        "slurm": Slurm,
        "kubernetes": Kubernetes,
    }
    return schedulers[name](options)


def scheduler_of(row: Submission) -> Scheduler:
    """The scheduler of a submission, as its launcher described it then."""
    return _scheduler(row.scheduler, row.plan["scheduler"])


# Steps 1 to 6: from the claim to the release.


def intended(
    settings: Settings, database: Database, held: Claim, record: AttemptRecord
) -> Submission | None:
    """The open submission of a claimed run, whose files and row are written if there is none; None
    if the run has ended without one.
    """
    with database.read() as session:
        row = submissions.open_of(session, held.run_id)
    if row is not None:
        return row
    spec = held.spec
    assert settings.launchers is not None  # noqa: S101
    launcher = launcher_of(spec, settings.launchers)
    if not launcher.scheduler:  # it changed since the run was claimed: a slot takes it
        raise EndedError(
            "LAUNCHER_REFUSED", f"launcher {launcher.name} has no scheduler any more", "broke_off"
        )
    mirror, tree = checkout.find(launcher, spec.revision, settings.repositories)
    if record.record_manifest(manifest(launcher, spec, tree), None):
        return None
    with database.read() as session:
        number, prefix = (
            submissions.next_number(session, held.run_id),
            submissions.deployment(session),
        )
    key, folder = f"{prefix}-{held.run_id}-{number}", _folder_of(settings, held.run_id, number)
    shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed before it wrote the row
    (folder / "source").mkdir(parents=True)
    checkout.write(launcher, mirror, tree, folder / "source")
    proves = is_unproven(settings, launcher.digest, launcher.name, launcher.paths)
    script.write(folder, key, launcher, spec, settings.checkpoints / held.run_id, proves=proves)
    plan = Plan(
        reports=launcher.reports,
        limits=launcher.limits,
        paths=launcher.paths,
        scheduler=launcher.submits_with,
        proves=proves,
    )

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

    return record.fenced(intend)


def submit(row: Submission, record: AttemptRecord) -> None:
    """Bring an intended submission to its scheduler, and let its job start. Raises
    UnreachableError, RefusedError, LeaseLostError.
    """
    scheduler = scheduler_of(row)
    if row.state == "intended":
        job_id = _found_or_submitted(scheduler, row)
        try:
            change(row, record, scheduler_id=job_id, state="held", reason=None)
        except LeaseLostError:
            with best_effort():
                scheduler.cancel(job_id)
            raise
    if row.state == "held":
        assert row.scheduler_id is not None  # noqa: S101
        scheduler.release(row.scheduler_id)
        change(row, record, state="released")


def change(row: Submission, record: AttemptRecord, **columns: Any) -> None:
    """Change a submission behind the fence of its run."""
    record.fenced(lambda session: submissions.change(session, row.run_id, row.number, **columns))
    update(row, **columns)


def update(row: Submission, **columns: Any) -> None:
    """The same in the copy that is in memory, for a change that has been committed."""
    for name, value in columns.items():
        setattr(row, name, value)


def _folder_of(settings: Settings, run_id: str, number: int) -> Path:
    return _folder_of_all(settings) / f"{run_id}-{number}"


def _folder_of_all(settings: Settings) -> Path:
    return (settings.state_dir / "submitted").resolve()


def _found_or_submitted(scheduler: Scheduler, row: Submission) -> str:
    """The id of the job of a submission; one is submitted only where the scheduler has none of that
    key. The sweep ends others.
    """
    found = [job.id for job in scheduler.jobs(row.key)]
    if found:
        return min(found, key=lambda each: (len(each), each))
    return scheduler.submit(row.key, Path(row.folder))


# Whether a launcher trains without the files of the commit: a file for each, which is empty if it
# does not.


def is_unproven(settings: Settings, digest: str, launcher: str, paths: Sequence[str]) -> bool:
    """Whether a launcher has yet to be started without the commit's files. Raises LauncherError if
    it was, and trained.
    """
    proof = _proof_of(settings, digest)
    if not proof.exists():
        return True
    if step := proof.read_text(encoding="utf-8"):
        raise LauncherError(trains_without_its_commit(launcher, ", ".join(paths), step))
    return False


def write_proof(settings: Settings, digest: str, step: int | None) -> None:
    """Write down which step a launcher reported without the commit's files, so that nobody reads a
    part of it; None: it reported none.
    """
    path = _proof_of(settings, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{threading.get_ident()}")
    part.write_text("" if step is None else str(step), encoding="utf-8")
    part.replace(path)


def _proof_of(settings: Settings, digest: str) -> Path:
    return (settings.state_dir / "launchers").resolve() / digest


# What is asked of the schedulers, once a period for all runs.


@frozen
class Listing:
    """The jobs of a place by their ids, as of `asked_at` (of time.monotonic)."""

    asked_at: float
    jobs: Mapping[str, Job]


class Schedulers:
    """The schedulers of a worker: what jobs each has, which of these are to be ended, and who does
    not answer.
    """

    def __init__(self, settings: Settings, database: Database, worker: Worker) -> None:
        self._settings, self._database, self._worker = settings, database, worker
        self.listings: dict[str, Listing] = {}
        """What each place answered last."""
        self._unrecorded: dict[str, set[str]] = {}
        self._cancelled: dict[str, set[str]] = {}
        self._away: dict[str, str] = {}

    def sweep(self, followed: Collection[str]) -> None:
        """List the jobs of every place once; end those whose run has ended, and those that are on
        no record; note where each waits.

        `followed`: the ids of the runs that are followed here.
        """
        with self._database.read() as session:
            rows = submissions.open_ones(session)
            prefix = submissions.deployment(session)
        ours = [
            row
            for row, _ in rows
            if row.run_id in followed or row.launcher in self._worker.device["launchers"]
        ]
        for place, scheduler in (
            self._known() | {own.place: own for own in map(scheduler_of, ours)}
        ).items():
            try:
                self._sweep(scheduler, prefix)
            except UnreachableError as error:
                self.is_away(place, str(error))
                self._tell_waiting(place, rows, f"{error.code}: {error}")
            else:
                self.is_back(place)
        self._remove_folders(rows, followed)

    def _tell_waiting(self, place: str, rows: Sequence[tuple[Submission, bool]], why: str) -> None:
        """Note for jobs that wait at a scheduler that it does not answer: where they wait now,
        nobody knows.
        """
        waiting = [
            row
            for row, is_over in rows
            if not is_over and row.reason and not row.reason.startswith(UnreachableError.code)
        ]
        if told := [row for row in waiting if scheduler_of(row).place == place]:
            with self._database.write() as session:
                for row in told:
                    submissions.change(session, row.run_id, row.number, reason=why)

    def _known(self) -> dict[str, Scheduler]:
        """The schedulers of the launchers, by their places."""
        assert self._settings.launchers is not None  # noqa: S101
        with suppress(LauncherError):  # its operator may be writing it
            launchers = read_launchers(self._settings.launchers).values()
            schedulers = [
                _scheduler(each.scheduler, each.submits_with)
                for each in launchers
                if each.scheduler
            ]
            return {own.place: own for own in schedulers}
        return {}

    def _sweep(self, scheduler: Scheduler, prefix: str) -> None:
        asked_at = time.monotonic()
        jobs = [job for job in scheduler.jobs() if job.key.startswith(f"{prefix}-")]
        self.listings[scheduler.place] = Listing(
            asked_at=asked_at, jobs={job.id: job for job in jobs}
        )
        # after the jobs were listed: each had its row before the scheduler was asked for it
        with self._database.read() as session:
            on_record = {row.key: (row, is_over) for row, is_over in submissions.open_ones(session)}
        here = {
            key: each
            for key, each in on_record.items()
            if scheduler_of(each[0]).place == scheduler.place
        }
        for row, is_over in here.values():
            if is_over:
                for job in jobs:
                    if job.key == row.key:
                        scheduler.cancel(job.id)
                with self._database.write() as session:
                    submissions.end(session, row.run_id, row.number, ended_at=last_change(row))
        self._end_unrecorded(scheduler, jobs, on_record)
        for job in jobs:  # its controller died, and came back with an older state
            if (
                scheduler.forgets
                and job.state == "held"
                and job.key in here
                and here[job.key][0].state == "released"
            ):
                scheduler.release(job.id)
        by_key = {job.key: job for job in jobs if job.state not in OVER}
        reasons = [
            (row, _reason(by_key.get(row.key), row))
            for row, is_over in here.values()
            if not is_over and row.scheduler_id
        ]
        changed = [(row, reason) for row, reason in reasons if reason != row.reason]
        if changed:
            with self._database.write() as session:
                for row, reason in changed:
                    submissions.change(session, row.run_id, row.number, reason=reason)

    def _end_unrecorded(
        self,
        scheduler: Scheduler,
        jobs: Sequence[Job],
        on_record: Mapping[str, tuple[Submission, bool]],
    ) -> None:
        """End jobs that were on no record at two listings in a row."""
        place = scheduler.place
        stays = [job for job in jobs if scheduler.keeps_ended or job.state not in OVER]
        unrecorded = {job.id for job in stays if not _is_on_record(job, on_record)}
        to_end = unrecorded & self._unrecorded.get(place, set())
        for job_id in to_end:
            if job_id not in self._cancelled.get(place, ()):  # it takes some time to end
                _log.info("job %s of %s is on no open record and was cancelled", job_id, place)
            scheduler.cancel(job_id)
        self._unrecorded[place], self._cancelled[place] = unrecorded, to_end

    def is_away(self, place: str, why: str) -> None:
        """Say once that a scheduler does not answer."""
        if place not in self._away:
            _log.warning(
                "%s: %s does not answer (%s); it is asked again, and no run fails meanwhile",
                UnreachableError.code,
                place,
                why,
            )
        self._away[place] = why

    def answers(self, place: str) -> bool:
        """Whether a scheduler answered when it was asked last."""
        return place not in self._away

    def is_back(self, place: str) -> None:
        """Say once that it answers again."""
        if self._away.pop(place, None) is not None:
            _log.warning("%s answers again", place)

    def _remove_folders(
        self, rows: Sequence[tuple[Submission, bool]], followed: Collection[str]
    ) -> None:
        """Remove the folders of submissions that are over."""
        are_open = {row.folder for row, _ in rows}
        for folder in sorted(_folder_of_all(self._settings).glob("r*-*-*")):
            run_id, _, number = folder.name.rpartition("-")
            if run_id in followed or str(folder) in are_open or not number.isdecimal():
                continue
            with self._database.read() as session:
                run, row = session.get(Run, run_id), session.get(Submission, (run_id, int(number)))
                is_over = (
                    run is None or run.state != "running" if row is None else row.state == "ended"
                )
            if is_over:
                shutil.rmtree(folder, ignore_errors=True)


def _is_on_record(job: Job, on_record: Mapping[str, tuple[Submission, bool]]) -> bool:
    row = on_record[job.key][0] if job.key in on_record else None
    return row is not None and row.scheduler_id in (None, job.id)


def _reason(job: Job | None, row: Submission) -> str | None:
    """Why a job does not train, in the scheduler's words; None while it does."""
    if job is not None:
        if job.state not in ("held", "waiting"):
            return None
        return job.said
    is_known = row.start is None and row.reason and not row.reason.startswith(UnreachableError.code)
    return row.reason if is_known else None


def last_change(row: Submission) -> float | None:
    """When the newest start of a job wrote something for the last time, which is when it ended at
    the latest; None where nobody knows.
    """
    if row.start is None:
        return None
    folder, path = Path(row.folder), plan_of(row).reports.path
    names = (
        f"started.{row.start}",
        f"stdout.{row.start}",
        f"output.{row.start}/{path}",
        f"ended.{row.start}",
    )
    times = []
    for name in names:
        with suppress(OSError):
            times.append(os.lstat(folder / name).st_mtime)
    return min(max(times), time.time()) if times else None  # the clock of the files may be wrong
