"""Judging without training: curves that a caller brings, and a job's own curves under another policy. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from fastapi import APIRouter, Depends

from parity import Criteria, Curve, criteria_from_mapping, curve_from_arrays
from parity.criteria import CriteriaError
from parity.curve import CurveError
from parity.evidence import Case
from server import jobs
from server.auth import Principal, requires
from server.buckets import Number
from server.context import InContext
from server.errors import FieldProblem, InvalidError
from server.exact import Exact

router = APIRouter(prefix="/api/v1", tags=["evaluations"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBody:
    """One finished run: columns of one length. A loss that is not finite is spelled nan, inf or -inf.

    `context` holds what must agree between the arms (engine, device class, data digest); a difference is `CONFOUNDED`.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    steps: list[int]
    loss: list[Number]
    columns: dict[str, list[Number]] = field(default_factory=dict)
    seed: int = 0
    replicate: int = 0
    recipe: str | None = None
    context: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """A baseline and its candidates by name, each with one run or more, and the policy that judges them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    baseline: list[RunBody]
    candidates: dict[str, list[RunBody]]
    criteria: Mapping[str, Any]
    controls: list[RunBody] = field(default_factory=list)
    planned_steps: int | None = None
    baseline_name: str | None = None
    layer_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeRequest:
    """Another policy for the curves of a job."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    criteria: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the judge says; `gating` is always false: only the verdict of a job's own policy gates."""

    gating: bool
    verdicts: list[Mapping[str, Any]]


@router.post("/evaluations", dependencies=[Depends(requires("view"))])
def evaluate(request: Exact[EvaluationRequest]) -> Evaluation:
    """Judge curves that the caller brings: the same engine and the same verdict, no GPU, nothing stored."""
    if not request.candidates:
        raise InvalidError("candidates is empty, expected at least one arm", [FieldProblem(pointer="/candidates", detail="name an arm")])
    case = Case(
        baseline=_curves(request.baseline, "/baseline"),
        candidates={name: _curves(runs, f"/candidates/{name}") for name, runs in request.candidates.items()},
        criteria=criteria_of(request.criteria),
        controls=_curves(request.controls, "/controls"),
        planned_steps=request.planned_steps,
        layer_policy=request.layer_policy,
        baseline_name=request.baseline_name,
    )
    return Evaluation(gating=False, verdicts=[*case.documents()])


@router.post("/jobs/{job_id}:rejudge")
def rejudge(
    job_id: str, request: Exact[RejudgeRequest], context: InContext, _viewer: Annotated[Principal, Depends(requires("view"))]
) -> Evaluation:
    """What another policy would say of a job's finished runs. The job's own verdict stays as it is."""
    criteria = criteria_of(request.criteria)
    with context.database.read() as session:
        job = jobs.find(session, job_id)
        case = jobs.case(session, job, criteria)
    if not case.baseline or not all(case.candidates.values()):
        raise InvalidError(f"job {job_id} is {job.status} and has an arm without a finished run, so there is nothing to judge")
    return Evaluation(gating=False, verdicts=[*case.documents()])


def criteria_of(mapping: Mapping[str, Any]) -> Criteria:
    """The policy in a request's `criteria`; InvalidError points into it."""
    try:
        return criteria_from_mapping(mapping)
    except CriteriaError as error:
        place = error.path.removeprefix("criteria").strip(".")
        pointer = "/criteria" + "".join(f"/{part}" for part in place.split(".") if part)
        raise InvalidError(str(error), [FieldProblem(pointer=pointer, detail=str(error))]) from error


def _curves(runs: list[RunBody], pointer: str) -> list[Curve]:
    return [_curve(run, f"{pointer}/{index}") for index, run in enumerate(runs)]


def _curve(run: RunBody, pointer: str) -> Curve:
    try:
        return curve_from_arrays(
            np.array(run.steps, np.int64),
            np.array(run.loss, np.float64),
            columns={name: np.array(values, np.float64) for name, values in run.columns.items()},
            label=pointer,
            seed=run.seed,
            replicate=run.replicate,
            recipe=run.recipe,
            context=run.context,
        )
    except (CurveError, OverflowError) as error:
        raise InvalidError(f"{pointer}: {error}", [FieldProblem(pointer=pointer, detail=str(error))]) from error
