"""Held-out losses as a job of their own: recorded, and judged by this server."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import Field

from parity.frozen import frozen
from parity.judging.bundles.manifest import MAX_CANDIDATES, MAX_RUNS
from parity.judging.curves.curve import LOSS_NAME, MAX_STEP, Curve
from parity.judging.curves.reading import different_meanings
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.multiplicity import Multiplicity
from parity.wording import count
from server.api.evaluations import policy_of
from server.api.run_bodies import Runs, candidate_pointer, curve_of
from server.concurrency.turns import Turns
from server.documents.jobs import JobDocument, job_document
from server.errors import InvalidError
from server.jobs.cost import price_of
from server.jobs.evaluations import bundle_of, outcome_of
from server.jobs.job_kinds import JobOutcome
from server.jobs.push_evaluations import EvaluationSubmission, record_once
from server.jobs.submit import JobLabels
from server.jobs.tags import MOST_TAGS
from server.records import Body
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["evaluations"], route_class=BodyRoute)
# The judge makes an interval at each point, and asks of every two runs that it compares whether one
# is the other's copy: at these limits it takes half a minute.
MOST_POINTS, MOST_LOSSES, MOST_PAIRS = 2_000, 20_000, 65_536
_LONGEST_ARM = 64
_judging = Turns("judging held-out losses")

_Arm = Annotated[str, Field(min_length=1, max_length=_LONGEST_ARM)]
_Step = Annotated[int, Field(ge=0, le=MAX_STEP)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@frozen
class RunTimesBody(Body):
    """One run's times: the names of its arm and of its run (`label`), its hardware, and its
    seconds; null where a time is not on record.
    """

    arm: _Arm
    run: Annotated[str, Field(max_length=1000)]
    hardware: Annotated[str, Field(max_length=200)] | None = None
    step_seconds: _Positive | None = None
    seconds_to_target: _Positive | None = None


@frozen
class EvaluationsRequest(Body):
    """Held-out losses of a baseline and of its candidates by name, each of one or more runs, and
    what is asked of them. A run has its losses at up to 2,000 steps (or tokens, or samples), each
    step once; all together have at most 20,000.

    `paired`: runs of one seed share data and initialization. `cluster` is a key of the runs'
    context, within which runs are no independent evidence. `at` names the points to compare;
    without it those in the last 20 % of the steps that all runs reached. `target` is a loss whose
    cost in samples is compared, `tokens_per_step` says points in tokens. `look` is which of the
    policy's looks this is. `name`, `tags` and `branch` are what the job is found by.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    baseline: Runs
    candidates: Annotated[dict[str, Runs], Field(max_length=MAX_CANDIDATES)]
    policy: Mapping[str, Any]
    baseline_name: _Arm = "baseline"
    paired: bool = False
    cluster: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    at: Annotated[list[_Step], Field(max_length=MOST_POINTS)] = field(default_factory=list)
    target: _Positive | None = None
    tokens_per_step: _Positive | None = None
    planned_steps: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    look: int = 1
    times: list[RunTimesBody] = field(default_factory=list)
    tags: Annotated[list[str], Field(max_length=MOST_TAGS)] = field(default_factory=list)
    branch: Annotated[str, Field(max_length=200)] | None = None


@router.post(
    "/jobs:evaluations",
    status_code=201,
    responses={200: {"model": JobDocument, "description": "the job of an earlier request"}},
)
def push_evaluations(
    request: StrictBody[EvaluationsRequest],
    response: Response,
    context: InContext,
    sender: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key and body return the same job")
    ] = None,
) -> JobDocument:
    """Record held-out losses as a job of engine `evaluations` and judge them: 201 with the job and
    its verdicts, 200 with an earlier one.

    The job has no runs, so no charts, forecasts or further runs, and no gate asks for it.
    """
    with _judging.take():
        submission, outcome = _judged(request)
    lease_seconds, price = context.settings.lease_seconds, price_of(context.settings)
    with context.database.write() as session:
        job, is_new = record_once(session, submission, outcome, sender.id, idempotency_key)
        document = job_document(session, job, lease_seconds, price)
    response.headers["Location"] = document.links["self"]
    if not is_new:
        response.status_code = 200
    return document


def _judged(request: EvaluationsRequest) -> tuple[EvaluationSubmission, JobOutcome]:
    if not request.name.strip() or not request.name.isprintable():
        raise InvalidError.at(
            "/name", f"name is {request.name!r:.80}; expected printable characters"
        )
    case = _case(request)
    try:
        bundle, outcome = bundle_of(case), outcome_of(case)
    except ValueError as error:  # a declared point that a run lacks
        raise InvalidError(str(error)) from error
    labels = JobLabels(tags=request.tags, branch=request.branch)
    submission = EvaluationSubmission(name=request.name, case=case, bundle=bundle, labels=labels)
    return submission, outcome


