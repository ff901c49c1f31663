"""Judging without training: curves that a caller sends, or a job's own curves under another policy.
Nothing is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from pydantic import BeforeValidator, FailFast, Field

from parity.frozen import frozen
from parity.judging.bundles.evidence import Case
from parity.judging.curves.curve import MAX_STEP, Curve, CurveError, Rounding, curve_from_arrays
from parity.judging.policy import Policy, PolicyError, policy_from_mapping
from parity.readers.curve.step_unit import other_unit
from parity.recipes import RecipeError, check_recipe
from parity.report.words import with_words
from server.database.lookups import find_job
from server.errors import InvalidError
from server.jobs import projects
from server.jobs.judge_input import case_now
from server.jobs.verdict_rows import gemm_times, owned_job, path_or_none, shown
from server.json_numbers import Number
from server.records import Body
from server.web.access.authorization import Sender, check_rule
from server.web.access.rules import RULES
from server.web.context import InContext
from server.web.limits import LARGEST, MOST_ITEMS, MOST_KEYS, MOST_NUMBERS
from server.web.requests.bodies import BodyRoute, StrictBody
from server.web.requests.texts import escaped

router = APIRouter(prefix="/api/v1", tags=["evaluations"], route_class=BodyRoute)
# Judging reads each value, so one wrong value is enough to refuse a column.
_Column = Annotated[list[Number | None], Field(max_length=MOST_NUMBERS), FailFast()]
_Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


@frozen
class RunBody(Body):
    """One finished run: `steps`, `loss` and other `columns` of equal length. Non-finite values:
    nan, inf and -inf; null is nan.

    `recipe` is a known one or `other:NAME`; `rounding` states how the gradients were rounded, and
    without it and a recipe that always rounds to nearest the run-to-run noise of stochastic
    rounding is assumed. `context` has the facts that must agree between the arms (engine, device
    class, data digest); a difference is `CONFOUNDED`. Without `replicate`, the runs of an arm with
    the same seed are numbered in their order. `notes` are what the reader of its file noted, for
    the report.
    """

    steps: Annotated[list[int], Field(max_length=MOST_NUMBERS), FailFast()]
    loss: _Column
    columns: Annotated[dict[str, _Column], Field(max_length=MOST_KEYS)] = field(
        default_factory=dict
    )
    label: str | None = None
    seed: _Whole | None = None
    replicate: _Whole | None = None
    recipe: str | None = None
    rounding: Rounding | None = None
    context: Annotated[dict[str, str], Field(max_length=MOST_KEYS)] = field(default_factory=dict)
    notes: Annotated[list[str], Field(max_length=MOST_ITEMS), FailFast()] = field(
        default_factory=list
    )


def _refuse_file(sent: object) -> object:
    """Reject the field `file` of earlier versions, and name its replacement."""
    if isinstance(sent, Mapping) and "file" in sent:
        raise ValueError(
            "file is no longer accepted; read the file on the client and send its steps and loss"
        )
    return sent


_Runs = Annotated[
    list[Annotated[RunBody, BeforeValidator(_refuse_file)]],
    Field(max_length=MOST_ITEMS),
    FailFast(),
]


@frozen
class EvaluationRequest(Body):
    """A baseline and its candidates by name, each with one or more runs, and the policy that judges
    them.
    """

    baseline: _Runs
    candidates: Annotated[dict[str, _Runs], Field(max_length=MOST_KEYS)]
    policy: Mapping[str, Any]
    controls: _Runs = field(default_factory=list)
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
        **{_candidate(name): runs for name, runs in request.candidates.items()},
    }
    arms["/controls"] = request.controls
    curves = {
        arm: [_curve(runs, number, arm) for number in range(len(runs))]
        for arm, runs in arms.items()
    }
    _refuse_mixed_units(curves)
    case = Case(
        baseline=curves["/baseline"],
        candidates={name: curves[_candidate(name)] for name in request.candidates},
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


def policy_of(mapping: Mapping[str, Any]) -> Policy:
    """The policy in a request's `policy`; InvalidError with JSON Pointers into it."""
    try:
        return policy_from_mapping(mapping)
    except PolicyError as error:
        place = error.path.removeprefix("policy").strip(".")
        pointer = "/policy" + "".join(f"/{part}" for part in place.split(".") if part)
        raise InvalidError.at(pointer, str(error)) from error


def _candidate(name: str) -> str:
    return f"/candidates/{escaped(name)}"


def _dotted_place(pointer: str) -> str:
    """A place of the body for people: "candidates.nvfp4.0"."""
    return pointer.removeprefix("/").replace("/", ".")


def _curve(runs: Sequence[RunBody], number: int, arm: str) -> Curve:
    """The curve of one run of an arm; without `replicate`, runs with the same seed are numbered."""
    run, pointer = runs[number], f"{arm}/{number}"
    # A control is not paired with a run of another arm.
    counted = 0 if arm == "/controls" else sum(other.seed == run.seed for other in runs[:number])
    try:
        check_recipe(run.recipe)
        return curve_from_arrays(
            np.array(run.steps, np.int64),
            np.array(run.loss, np.float64),
            columns={name: np.array(values, np.float64) for name, values in run.columns.items()},
            label=run.label or pointer,
            seed=run.seed,
            replicate=counted if run.replicate is None else run.replicate,
            recipe=run.recipe,
            rounding=run.rounding,
            context=run.context,
            notes=run.notes,
        )
    except (CurveError, RecipeError) as error:
        raise InvalidError.at(pointer, str(error), f"{_dotted_place(pointer)}: {error}") from error


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
                    f"{arm}/{number}", detail, f"{_dotted_place(arm)}.{number}: {detail}"
                )
