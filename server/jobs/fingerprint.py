"""Finds an earlier run whose curve can be reused, or lists the differences.

A run's fingerprint is the SHA-256 of its specification (with seed and replicate) and of the
manifest that its worker recorded: code, libraries, environment, device class, threads, the digest
of the data. Runs with equal fingerprints produce the same curve, so one curve serves both. It is
not copied: it stays under the run that was trained (`Run.reused_from`). Data that are known by
name only may have changed under it, so no curve on them is reused unasked; a job may still name a
baseline that was trained on them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session

from parity.extensions import lab
from parity.frozen import frozen
from parity.judging.curves.context import confounding_keys
from server.curves import judged_curves
from server.database.tables import Arm, Job, Run
from server.jobs.workers import short
from server.json_digest import digest
from server.stored import reading
from training.command import ENGINE as COMMAND
from training.later_recipe import for_digest, in_todays_form
from training.overrides import phrase
from training.rules import NAMED_DATA, OTHERS_TRAINERS
from training.spec import JobSpec, RunSpec

_JOB_SPEC = TypeAdapter(JobSpec)
_LOOKED_AT = 20
_RUN_FIELDS = ("seed", "replicate")
_SHOWN_ALONE = ("code_revision",)  # of the manifest under engine command


@frozen
class Difference:
    """A fact that differs between two runs, with both values; None if a side does not have it."""

    key: str
    baseline: str | None
    other: str | None


def job_spec(job: Job) -> JobSpec:
    """The specification of a job. Raises StoredFormError if this version cannot read it."""
    spec = job.spec
    # a user's own run, whose length was stated later
    if "schedule" not in spec and job.planned_steps is not None:
        spec = {**spec, "schedule": {"steps": job.planned_steps}}
    arms = {
        "baseline": in_todays_form(spec["baseline"]),
        "candidates": [in_todays_form(arm) for arm in spec["candidates"]],
    }
    with reading(f"job {job.id}: its specification"):
        return _job_spec(json.dumps({**spec, **arms}))


@lru_cache(maxsize=64)
def _job_spec(text: str) -> JobSpec:
    """Kept, because a worker takes the runs of a job one after another."""
    return _JOB_SPEC.validate_json(text)


def run_spec(run: Run) -> RunSpec:
    """The specification of a run, from that of its job. Raises StoredFormError if this version
    cannot read it.
    """
    job = job_spec(run.job)
    return job.run_of(next(arm for arm in job.arms if arm.name == run.arm.name), run.replicate)


def fingerprint_of(spec: RunSpec, manifest: Mapping[str, str]) -> str:
    """The fingerprint of a run that a worker trains: SHA-256 of what decides its bits,
    specification and manifest.

    Of engine command the commit is no part: the digest of the files that the launcher lists is, so
    that a commit of the README is equal.
    """
    asked, recorded = for_digest(spec.document()), dict(manifest)
    if spec.engine == COMMAND:
        for name in _SHOWN_ALONE:
            recorded.pop(name, None)
        del asked["revision"]
    return digest({"spec": asked, "manifest": recorded})


def external_fingerprint(run: Run, manifest: Mapping[str, str]) -> str:
    """The fingerprint of a run that a user's own trainer trains."""
    arm = {"recipe": run.arm.recipe, "seed": run.seed, "replicate": run.replicate}
    return digest({"spec": run.job.spec, **arm, "manifest": dict(manifest)})


def equal_run(
    session: Session,
    fingerprint: str,
    question: str | None = None,
    keep: Collection[int] = (),
    *,
    any_arm: bool = False,
) -> Run | None:
    """The newest valid run of a baseline arm with this fingerprint that was itself trained and kept
    these checkpoints, or None.

    With a `question`, a run of the candidate of an earlier look at it; with `any_arm`, a run of any
    arm of any job.
    """
    arm_condition = Arm.role == "baseline" if question is None else Arm.question == question
    conditions = [Run.fingerprint == fingerprint]
    if not any_arm:
        conditions.append(arm_condition)
    there = trained_runs(*conditions).limit(_LOOKED_AT)
    runs = (run for run in session.scalars(there) if set(keep) <= set(run.kept_checkpoints or ()))
    return next(
        (
            run
            for run in runs
            if not knows_data_by_name(run.manifest) and unsound(session, run) is None
        ),
        None,
    )


def trained_runs(*conditions: ColumnElement[bool]) -> Select[Run]:
    """The full runs that finished and were themselves trained, by conditions on them and their
    arms, newest first.
    """
    trained = (Run.state == "finished", Run.kind == "full", Run.reused_from.is_(None))
    newest_first = Run.finished_at.desc().nulls_last(), Run.id.desc()
    return (
        select(Run)
        .join(Arm, Arm.id == Run.arm_id)
        .where(*conditions, *trained)
        .order_by(*newest_first)
    )


