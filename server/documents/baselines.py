"""Named baselines as the API and the pages show them, with their types for OpenAPI."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import rounding_of
from parity.judging.curves.window import plan_window
from parity.judging.noise.arm_noise import arm_noise, prior_for
from parity.judging.policy import NVFP4, Policy
from server.curves import judged_curves
from server.database.clock import time_text
from server.database.lookups import find_job
from server.database.tables import Baseline, BaselineEventKind, BaselineRole, BaselineRun, Run
from server.documents.principals import principal_names
from server.documents.runs import seconds_since
from server.errors import InvalidError
from server.jobs import baselines
from server.jobs.fingerprint import (
    Difference,
    manifest_differences,
    run_spec,
    spec_differences,
    spec_facts,
)
from server.jobs.workers import changed, live_workers
from server.records import from_attributes

_JOBS_NAMED = 20
# Load options for a list of versions: three queries for all of them.
WHOLE = (selectinload(Baseline.runs).selectinload(BaselineRun.run), selectinload(Baseline.events))


@frozen
class BaselineSummary:
    """A version of a baseline in a list; `newest` marks the version that a job uses if it names
    none.
    """

    name: str
    version: int
    newest: bool
    recipe: str
    engine: str
    job: str
    runs: int
    controls: int
    promoted_at: str | None
    promoted_by: str
    reason: str
    expires_at: str | None
    expired: bool


@frozen
class BaselineRunDocument:
    """A run of a baseline: a member, whose curve jobs reuse, or a control, a rerun of it. Its age
    counts from its training.
    """

    run: str
    job: str
    role: BaselineRole
    seed: int
    replicate: int
    fingerprint: str | None
    trained_at: str | None
    age_seconds: float | None


@frozen
class RunNoise:
    """How much reruns of a baseline differ: tau in nats and as a share of the loss, with the prior
    that its recipe alone gives. A verdict may borrow another prior; its own tau is in its document.

    `measured` (nats) is None if there is only one run; tau is then the prior.
    """

    tau_nats: float
    tau_rel: float
    df: float
    source: Literal["prior", "controls"]
    measured: float | None
    measured_df: int
    prior_nats: float


@frozen
class AuditEntry:
    """A change to a baseline: what, by whom and why."""

    at: str | None
    who: str
    kind: BaselineEventKind
    reason: str
    detail: str


@frozen
class BaselineDocument(BaselineSummary):
    """A version of a baseline: its specification, manifest and runs, its history, and the newest
    jobs that name it.

    `workers` has a sentence for each live worker whose trainer now differs from the baseline's.
    """

    spec: Mapping[str, str]
    manifest: Mapping[str, str]
    members: list[BaselineRunDocument]
    noise: RunNoise | None
    audit: list[AuditEntry]
    named_by: list[str]
    workers: list[str]


@frozen
class BaselineDiff:
    """Differences between a version and another version or a job's baseline arm. `told` is false if
    no run of the job has begun.
    """

    baseline: str
    other: str
    specification: list[Difference]
    environment: list[Difference]
    told: bool


def summaries(session: Session, rows: Sequence[Baseline]) -> list[BaselineSummary]:
    """A summary of each version."""
    highest = (
        select(Baseline.name, func.max(Baseline.version))
        .where(Baseline.name.in_({row.name for row in rows}))
        .group_by(Baseline.name)
    )
    newest = {row[0]: row[1] for row in session.execute(highest)}
    names = principal_names(session, {row.events[0].who for row in rows})
    return [
        from_attributes(
            BaselineSummary, row, **_summary(row, names), newest=newest[row.name] == row.version
        )
        for row in rows
    ]


def baseline_document(session: Session, row: Baseline, lease_seconds: float) -> BaselineDocument:
    """Everything about a version; reads its curves for the run-to-run noise."""
    names, members = (
        principal_names(session, {event.who for event in row.events}),
        baselines.members(row),
    )
    first = members[0]
    alike = [
        worker
        for worker in live_workers(session, lease_seconds)
        if worker.capability == first.capability != "external"
    ]
    return from_attributes(
        BaselineDocument,
        row,
        **_summary(row, names),
        newest=baselines.find(session, row.name).version == row.version,
        spec=spec_facts(run_spec(first)),
        manifest=first.manifest or {},
        members=[
            _run(link)
            for link in sorted(
                row.runs, key=lambda link: (link.role != "member", link.run.replicate, link.run_id)
            )
        ],
        noise=_noise(session, row),
        audit=[
            from_attributes(
                AuditEntry,
                event,
                at=time_text(event.created_at),
                who=names.get(event.who, event.who),
            )
            for event in row.events
        ],
        named_by=[job.id for job in baselines.used_by(session, row, _JOBS_NAMED)],
        workers=[reason for worker in alike if (reason := changed(worker, first.manifest or {}))],
    )


def diff(session: Session, row: Baseline, other: Baseline | str) -> BaselineDiff:
    """Differences between a version and another version or a job (by id)."""
    ours = baselines.members(row)[0]
    if isinstance(other, Baseline):
        run, called = baselines.members(other)[0], baselines.called(other)
        manifest = run.manifest
    else:
        arm = find_job(session, other).arms[0]
        run, called = arm.runs[0], f"job {other}"
        manifest = next((begun.manifest for begun in arm.job.runs if begun.manifest), None)
    return BaselineDiff(
        baseline=baselines.called(row),
        other=called,
        specification=spec_differences(run_spec(ours), run_spec(run), but=("replicate",)),
        environment=[] if manifest is None else manifest_differences(ours.manifest or {}, manifest),
        told=manifest is not None,
    )


def parsed_version(text: str) -> tuple[str, int | None]:
    """`name` or `name@3`."""
    name, mark, number = text.partition("@")
    if mark and not (number.isdecimal() and int(number)):
        raise InvalidError(f"{text!r:.100} is not a baseline version, expected NAME or NAME@NUMBER")
    return name, int(number) if mark else None


def _summary(row: Baseline, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a summary that the row does not have itself."""
    promoted, members = row.events[0], baselines.members(row)
    return {
        "job": members[0].job_id,
        "runs": len(members),
        "controls": len(row.runs) - len(members),
        "promoted_at": time_text(row.created_at),
        "promoted_by": names.get(promoted.who, promoted.who),
        "reason": promoted.reason,
        "expired": baselines.is_expired(row),
    }


