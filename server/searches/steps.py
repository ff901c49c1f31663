"""A step of a search as a job: forks in one run of kind `why`, a pilot in one of kind `pilot`, a confirmation as an ordinary job.

Forks and pilots end without a verdict, and no judge, baseline, run floor or reuse ever sees them. A confirmation trains both arms again
from step 0 with a seed that no run on record has, reuses nothing, and is judged like any job, at the confidence of one of the search's
confirmations. It counts as a look at its policy's question (`server.jobs.ledger`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.search.evaluations import Evaluation
from parity.search.setup import GIVEN, SearchSetup, key_of
from server.database import tables
from server.database.lab_tables import Search, SearchStep
from server.database.tables import Job, Run
from server.jobs.analyses import readable_spec, results_of
from server.jobs.derived import derived_job
from server.jobs.late_loss import late_loss
from server.jobs.submit import Order, Submission, announce_new, submit_registered
from server.searches.plan import policy_arm
from training.spec import JobSpec

UNKNOWN = 1e6
"""The standard error (nats) of a gap that a confirmation without a verdict did not measure."""


def queue_step(session: Session, search: Search, setup: SearchSetup, step: Sequence[Evaluation]) -> Job:
    """Write the job of a step. Raises LookError for a confirmation whose question has been judged before."""
    if step[0].kind == "confirmation":
        return _confirmation(session, search, setup, step[0])
    spec = _specification(search, setup, step)
    base, is_pilot = search.base, step[0].kind == "run"
    row = derived_job(base, spec, search.submitted_by, search.max_run_seconds)
    parent = session.get_one(Run, setup.parents[0])
    row.runs.append(
        Run(
            id=tables.new_id("r"),
            arm=row.arms[1],
            position=0,
            kind="pilot" if is_pilot else "why",
            seed=spec.seed,
            # Replicates of the base job count from 0: a pilot is one that no run of it has.
            replicate=GIVEN + step[0].number if is_pilot else parent.replicate,
            capability=base.capability,
            priority=search.priority,
            forked_from=None if is_pilot else parent.id,
            planned_steps=int(setup.cost(tuple(step))),
            created_at=row.created_at,
            state="queued",
        )
    )
    announce_new(session, row)
    return row


def job_of_policy(search: Search, setup: SearchSetup, policy: str, replicates: int) -> JobSpec:
    """The job that compares a policy with the baseline."""
    whole = readable_spec(search.base)
    own = next(arm for arm in whole.candidates if arm.name == search.candidate)
    return replace(
        whole,
        name=f"{policy} of {search.base.name}"[:200],
        baseline=replace(whole.baseline, replicates=replicates),
        candidates=(policy_arm(own, setup.space, policy, replicates),),
        noise=None,
        keep_checkpoints=(),
    )


def results_of_step(session: Session, step: SearchStep, evaluations: Sequence[Evaluation]) -> list[dict[str, Any]] | None:
    """What a step's job gave, in the order of its evaluations; None if it ended without."""
    job = step.job
    if evaluations[0].kind == "confirmation":
        return _verdict(job)
    if job.status != "concluded":
        return None
    if evaluations[0].kind == "run":
        return [{"value": late_loss(session, job.runs[0], job)}]
    values = results_of(session, job.id)
    return [{"value": float(values[key_of(each)])} for each in evaluations]


def _verdict(job: Job) -> list[dict[str, Any]] | None:
    """The gap of a confirmation, its standard error, and whether the judge passed it: that the policy of the job says so."""
    if job.status != "concluded" or len(job.verdicts) != 1:
        return None
    verdict = job.verdicts[0]
    gap = _document(verdict).get("gap") or {}
    value, se = gap.get("mean"), gap.get("se")
    known = isinstance(value, float) and isinstance(se, float) and abs(value) < UNKNOWN and 0.0 < se < UNKNOWN
    return [{"value": value if known else 0.0, "se": se if known else UNKNOWN, "passed": verdict.outcome == "pass"}]


def _document(verdict: tables.Verdict) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(verdict.document)
    return document


def _specification(search: Search, setup: SearchSetup, step: Sequence[Evaluation]) -> JobSpec:
    """A job with an arm for each policy of a step of forks or of a pilot."""
    first, *others = dict.fromkeys(each.policy for each in step)
    spec = job_of_policy(search, setup, first, 1)
    whole = readable_spec(search.base)
    own = next(arm for arm in whole.candidates if arm.name == search.candidate)
    arms = tuple(policy_arm(own, setup.space, policy) for policy in others)
    what = f"pilot of {first}" if step[0].kind == "run" else f"forks of {1 + len(others)} policies"
    return replace(spec, name=f"search: {what} of {search.base.name}"[:200], candidates=(*spec.candidates, *arms), family=None)


def _confirmation(session: Session, search: Search, setup: SearchSetup, own: Evaluation) -> Job:
    spec = replace(job_of_policy(search, setup, own.policy, setup.pairs), seed=_fresh_seed(session, search, own))
    spec = replace(spec, name=f"confirm: {spec.name}"[:200])
    criteria = replace(setup.policy_of_the_job, confidence=setup.confirmation.confidence, looks=1)
    order = Order(priority=search.priority, max_run_seconds=search.max_run_seconds, reuse=False)
    wanted = Submission(spec=spec, criteria=criteria, order=order, revision=search.base.revision or "")
    job = submit_registered(session, wanted, search.submitted_by or "")
    job.device_class, job.threads = search.base.device_class, search.base.threads
    return job


def _fresh_seed(session: Session, search: Search, own: Evaluation) -> int:
    """A seed that no run on record has: a confirmation shares no initialization and no data order with what chose its policy."""
    for attempt in range(1000):
        digest = hashlib.sha256(f"{search.id} {own.number} {len(search.steps)} {attempt}".encode()).digest()
        seed = int.from_bytes(digest[:4]) >> 2
        if session.scalar(select(Run.id).where(Run.seed == seed).limit(1)) is None:
            return seed
    raise RuntimeError("no seed of 1,000 is unused, expected one that no run on record has")
