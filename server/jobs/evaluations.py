"""Jobs of engine evaluations: held-out losses that were sent as they are, without runs.

What such a job compares is one evidence bundle without a verdict (`EvaluationBundle`), because that
form has a reader for every version of the judge. What curves have and such a job cannot is refused
by `check_has_runs`: charts over steps, forecasts, layers, further runs. No gate asks for one, and
its verdict answers no question of training: it has no `config_hash`, and no ledger counts it.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from parity.judging.bundles.read_bundle import case_in
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy
from parity.judging.verdict.path import evaluation_path_of
from server.database.tables import EvaluationBundle, Job
from server.errors import ConflictError, DamagedError, InvalidError, NotFoundError
from server.jobs.job_kinds import JobOutcome
from server.stored import reading

_log = logging.getLogger(__name__)


def bundle_of(case: EvaluationCase) -> bytes:
    """A case as it is stored. ValueError for one that could not be read again."""
    bundle = bundle_bytes(case, ())
    case_in(bundle)
    return bundle


def bundle_row(job_id: str, bundle: bytes) -> EvaluationBundle:
    """The row of a job's bundle."""
    return EvaluationBundle(job_id=job_id, bundle=bundle, sha256=_sha256(bundle))


def is_intact(row: EvaluationBundle) -> bool:
    """Whether a bundle is as it was sent."""
    return row.sha256 == _sha256(row.bundle)


def case_of(session: Session, job: Job) -> EvaluationCase:
    """What a job of engine evaluations compares. DamagedError unless it is as it was sent."""
    row = session.get(EvaluationBundle, job.id)
    if row is None or not is_intact(row):
        raise DamagedError(
            f"RECORD_DAMAGED: the held-out losses of job {job.id} are not as they were sent; "
            "`python -m server.check` on the server's machine lists the damage, and a backup from "
            "before it has them"
        )
    with reading(f"job {job.id}: its held-out losses"):
        case = case_in(row.bundle)
        if not isinstance(case, EvaluationCase):
            raise TypeError("they are training curves")
    return case


def case_under(session: Session, job: Job, policy: Policy | None) -> EvaluationCase:
    """The case of a job under another policy; without one under its own."""
    case = case_of(session, job)
    if policy is None:
        return case
    shared = case.multiplicity or Multiplicity()
    multiplicity = Multiplicity(
        look=min(shared.look, policy.looks), looks=policy.looks, candidates=len(case.candidates)
    )
    try:
        return dataclasses.replace(case, policy=policy, multiplicity=multiplicity)
    except ValueError as error:
        raise InvalidError.at("/policy", str(error)) from error


def outcome_of(case: EvaluationCase) -> JobOutcome:
    """The verdicts on a case, without writing. ValueError where a declared point has no evaluation
    of every run.
    """
    documents: list[Mapping[str, Any]] = [*case.documents()]
    names = [document["candidate"]["name"] for document in documents]
    paths = {name: path for name in names if (path := path_or_none(case, name)) is not None}
    return JobOutcome(
        verdicts=[
            (document, json.dumps(document, sort_keys=True, allow_nan=False))
            for document in documents
        ],
        paths={name: json.dumps(path, allow_nan=False) for name, path in paths.items()},
    )


def path_or_none(case: EvaluationCase, candidate: str) -> Mapping[str, Any] | None:
    """The path of the verdict on a candidate; None where computing it fails, which is logged."""
    try:
        return evaluation_path_of(case, candidate)
    except Exception:  # noqa: BLE001
        _log.exception("the path of the verdict on %s could not be computed", candidate)
        return None


def check_has_runs(job: Job, what: str) -> None:
    """NotFoundError for a job without runs, which has no `what` ("chart of gaps over steps")."""
    if job.has_evaluations:
        raise NotFoundError(
            f"job {job.id} has held-out losses that were sent without runs, so it has no {what}; "
            f"its page /jobs/{job.id} and its evidence have what was sent"
        )


def check_takes_runs(job: Job, instead: str) -> None:
    """ConflictError for a job without runs, of which a request asks what only runs can answer;
    `instead` is what to do.
    """
    if job.has_evaluations:
        raise ConflictError(
            f"job {job.id} has held-out losses that were sent without runs, and its verdict "
            f"answers no question of training; {instead}"
        )


def _sha256(bundle: bytes) -> str:
    return hashlib.sha256(bundle).hexdigest()
