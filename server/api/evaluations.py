"""Judging without training: curves that a caller sends, or a job's own curves under another policy.
Nothing is stored.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from parity.frozen import frozen
from parity.judging.case import Case
from parity.judging.curves.curve import MAX_STEP, Curve
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import Policy, PolicyError, policy_from_mapping
from parity.judging.verdict.path import with_evaluation_paths
from parity.readers.curve.step_unit import other_unit
from parity.report.words import with_words
from server.api.run_bodies import Runs, candidate_pointer, curve_of, dotted_place
from server.database.lookups import find_job
from server.errors import InvalidError
from server.jobs import projects
from server.jobs.evaluations import case_under
from server.jobs.judge_input import case_now
from server.jobs.verdict_rows import gemm_times, owned_job, path_or_none, shown
from server.records import Body
from server.web.access.authorization import Sender, check_rule
from server.web.access.rules import RULES
from server.web.context import InContext
from server.web.limits import MOST_KEYS
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["evaluations"], route_class=BodyRoute)


@frozen
class EvaluationRequest(Body):
    """A baseline and its candidates by name, each with one or more runs, and the policy that judges
    them.
    """

    baseline: Runs
    candidates: Annotated[dict[str, Runs], Field(max_length=MOST_KEYS)]
    policy: Mapping[str, Any]
    controls: Runs = field(default_factory=list)
    planned_steps: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    baseline_name: str | None = None
    layer_policy: str | None = None


@frozen
class RejudgeRequest(Body):
    """Another policy for the curves of a job; without `policy` its own."""

    policy: Mapping[str, Any] | None = None


@frozen
class Evaluation:
    """The judge's verdicts. `gating` is always false, because only the verdict under a job's own
    policy gates.
    """

    gating: bool
    verdicts: list[Mapping[str, Any]]


@router.post("/evaluations")
def evaluate(request: StrictBody[EvaluationRequest]) -> Evaluation:
    """Judge curves that the caller sends as columns, with the same judge as for jobs; nothing is
    stored.
    """
    if not request.candidates:
        raise InvalidError.at(
            "/candidates", "name an arm", "candidates is empty, expected at least one arm"
        )
    policy = policy_of(request.policy)
    arms = {
        "/baseline": request.baseline,
        **{candidate_pointer(name): runs for name, runs in request.candidates.items()},
    }
    arms["/controls"] = request.controls
    curves = {
        arm: [curve_of(runs, number, arm) for number in range(len(runs))]
        for arm, runs in arms.items()
    }
    _refuse_mixed_units(curves)
    case = Case(
        baseline=curves["/baseline"],
        candidates={name: curves[candidate_pointer(name)] for name in request.candidates},
        policy=policy,
        controls=curves["/controls"],
        planned_steps=request.planned_steps,
        layer_policy=request.layer_policy,
        baseline_name=request.baseline_name,
    )
    return Evaluation(
        gating=False, verdicts=[with_words(document) for document in case.documents()]
    )


@router.post("/jobs/{job_id}:rejudge")
def rejudge(
    job_id: str, request: StrictBody[RejudgeRequest], context: InContext, sender: Sender
) -> Evaluation:
    """The verdict on a job's finished runs as of now: with all that its owner has stated, under
    another policy or its own, and its path.

    The job's recorded verdict does not change. An open project is judged by its owner alone,
    because each set of finished runs and statements that is judged is a look at its question.
    """
    policy = None if request.policy is None else policy_of(request.policy)
    with context.database.read() as session:
        is_open = find_job(session, job_id).is_open
    if is_open:
        check_rule(
            context, RULES["POST /api/v1/jobs/{job_id}:conclude"], sender, {"job_id": job_id}
        )
        with context.database.write() as session:
            projects.look(session, job_id)
    with context.database.read() as session:
        job = find_job(session, job_id)
        if job.has_evaluations:
            return _rejudged_evaluations(case_under(session, job, policy))
        case, times, owned = case_now(session, job, policy), gemm_times(job), owned_job(job)
    if not case.baseline or not case.candidates or not all(case.candidates.values()):
        raise InvalidError(
            f"job {job_id} is {job.status} and has an arm without a finished run, so it cannot be "
            "judged"
        )
    judged: list[Mapping[str, Any]] = [
        shown(verdict.document(), path_or_none(verdict), times.get(verdict.candidate), owned)
        for verdict in case.verdicts()
    ]
    return Evaluation(gating=False, verdicts=judged)


def _rejudged_evaluations(case: EvaluationCase) -> Evaluation:
    documents = with_evaluation_paths(case, case.documents())
    return Evaluation(gating=False, verdicts=[with_words(document) for document in documents])


def policy_of(mapping: Mapping[str, Any]) -> Policy:
    """The policy in a request's `policy`; InvalidError with JSON Pointers into it."""
    try:
        return policy_from_mapping(mapping)
    except PolicyError as error:
        place = error.path.removeprefix("policy").strip(".")
        pointer = "/policy" + "".join(f"/{part}" for part in place.split(".") if part)
        raise InvalidError.at(pointer, str(error)) from error


def _refuse_mixed_units(arms: Mapping[str, list[Curve]]) -> None:
    """Reject a run whose steps count another unit than the first run's (tokens or samples), as
    `parity compare` does.
    """
    first = next(iter(arms["/baseline"]), None)
    for arm, curves in arms.items():
        for number, curve in enumerate(curves):
            if first is not None and other_unit(first, curve):
                apart = (
                    f"{curve.completeness.stride:,} apart, those of the first baseline run "
                    f"{first.completeness.stride:,}"
                )
                detail = (
                    f"the steps of this run are {apart}, with hardly a step in common; send "
                    "optimizer steps for both"
                )
                raise InvalidError.at(
                    f"{arm}/{number}", detail, f"{dotted_place(arm)}.{number}: {detail}"
                )
