"""Asks each scheduler once a period for its jobs of all runs, and sweeps those on no record."""

import logging
import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from parity.frozen import frozen
from server.database.sessions import Database
from server.database.tables import Run, Submission, Worker
from server.jobs import submissions
from server.settings import Settings
from workers.commands.launchers import LauncherError, read_launchers
from workers.commands.schedulers import OVER, ScheduledJob, Scheduler, SchedulerUnreachableError
from workers.submitting import folder_of_all, plan_of, scheduler_named, scheduler_of

_log = logging.getLogger(__name__)


@frozen
class Listing:
    """The jobs of a place by their ids, as of `asked_at` (of time.monotonic)."""

    asked_at: float
    jobs: Mapping[str, ScheduledJob]


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
            self._launcher_schedulers()
            | {scheduler.place: scheduler for scheduler in map(scheduler_of, ours)}
        ).items():
            try:
                self._sweep(scheduler, prefix)
            except SchedulerUnreachableError as error:
                self.is_away(place, str(error))
                self._note_unreachable(place, rows, f"{error.code}: {error}")
            else:
                self.is_back(place)
        self._remove_folders(rows, followed)

    def _note_unreachable(
        self, place: str, rows: Sequence[tuple[Submission, bool]], why: str
    ) -> None:
        """Note for jobs that wait at a scheduler that it does not answer: where they wait now,
        nobody knows.
        """
        waiting = [
            row
            for row, is_over in rows
            if not is_over
            and row.reason
            and not row.reason.startswith(SchedulerUnreachableError.code)
        ]
        if unreachable := [row for row in waiting if scheduler_of(row).place == place]:
            with self._database.write() as session:
                for row in unreachable:
                    submissions.change(session, row.run_id, row.number, reason=why)

    def _launcher_schedulers(self) -> dict[str, Scheduler]:
        """The schedulers of the launchers, by their places."""
        assert self._settings.launchers is not None  # noqa: S101
        with suppress(LauncherError):  # its operator may be writing it
            launchers = read_launchers(self._settings.launchers).values()
            schedulers = [
                scheduler_named(launcher.scheduler, launcher.submits_with)
                for launcher in launchers
                if launcher.scheduler
            ]
            return {scheduler.place: scheduler for scheduler in schedulers}
        return {}

    def _sweep(self, scheduler: Scheduler, prefix: str) -> None:
        asked_at = time.monotonic()
        jobs = [job for job in scheduler.jobs() if job.key.startswith(f"{prefix}-")]
        self.listings[scheduler.place] = Listing(
            asked_at=asked_at, jobs={job.id: job for job in jobs}
        )
        # after the jobs were listed: each had its row before the scheduler was asked for it
        with self._database.read() as session:
            recorded = {row.key: (row, is_over) for row, is_over in submissions.open_ones(session)}
        here = {
            key: entry
            for key, entry in recorded.items()
            if scheduler_of(entry[0]).place == scheduler.place
        }
        for row, is_over in here.values():
            if is_over:
                for job in jobs:
                    if job.key == row.key:
                        scheduler.cancel(job.id)
                with self._database.write() as session:
                    submissions.end(session, row.run_id, row.number, ended_at=last_change(row))
        self._end_unrecorded(scheduler, jobs, recorded)
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
        jobs: Sequence[ScheduledJob],
        recorded: Mapping[str, tuple[Submission, bool]],
    ) -> None:
        """End jobs that were on no record at two listings in a row."""
        place = scheduler.place
        stays = [job for job in jobs if scheduler.keeps_ended or job.state not in OVER]
        unrecorded = {job.id for job in stays if not _is_on_record(job, recorded)}
        ending = unrecorded & self._unrecorded.get(place, set())
        for job_id in ending:
            if job_id not in self._cancelled.get(place, ()):  # it takes some time to end
                _log.info("job %s of %s is on no open record and was cancelled", job_id, place)
            scheduler.cancel(job_id)
        self._unrecorded[place], self._cancelled[place] = unrecorded, ending

    def is_away(self, place: str, why: str) -> None:
        """Say once that a scheduler does not answer."""
        if place not in self._away:
            _log.warning(
                "%s: %s does not answer (%s); it is asked again, and no run fails meanwhile",
                SchedulerUnreachableError.code,
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
        for folder in sorted(folder_of_all(self._settings).glob("r*-*-*")):
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


def _is_on_record(job: ScheduledJob, recorded: Mapping[str, tuple[Submission, bool]]) -> bool:
    row = recorded[job.key][0] if job.key in recorded else None
    return row is not None and row.scheduler_id in (None, job.id)


def _reason(job: ScheduledJob | None, row: Submission) -> str | None:
    """Why a job does not train, in the scheduler's words; None while it does."""
    if job is not None:
        if job.state not in ("held", "waiting"):
            return None
        return job.said
    is_known = (
        row.start is None
        and row.reason
        and not row.reason.startswith(SchedulerUnreachableError.code)
    )
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
