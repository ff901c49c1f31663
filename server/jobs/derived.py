"""The row of a job that trains something more for another job, on the same devices: forks, an analysis, a step of a search."""

from __future__ import annotations

import time

from server.database import tables
from server.database.tables import Arm, Job
from training.spec import JobSpec


def derived_job(origin: Job, spec: JobSpec, submitted_by: str | None, max_run_seconds: float | None) -> Job:
    """A queued job with the arms of `spec`, without runs, for the engine, devices and revision of `origin`; it reuses no runs."""
    row = Job(
        id=tables.new_id("j"),
        name=spec.name,
        status="queued",
        engine=origin.engine,
        capability=origin.capability,
        spec=spec.document(),
        devices=origin.devices,
        criteria=origin.criteria,
        revision=origin.revision,
        branch=origin.branch,
        model=origin.model,
        device_class=origin.device_class,
        threads=origin.threads,
        submitted_by=submitted_by,
        max_run_seconds=max_run_seconds,
        reuse=False,
        created_at=time.time(),
    )
    for position, each in enumerate(spec.arms):
        role: tables.Role = "candidate" if position else "baseline"
        row.arms.append(Arm(id=tables.new_id("a"), position=position, name=each.name, role=role, recipe=each.recipe))
    return row