def _case(request: EvaluationsRequest) -> EvaluationCase:
    if not request.candidates:
        raise InvalidError.at(
            "/candidates", "candidates is empty, expected the runs of at least one arm"
        )
    arms = {request.baseline_name: ("/baseline", request.baseline)}
    for name, runs in request.candidates.items():
        pointer = candidate_pointer(name)
        if name == request.baseline_name:
            raise InvalidError.at(
                pointer, f"candidate {name} has the name of the baseline; expected another one"
            )
        arms[name] = (pointer, runs)
    for name, (pointer, _) in arms.items():
        if len(name) > _LONGEST_ARM or not all(c.isalnum() or c in "_.-" for c in name) or not name:
            raise InvalidError.at(
                pointer,
                f"the arm's name is {name!r:.80}, expected 1 to {_LONGEST_ARM} letters, digits, "
                "'_', '.' or '-'",
            )
    _check_sizes(arms)
    curves = {
        name: [curve_of(runs, number, pointer) for number in range(len(runs))]
        for name, (pointer, runs) in arms.items()
    }
    for name, (pointer, _) in arms.items():
        _check_steps(curves[name], pointer)
    _check_times(request.times, curves)
    named = [
        (name, [run for run in runs if LOSS_NAME in run.context]) for name, runs in curves.items()
    ]
    if (why := different_meanings(named)) is not None:
        raise InvalidError(f"{why} Send losses of one quantity")
    policy = policy_of(request.policy)
    try:
        return EvaluationCase(
            baseline=curves.pop(request.baseline_name),
            candidates=curves,
            policy=policy,
            baseline_name=request.baseline_name,
            paired=request.paired,
            cluster=request.cluster,
            at=tuple(request.at),
            target=request.target,
            tokens_per_step=request.tokens_per_step,
            planned_steps=request.planned_steps,
            times=[RunTimes(**asdict(run)) for run in request.times],
            multiplicity=Multiplicity(
                look=request.look, looks=policy.looks, candidates=len(request.candidates)
            ),
        )
    except ValueError as error:
        raise InvalidError(str(error)) from error


def _check_sizes(arms: Mapping[str, tuple[str, Runs]]) -> None:
    number = sum(len(runs) for _, runs in arms.values())
    if number > MAX_RUNS:
        raise InvalidError(
            f"the arms have {count(number, 'run')} in all, expected at most {MAX_RUNS}; send some "
            "of the candidates"
        )
    for name, (pointer, runs) in arms.items():
        if not runs:
            raise InvalidError.at(pointer, f"{name} has no run, expected at least one")
        for place, run in enumerate(runs):
            if not 1 <= len(run.steps) <= MOST_POINTS:
                raise InvalidError.at(
                    f"{pointer}/{place}/steps",
                    f"run {place} of {name} has {count(len(run.steps), 'loss', 'losses')}, "
                    f"expected 1 to {MOST_POINTS:,}; push a curve over steps as a run, or fewer "
                    "points",
                )
    of_baseline, *of_candidates = (len(runs) for _, runs in arms.values())
    pairs = sum((of_baseline + number) ** 2 for number in of_candidates)
    if pairs > MOST_PAIRS:
        raise InvalidError(
            f"each candidate's runs and the baseline's are compared with each other, {pairs:,} "
            f"pairs, expected at most {MOST_PAIRS:,}; send some of the candidates, or fewer runs"
        )
    losses = sum(len(run.steps) for _, runs in arms.values() for run in runs)
    if losses > MOST_LOSSES:
        raise InvalidError(
            f"the runs have {losses:,} losses in all, expected at most {MOST_LOSSES:,}; send fewer "
            "points of each, or some of the candidates"
        )


def _check_steps(runs: Sequence[Curve], pointer: str) -> None:
    for place, run in enumerate(runs):
        if run.replaced is not None and len(run.replaced.steps):
            raise InvalidError.at(
                f"{pointer}/{place}/steps",
                f"step {int(run.replaced.steps[0]):,} is there twice, expected each step once: a "
                "model has one loss on held-out data",
            )


def _check_times(times: Sequence[RunTimesBody], arms: Mapping[str, Sequence[Curve]]) -> None:
    """InvalidError unless each run that has times is one of those sent, named once."""
    if not times:
        return
    labels = Counter((name, run.label) for name, runs in arms.items() for run in runs)
    timed = Counter((entry.arm, entry.run) for entry in times)
    for place, entry in enumerate(times):
        key = entry.arm, entry.run
        if labels[key] != 1 or timed[key] != 1:
            raise InvalidError.at(
                f"/times/{place}",
                f"run {entry.run!r:.80} of {entry.arm} is {labels[key]} times among the runs and "
                f"{timed[key]} times here, expected once each",
            )
