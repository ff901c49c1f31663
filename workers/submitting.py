"""Brings runs to their schedulers, write by write, and sweeps what killed workers left there.

A submission is written down step by step, so that a worker that is killed after any of them leaves
nothing behind that runs twice, waits for ever or is forgotten. Whoever claims the run next goes on
at the step that is on record:

    claimed     the files of the commit, the manifest; an equal run ends it here, and nothing is
                submitted
    intended    the row with the job's key is written before the scheduler is asked. Then its jobs
                of that key are listed: only where there is none is one submitted, held; of several
                the lowest id counts, and the others are swept
    held        the job's id is on record, behind the fence of the run, before the job may start;
                then it is released
    released    `workers.submitted` follows the job
    ended       in one transaction with the end of the attempt

`workers.listings` asks every scheduler once a period for all of its jobs. One that does not answer
is asked again for as long as it takes, and nothing fails meanwhile.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from parity.canonical_json import fields_of
from parity.frozen import frozen
from server.database import clock
from server.database.tables import Submission
from server.jobs import submissions
from server.settings import Settings
from server.stored import read_stored, reading
from workers import negative_controls
from workers.attempt_record import AttemptRecord
from workers.commands import checkout, script
from workers.commands.kubernetes import Kubernetes
from workers.commands.launched_trainer import EndedError, launcher_of, manifest
from workers.commands.launchers import Limits, ReportSource
from workers.commands.schedulers import Scheduler, best_effort
from workers.commands.slurm import Slurm
from workers.lease import Claim, LeaseLostError


@frozen
class SubmissionPlan:
    """What a launcher said when a run was submitted; the row of the submission has it as JSON."""

    reports: ReportSource
    limits: Limits
    paths: tuple[str, ...]
    scheduler: Mapping[str, Any]
    negative_control: bool

    def document(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "reports": fields_of(self.reports),
            "limits": fields_of(self.limits),
            "paths": self.paths,
            "scheduler": self.scheduler,
            "proves": self.negative_control,
        }


def plan_of(row: Submission) -> SubmissionPlan:
    """The plan of a submission."""
    place = f"run {row.run_id}, submission {row.number}: its plan"
    with reading(place):
        return SubmissionPlan(
            reports=read_stored(ReportSource, row.plan["reports"], f"{place}.reports"),
            limits=read_stored(Limits, row.plan["limits"], f"{place}.limits"),
            paths=tuple(row.plan["paths"]),
            scheduler=row.plan["scheduler"],
            negative_control=row.plan["proves"],
        )


def scheduler_named(name: str, options: Mapping[str, Any]) -> Scheduler:
    """The scheduler of that name with the options of a launcher."""
    schedulers: Mapping[str, type[Slurm] | type[Kubernetes]] = {
        "slurm": Slurm,
        "kubernetes": Kubernetes,
    }
    return schedulers[name](options)


def scheduler_of(row: Submission) -> Scheduler:
    """The scheduler of a submission, as its launcher described it then."""
    return scheduler_named(row.scheduler, row.plan["scheduler"])


def intended(settings: Settings, claim: Claim, record: AttemptRecord) -> Submission | None:
    """The open submission of a claimed run, whose files and row are written if there is none; None
    if the run has ended without one.
    """
    row = record.read(lambda session: submissions.open_of(session, claim.run_id))
    if row is not None:
        return row
    spec = claim.spec
    assert settings.launchers is not None  # noqa: S101
    launcher = launcher_of(spec, settings.launchers)
    if not launcher.scheduler:  # it changed since the run was claimed: a slot takes it
        raise EndedError(
            "LAUNCHER_REFUSED", f"launcher {launcher.name} has no scheduler any more", "broke_off"
        )
    mirror, tree = checkout.find(launcher, spec.revision, settings.repositories)
    if record.record_manifest(manifest(launcher, spec, tree), None):
        return None
    number, prefix = record.read(
        lambda session: (
            submissions.next_number(session, claim.run_id),
            submissions.deployment(session),
        )
    )
    key, folder = f"{prefix}-{claim.run_id}-{number}", _folder_of(settings, claim.run_id, number)
    shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed before it wrote the row
    (folder / "source").mkdir(parents=True)
    checkout.write(launcher, mirror, tree, folder / "source")
    negative_control = negative_controls.is_needed(
        settings, launcher.digest, launcher.name, launcher.paths
    )
    script.write(
        folder,
        key,
        launcher,
        spec,
        settings.checkpoints / claim.run_id,
        negative_control=negative_control,
    )
    plan = SubmissionPlan(
        reports=launcher.reports,
        limits=launcher.limits,
        paths=launcher.paths,
        scheduler=launcher.submits_with,
        negative_control=negative_control,
    )

    def intend(session: Session) -> Submission:
        written = submissions.open_of(session, claim.run_id)
        if written is not None:  # by a try whose commit was not confirmed
            session.expunge(written)
            return written
        row = Submission(
            run_id=claim.run_id,
            number=number,
            attempt_number=claim.attempt_number,
            key=key,
            scheduler=launcher.scheduler,
            launcher=launcher.name,
            launcher_digest=launcher.digest,
            plan=plan.document(),
            folder=str(folder),
            state="intended",
            created_at=clock.now(session),
        )
        session.add(row)
        session.flush()
        session.expunge(row)
        return row

    return record.fenced(intend)


def submit(row: Submission, record: AttemptRecord) -> None:
    """Bring an intended submission to its scheduler, and let its job start. Raises
    SchedulerUnreachableError, JobRefusedError, LeaseLostError.
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
    return folder_of_all(settings) / f"{run_id}-{number}"


def folder_of_all(settings: Settings) -> Path:
    """Where the folders of all submissions are."""
    return (settings.state_dir / "submitted").resolve()


def _found_or_submitted(scheduler: Scheduler, row: Submission) -> str:
    """The id of the job of a submission; one is submitted only where the scheduler has none of that
    key. The sweep ends others.
    """
    found = [job.id for job in scheduler.jobs(row.key)]
    if found:
        return min(found, key=lambda job_id: (len(job_id), job_id))
    return scheduler.submit(row.key, Path(row.folder))