def _run(link: BaselineRun) -> BaselineRunDocument:
    run: Run = link.run
    trained_at, age = time_text(run.finished_at), seconds_since(run.finished_at)
    return from_attributes(
        BaselineRunDocument,
        run,
        run=run.id,
        job=run.job_id,
        role=link.role,
        trained_at=trained_at,
        age_seconds=age,
    )


def _noise(session: Session, row: Baseline) -> RunNoise | None:
    """The judge's run-to-run noise for one run of the version, with all other runs as its
    controls.
    """
    policy = Policy(profile=NVFP4)
    runs, _ = independent_runs([judged_curves.losses(session, link.run) for link in row.runs])
    window = plan_window(runs, row.runs[0].run.planned_steps, False, policy.window_fraction)
    together = align(runs, runs[:1], window.last)
    part = window.part(together.steps)
    if part.start >= part.stop:
        return None
    means = together.baseline[:, part].mean(axis=1)
    level = float(means.mean())
    noise = arm_noise(
        prior_for(row.recipe, None, policy, level, rounding_of(run.rounding for run in runs)),
        means,
        [0] * len(means),
        np.empty(0),
    )
    return from_attributes(
        RunNoise,
        noise,
        tau_nats=noise.tau,
        tau_rel=noise.tau / level,
        source="controls" if noise.measured_df else "prior",
        prior_nats=noise.prior.tau,
    )
