"""The row of a job that trains something more for another job, on the same devices: forks, an analysis, a step of a search."""

from __future__ import annotations

import time

from server.database import tables
from server.database.tables import Job
from server.jobs.submit import arm_rows
from training.spec import JobSpec

_OF_THE_ORIGIN = ("engine", "capability", "devices", "criteria", "revision", "branch", "model", "device_class", "threads")


def derived_job(origin: Job, spec: JobSpec, submitted_by: str | None, max_run_seconds: float | None) -> Job:
    """A queued job with the arms of `spec`, without runs, for the engine, devices and revision of `origin`; it reuses no runs."""
    row = Job(
        id=tables.new_id("j"),
        name=spec.name,
        status="queued",
        spec=spec.document(),
        submitted_by=submitted_by,
        max_run_seconds=max_run_seconds,
        reuse=False,
        created_at=time.time(),
        **{name: getattr(origin, name) for name in _OF_THE_ORIGIN},
    )
    row.arms.extend(arm_rows(spec))
    return row
