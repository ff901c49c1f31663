"""What a search would run and cost, from a job that has ended: checked before anything is queued."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sqlalchemy.orm import Session

from parity import Criteria, criteria_from_mapping
from parity.design.experiment import Design
from parity.judging.document_types import VerdictDocument
from parity.search.cost import END_TO_END, THROUGHPUT, Shape, measured_times, modelled_times
from parity.search.policies import Policy, Space, Switch
from parity.search.power import MOST_CONFIRMATIONS, WANTED
from parity.search.setup import SearchSetup, arm_name
from server.database.lookup import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, Verdict
from server.errors import ConflictError, InvalidError
from server.jobs.analyses import MOST_PARENTS, candidate_of, fork_parents, kept_step, readable_spec, seconds_of
from server.jobs.fingerprint import unsound
from server.jobs.floors import family_in, lent_floors, newest_family
from server.jobs.imported_floors import named_floors
from server.jobs.late_loss import late_loss
from server.searches.switches import Proposal, propose
from training.overrides import from_document
from training.rules import SpecError
from training.spec import Arm as SpecArm
from training.spec import JobSpec, Model, RunSpec
from training.statistics import PROJECTIONS
from training.why.subject import arithmetic, policies
from training.why.units import uncovered

FORK_STEPS = 120  # the later half of them is the loss of a fork
MOST_PAIRS = 16
_DEFAULT_CONFIRMATIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchWish:
    """A part that can go back to something safer: a name, and the override of a job file that does it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: str
    override: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What a step takes. Either modelled: GEMMs at the ratios of `throughput` (bf16, fp8, fp4), and the candidate's recipe everywhere
    `end_to_end` times as fast as FP8; or measured: the `seconds` of a step of the baseline, and those that each switch `gains`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    throughput: dict[str, float] | None = None
    end_to_end: float | None = None
    seconds: float | None = None
    gains: dict[str, float] | None = None


