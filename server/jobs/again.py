"""A new job from one that has ended.

It is submitted like any other: nothing is checked here that a submission does not check anyway.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.errors import ConflictError
from server.jobs.evaluations import check_takes_runs
from server.jobs.job_kinds import kind_of

_MOST_OF_PATCH = 3000  # characters of a patch in the new job's note


def request_of(job: Job) -> dict[str, Any]:
    """The request that submits a job as it was submitted, priority apart.

    ConflictError for a job that has not ended, for one that is not judged, and for a project, which
    has no specification of its own.
    """
    if job.status not in JOB_ENDED:
        raise ConflictError(
            f"job {job.id} is {job.status}; expected a job that has ended, whose specification a "
            "new one can take"
        )
    check_takes_runs(job, "send other losses with `parity compare --push`")
    if kind_of(job) is not None or not job.is_judged:
        raise ConflictError(
            f"job {job.id} is an analysis, or never judged; expected a job that compares "
            "candidates with a baseline"
        )
    if job.looked_at is not None:
        raise ConflictError(
            f"job {job.id} is a project, which has no job file; begin another one with "
            "parity.Run(project=...)"
        )
    named = {} if job.named is None else {"name": job.named.name, "version": job.named.version}
    request = {
        "job": job.spec,
        "policy": job.policy,
        "baseline": {**named, "reuse": job.reuse or bool(named)},
        "max_run_seconds": job.max_run_seconds,
        "tags": [tag.tag for tag in job.tags],
        "branch": job.branch,
    }
    return copy.deepcopy(request)


def merged(request: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A request with a JSON merge patch (RFC 7396): null removes a key, a list replaces a list.

    A preset states a whole model, so it replaces the one of the request.
    """
    model = patch["job"].get("model") if isinstance(patch.get("job"), Mapping) else None
    if isinstance(model, Mapping) and model.get("preset") is not None:
        request = {**request, "job": {**request["job"], "model": {}}}
    made: dict[str, Any] = _patched(request, patch)
    return made


def _patched(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    made = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = _patched(made.get(name), value)
    return made


def origin_note(job_id: str, patch: Mapping[str, Any]) -> str:
    """The note of a new job that says where it comes from."""
    text = json.dumps(patch, sort_keys=True)
    if patch:
        changed = (
            " with the change "
            f"{text[:_MOST_OF_PATCH]}{' ...' if len(text) > _MOST_OF_PATCH else ''}"
        )
    else:
        changed = " without a change"
    return f"Made from job {job_id}{changed}."