def knows_data_by_name(manifest: Mapping[str, Any] | None) -> bool:
    """Whether the digest of the data was made from names alone, so that equal digests do not prove
    equal data.
    """
    return str((manifest or {}).get("data_digest", "")).startswith(NAMED_DATA)


def unsound(session: Session, run: Run) -> str | None:
    """Why the curve of a run cannot be reused (not finished, ended early, diverged, or incomplete),
    or None.
    """
    if run.state != "finished":
        return f"run {run.id} is {run.state}, not finished"
    if run.kind != "full":
        did = {
            "short": "was stopped early to measure run-to-run noise",
            "retired": "measured for a question that this version does not ask",
            **lab().kinds,
        }
        return f"run {run.id} {did.get(run.kind, 'is never judged')}"
    if run.code is not None:
        return f"run {run.id} ended with {run.code}"
    curve = judged_curves.losses(session, run)
    steps = curve.completeness
    stride = steps.stride or 1  # a user's own trainer may log every n-th step, and count from 1
    if run.planned_steps is None:
        return f"nobody has stated how many steps run {run.id} was meant to take"
    reaches = (
        steps.first is not None
        and steps.last is not None
        and steps.first <= stride
        and steps.last + stride >= run.planned_steps
    )
    if (
        not reaches
        or steps.gaps
        or (run.job.engine not in OTHERS_TRAINERS and steps.count != run.planned_steps)
    ):
        return f"run {run.id} has recorded {steps.count} of its {run.planned_steps} steps"
    if not np.isfinite(curve.loss).all():
        return f"run {run.id} has a non-finite loss"
    return None


def columns_of_reused(source: Run) -> dict[str, Any]:
    """The columns of a run that reuses the curve of `source`; the rounding only if `source`
    has it.
    """
    rounding = {"rounding": source.rounding} if source.rounding else {}
    return rounding | {
        "fingerprint": source.fingerprint,
        "manifest": source.manifest,
        "steps_done": source.steps_done,
        "last_loss": source.last_loss,
        "reused_from": source.reused_from or source.id,
    }


def spec_differences(
    baseline: RunSpec, other: RunSpec, *, but: Collection[str] = ()
) -> list[Difference]:
    """Fields of two specifications that differ, by their path; those in `but` are ignored."""
    ours, theirs = dict(_flat(baseline)), dict(_flat(other))
    return _differing((key for key in ours | theirs if key not in but), ours, theirs)


def spec_facts(spec: RunSpec) -> dict[str, str]:
    """A specification as flat text values, without seed and replicate."""
    return {key: value for key, value in _flat(spec) if key not in _RUN_FIELDS}


def manifest_differences(baseline: Mapping[str, str], other: Mapping[str, str]) -> list[Difference]:
    """Every fact that differs between two manifests, or that only one has."""
    return _differing(sorted(baseline.keys() | other.keys()), baseline, other)


def _differing(
    keys: Iterable[str], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> list[Difference]:
    return [
        Difference(key=key, baseline=ours.get(key), other=theirs.get(key))
        for key in keys
        if ours.get(key) != theirs.get(key)
    ]


def named_baseline_mismatch(job: Job, manifest: Mapping[str, str]) -> str | None:
    """Why a run with this manifest cannot be compared with the baseline that a job names, by the
    judge's rule; None if it can.
    """
    if job.named is None:
        return None
    baseline = job.arms[0].runs[0].manifest or {}
    # the judge's rule
    keys = confounding_keys([baseline, manifest], job.policy.get("may_differ", ()))
    differences = _differing(keys, baseline, manifest)
    if not differences:
        return None
    called, what = (
        f"baseline {job.named.name} version {job.named.version}",
        differences_in_words(differences, "there", "here"),
    )
    return (
        f"this worker's trainer differs from that of {called}: {what}. Promote a new version, or "
        "train where the baseline was trained"
    )


def differences_in_words(differences: Sequence[Difference], ours: str, theirs: str) -> str:
    """The first three differences as a sentence: "version.jax is 0.12 here, was 0.10.2 there"."""
    sentences = [
        f"{one.key} is {short(one.other)} {theirs}, {short(one.baseline)} {ours}"
        for one in differences[:3]
    ]
    more = len(differences) - len(sentences)
    return "; ".join(sentences) + (f"; and {more} more" if more else "")


def _flat(spec: RunSpec) -> Iterator[tuple[str, str]]:
    for name, value in (
        spec.document()
        | ({"overrides": "; ".join(map(phrase, spec.overrides))} if spec.overrides else {})
    ).items():
        if isinstance(value, dict):
            parts = {f"{name}.{part}": item for part, item in value.items()}
        else:
            parts = {name: value}
        yield from ((key, str(item)) for key, item in parts.items())