MODELLED = Speed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to search; `server.routes.searches.SearchRequest` says what each field is."""

    candidate: str | None = None
    switches: Sequence[SwitchWish] = ()
    step: int | None = None
    fork_steps: int | None = None
    speed: Speed = MODELLED
    pairs: int | None = None
    pilots: int = 6
    confirmations: int = _DEFAULT_CONFIRMATIONS
    budget: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOfFile(Wish):
    """What `parity search` starts from: the id of a job that has ended (default: this file's job is trained first), and what to search."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSearch:
    """A search that could begin. `seconds`: about how long its largest cost takes on one device; None while that is unknown."""

    job: Job
    arm: Arm
    setup: SearchSetup
    seconds: float | None


def plan_search(session: Session, job_id: str, wish: Wish) -> PlannedSearch:
    """What a search would run and cost. Raises NotFoundError, InvalidError or ConflictError with the way out."""
    job = find_job(session, job_id)
    if job.status not in JOB_ENDED:
        raise ConflictError(f"job {job.id} is {job.status}, expected one that has ended; wait for its verdict")
    arm = candidate_of(job, wish.candidate)
    verdict = next((each for each in job.verdicts if each.candidate == arm.name), None)
    if verdict is None:
        raise ConflictError(f"candidate {arm.name} of job {job.id} has no verdict, expected one; train the job again")
    if verdict.outcome == "pass":
        raise ConflictError(f"candidate {arm.name} of job {job.id} passed: no switch has to go back, so there is nothing to search")
    spec = readable_spec(job)
    _check_engine(spec)
    baseline, steps = job.arms[0], spec.schedule.steps
    step = kept_step(baseline, wish.step, steps)
    parents = fork_parents(session, job, baseline, step)[:MOST_PARENTS]
    fork_steps = min(FORK_STEPS, steps - step) if wish.fork_steps is None else wish.fork_steps
    own = spec.arms[arm.position]
    proposal = _proposal(session, arm, spec, wish, step, fork_steps)
    space = _space(spec, own, proposal, step, fork_steps)
    given = {"0" * space.size: _losses(session, job, baseline), "1" * space.size: _losses(session, job, arm)}
    criteria = replace(criteria_from_mapping(job.criteria), looks=1)
    level = sum(given["0" * space.size]) / len(given["0" * space.size])
    pairs = wish.pairs or max(spec.baseline.replicates, own.replicates, 2)
    _check_numbers(wish, pairs)
    table, family = _floors(session, spec)
    setup = SearchSetup(
        switches=space.switches,
        times=_times(spec, own, space, wish.speed),
        given=given,
        parents=tuple(parent.id for parent in parents),
        fork_step=step,
        fork_steps=fork_steps,
        run_steps=steps,
        pairs=pairs,
        pilots=wish.pilots,
        confirmations=wish.confirmations,
        margin=_margin(verdict, criteria, level),
        design=_design(spec, own, level, pairs),
        criteria=criteria.document(),
        floors=table,
        family=family,
        budget=wish.budget,
        switches_from=proposal.source,
        analysis=proposal.analysis,
    )
    _check_worth(setup, wish)
    return PlannedSearch(job=job, arm=arm, setup=setup, seconds=seconds_of(parents, setup.most_steps))


def policy_arm(candidate: SpecArm, space: Space, policy: Policy, replicates: int = 1) -> SpecArm:
    """The arm of a job that trains a policy."""
    changes = tuple(map(from_document, space.overrides(policy)))
    return replace(candidate, name=arm_name(policy), replicates=replicates, overrides=(*candidate.overrides, *changes))


def _check_engine(spec: JobSpec) -> None:
    reasons = {
        "external": "its trainer is yours: train each policy as an arm of a job of yours, and judge it with `parity compare`",
        "maxtext": "MaxText quantizes every layer alike and its checkpoints are its own: search on engine emulated, and confirm there",
        "transformer_engine": "its GEMMs cannot be chosen while it runs: search on engine emulated, and confirm the policy as a job here",
    }
    if spec.engine != "emulated":
        raise InvalidError(f"engine is {spec.engine}, expected emulated; {reasons.get(spec.engine, 'it has no forks')}")


def _check_numbers(wish: Wish, pairs: int) -> None:
    for name, value, low, high in (
        ("pairs", pairs, 1, MOST_PAIRS),
        ("pilots", wish.pilots, 0, 20),
        ("confirmations", wish.confirmations, 1, MOST_CONFIRMATIONS),
    ):
        if not low <= value <= high:
            raise InvalidError(f"search.{name} is {value}, expected {low} to {high}")


def _proposal(session: Session, arm: Arm, spec: JobSpec, wish: Wish, step: int, fork_steps: int) -> Proposal:
    """The switches that were asked for, else those that the record proposes."""
    try:
        if not wish.switches:
            return propose(session, arm, spec, spec.arms[arm.position], step, fork_steps)
        named = [Switch(name=each.name, override=each.override) for each in wish.switches]
    except (SpecError, ValueError) as error:
        raise InvalidError(f"the space of the search is not one: {error}") from error
    late = next((each.name for each in named if "from_step" in each.override), None)
    if late is not None:
        raise InvalidError(f"switch {late!r} has from_step, which forks of {fork_steps} steps cannot see; try it as an arm of a job")
    return Proposal(switches=named, source="request")


def _space(spec: JobSpec, own: SpecArm, proposal: Proposal, step: int, fork_steps: int) -> Space:
    """The switches, checked: that every policy is a run that a fork can compute, and that all of them together reach all of the gap."""
    try:
        space = Space(switches=tuple(proposal.switches))
        everything, restored = _run(spec, own, space, "1" * space.size), _run(spec, own, space, "0" * space.size)
        ends = {"0" * space.size: restored, "1" * space.size: everything}
        for at in range(space.size):
            alone = "1" * at + "0" + "1" * (space.size - at - 1)
            ends[alone] = _run(spec, own, space, alone)
        policies(ends, step, fork_steps)
        before = arithmetic(spec.run_of(spec.baseline, 0), step, fork_steps, "baseline")
        segments = [arithmetic(each, step, fork_steps, "policy") for each in (everything, restored)]
    except (SpecError, ValueError, TypeError) as error:
        raise InvalidError(f"the space of the search is not one: {error}") from error
    left = uncovered(segments[0], segments[1], before)
    if left is not None:
        raise InvalidError(
            f"no switch takes {left.gemm} of {left.projection} in block {left.block} back to the baseline's arithmetic or bf16, so the gap "
            "of no policy is known to be 0; add a switch for it, or leave search.switches out for the default space"
        )
    return space


def _run(spec: JobSpec, own: SpecArm, space: Space, policy: Policy) -> RunSpec:
    return spec.run_of(policy_arm(own, space, policy), 0)


def _losses(session: Session, job: Job, arm: Arm) -> list[float]:
    """The mean losses (nats) of an arm's sound runs in the window that the judge reads."""
    losses = [late_loss(session, run, job) for run in arm.runs if unsound(session, run.source or run) is None]
    if not losses:
        raise ConflictError(f"arm {arm.name} of job {job.id} has no finished run with its whole curve; train the job again")
    return losses


def _floors(session: Session, spec: JobSpec) -> tuple[str | None, str | None]:
    """The table of reruns from which a confirmation of this job would borrow, as CSV, and the name of the family."""
    if spec.family:
        return named_floors(session, spec.family).csv(), spec.family
    unsaved = Job(id="", engine=spec.engine, spec=spec.document())
    floors = lent_floors(session, unsaved, newest_family(session, unsaved))
    return (floors.csv(), family_in(floors)) if floors else (None, None)


def _margin(verdict: Verdict, criteria: Criteria, level: float) -> float:
    """The margin in nats: the one that decided, else that of the policy at the baseline's loss."""
    document: VerdictDocument = json.loads(verdict.document)
    margin: Mapping[str, Any] | None = document.get("margin")
    if margin is not None and math.isfinite(margin["nats"]):
        return float(margin["nats"])
    if criteria.margin is None:
        raise ConflictError("the verdict has no margin, expected one; state criteria.margin and judge the job again")
    return criteria.margin.nats(level)


def _design(spec: JobSpec, own: SpecArm, level: float, pairs: int) -> dict[str, Any]:
    design = Design(
        planned_steps=spec.schedule.steps,
        level=level,
        baseline_runs=pairs,
        candidate_runs=pairs,
        baseline_recipe=spec.baseline.label,
        candidate_recipe=own.label,
        baseline_rounding=spec.rounding(spec.baseline),
        candidate_rounding=spec.rounding(own),
    )
    names = ("planned_steps", "level", "baseline_runs", "candidate_runs", "baseline_recipe", "candidate_recipe")
    return {name: getattr(design, name) for name in (*names, "baseline_rounding", "candidate_rounding")}


def _times(spec: JobSpec, own: SpecArm, space: Space, speed: Speed) -> tuple[float, ...]:
    """The time of a step of each policy, as a share of the baseline's."""
    try:
        if speed.gains is not None or speed.seconds is not None:
            if speed.gains is None or speed.seconds is None or not 0.0 < speed.seconds < math.inf:
                raise ValueError("search.speed needs both seconds (above 0) and gains, or neither")
            times = measured_times(space, speed.seconds, speed.gains)
        else:
            if own.overrides or own.bf16_from_step is not None or spec.keep_first or spec.keep_last:
                raise ValueError("step times are modelled for one recipe in all blocks only; measure them: search.speed.seconds and gains")
            quantized = spec.projections.quantized(spec.layer_policy)
            shape = Shape(
                weights={name: weight for name, weight in _weights(spec.model).items() if name in quantized},
                n_layers=spec.model.n_layers,
                steps=spec.schedule.steps,
                recipe=own.recipe,
                throughput={**THROUGHPUT, **(speed.throughput or {})},
                end_to_end=speed.end_to_end or END_TO_END,
            )
            times = modelled_times(space, shape)
    except ValueError as error:
        raise InvalidError(f"the speed of the policies is not known: {error}") from error
    return tuple(float(each) for each in times / times[0])


def _weights(model: Model) -> dict[str, int]:
    """Inputs times outputs of each linear layer of a block."""
    keys = model.n_kv_heads * model.head_dim
    outputs = {"query": model.d_model, "key": keys, "value": keys, "out": model.d_model}
    return {name: model.d_model * outputs.get(name, model.d_ff) for name in PROJECTIONS}


def _check_worth(setup: SearchSetup, wish: Wish) -> None:
    """Refuse confirmations that nothing would pass, and a budget that is too small."""
    if setup.target is None:
        enough = next((pairs for pairs in range(setup.pairs + 1, MOST_PAIRS + 1) if _with_pairs(setup, pairs).target is not None), None)
        remedy = f"set search.pairs: {enough}" if enough else "widen the margin, or measure the run noise with reruns (`noise:`)"
        raise InvalidError(
            f"search.pairs is {setup.pairs}: even a policy without a gap would be confirmed with "
            f"{100 * setup.confirmation.passes(0.0):.0f} % only, expected at least {100 * WANTED:.0f} %; {remedy}"
        )
    least = setup.least_steps + 2 * setup.pairs * setup.run_steps
    if wish.budget is not None and wish.budget < least:
        raise InvalidError(f"search.budget is {wish.budget:,.0f} steps, expected at least {least:,.0f}: first forks and one confirmation")


def _with_pairs(setup: SearchSetup, pairs: int) -> SearchSetup:
    return replace(setup, design={**setup.design, "baseline_runs": pairs, "candidate_runs": pairs}, pairs=pairs)
