"""A search as the API and the pages show it: what it costs, what each step gave, where it is, and what it guarantees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from parity.search.evaluations import Result, evaluations_from, results_from
from parity.search.policies import names
from parity.search.search import Rating, rate
from parity.search.setup import SearchSetup, SwitchSource, setup_from
from parity.wording import interval_words, signed
from server.database.clock import time_text
from server.database.lab_tables import Search, SearchState, SearchStep
from server.database.tables import JobStatus
from server.searches.plan import PlannedSearch
from server.searches.record import spent
from server.searches.steps import job_of_policy

_SHOWN = 200  # policies of a document, the fastest first
_TWO_SIGMA = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSwitch:
    """A part that can go back, and the override that does it."""

    name: str
    override: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """What a search runs and costs. Losses are in nats, costs in steps of training; a pair of full runs has `pair_steps`.

    `switches_from`: the request, the answer of the job `analysis`, or parts of blocks by default; null for a search of an older version.
    `least_steps` is the cost of the first forks, `most_steps` that of everything. `target` is the largest gap that is confirmed with 95 %
    power. `candidate_speed`: how many times as fast as the baseline's a step of the candidate is. `seconds`: about how long `most_steps`
    take on one device; null while that is unknown.
    """

    base: str
    base_name: str
    candidate: str
    switches: list[SearchSwitch]
    switches_from: SwitchSource | None
    analysis: str | None
    parents: list[str]
    fork_step: int
    fork_steps: int
    pairs: int
    pilots: int
    confirmations: int
    confidence: float
    margin: float
    target: float
    candidate_speed: float
    least_steps: float
    most_steps: float
    pair_steps: int
    seconds: float | None
    guarantee: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStepDocument:
    """A step: its job, what it evaluates, its cost in steps of training, and what came of it in one sentence."""

    number: int
    kind: Literal["forks", "pilot", "confirmation"]
    job: str
    status: JobStatus
    policies: list[str]
    cost: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A policy: the switches that it takes back, its speed as a multiple of the baseline's, and its gap (nats) with a 95 % interval after
    the results so far. `state`: confirmed by the judge, not confirmed, tried in forks or runs, or only estimated from others."""

    policy: str
    takes_back: list[str]
    speed: float
    gap: float
    low: float
    high: float
    passes: float
    state: Literal["confirmed", "not confirmed", "tried", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDocument:
    """A search: its state, plan, steps and policies. `policy` is the one that the judge confirmed, with the job that trains it as `job`;
    null unless the state is `found`."""

    id: str
    state: SearchState
    message: str | None
    plan: SearchPlan
    steps: list[SearchStepDocument]
    policies: list[PolicyDocument]
    policy: str | None
    speed: float | None
    job: Mapping[str, Any] | None
    criteria: Mapping[str, Any]
    steps_spent: float
    created_at: str | None
    finished_at: str | None


def plan_document(planned: PlannedSearch) -> SearchPlan:
    """A plan."""
    return _plan(planned.setup, planned.job.id, planned.job.name, planned.arm.name, planned.seconds)


def search_document(search: Search) -> SearchDocument:
    """A search on record."""
    setup = setup_from(search.setup)
    job = None
    if search.policy is not None:
        job = job_of_policy(search, setup, search.policy, setup.pairs).document()
    return SearchDocument(
        id=search.id,
        state=search.state,
        message=search.message,
        plan=_plan(setup, search.base_id, search.base.name, search.candidate, None),
        steps=[_step(each) for each in search.steps],
        policies=_policies(search, setup),
        policy=search.policy,
        speed=None if search.policy is None else 1.0 / setup.times[int(search.policy, 2)],
        job=job,
        criteria=search.base.criteria,
        steps_spent=spent(search),
        created_at=time_text(search.created_at),
        finished_at=time_text(search.finished_at),
    )


def _plan(setup: SearchSetup, base: str, base_name: str, candidate: str, seconds: float | None) -> SearchPlan:
    return SearchPlan(
        base=base,
        base_name=base_name,
        candidate=candidate,
        switches=[SearchSwitch(name=each.name, override=each.override) for each in setup.switches],
        switches_from=setup.switches_from,
        analysis=setup.analysis,
        parents=list(setup.parents),
        fork_step=setup.fork_step,
        fork_steps=setup.fork_steps,
        pairs=setup.pairs,
        pilots=setup.pilots,
        confirmations=setup.confirmations,
        confidence=setup.confirmation.confidence,
        margin=setup.margin,
        target=setup.target or 0.0,
        candidate_speed=1.0 / setup.times[-1],
        least_steps=setup.least_steps,
        most_steps=setup.most_steps,
        pair_steps=2 * setup.run_steps,
        seconds=seconds,
        guarantee=setup.confirmation.guarantee,
    )


def _step(step: SearchStep) -> SearchStepDocument:
    own = evaluations_from(step.evaluations)
    kinds: Mapping[str, Literal["forks", "pilot", "confirmation"]] = {"fork": "forks", "run": "pilot", "confirmation": "confirmation"}
    return SearchStepDocument(
        number=step.number,
        kind=kinds[own[0].kind],
        job=step.job_id,
        status=step.job.status,
        policies=list(dict.fromkeys(each.policy for each in own)),
        cost=step.cost,
        outcome=_outcome(step, results_from(own, step.results) if step.results is not None else ()),
    )


def _outcome(step: SearchStep, results: Sequence[Result]) -> str:
    if not results:
        return "given up" if step.job.status in {"failed", "cancelled"} else ""
    first = results[0]
    if first.evaluation.kind == "fork":
        return f"{len(results)} forks"
    if first.evaluation.kind == "run":
        return f"loss {first.value:.4f} nats"
    if not step.job.verdicts:
        return "no verdict: used, and counted as not passed"
    verdict = step.job.verdicts[0]
    words = [verdict.outcome if verdict.outcome == "pass" or verdict.code is None else f"{verdict.outcome}, {verdict.code}"]
    if verdict.gap is not None and verdict.ci_low is not None and verdict.ci_high is not None:
        words.append(f"gap {signed(verdict.gap, 4)} nats ({interval_words(verdict.ci_low, verdict.ci_high, 4)})")
    if verdict.outcome != "pass":
        words.append(json.loads(verdict.document)["reasons"][0]["sentence"])
    return ": ".join(words)


def _policies(search: Search, setup: SearchSetup) -> list[PolicyDocument]:
    """The policies after the results on record: those that were tried, and the fastest others."""
    batches = [results_from(evaluations_from(step.evaluations), step.results) for step in search.steps if step.results is not None]
    if not batches:
        return []
    try:
        rating = rate(setup.setting, batches)
    except (ValueError, ZeroDivisionError):  # forks that tell nothing: the search says so
        return []
    tried = {result.evaluation.policy for batch in batches for result in batch} | set(setup.given)
    refused = {result.evaluation.policy for batch in batches for result in batch if result.evaluation.kind == "confirmation"}
    ranked = sorted(range(len(rating.policies)), key=lambda at: (rating.policies[at] not in tried, setup.times[at], at))
    return [_policy(setup, rating, at, tried, refused, search.policy) for at in ranked[:_SHOWN]]


def _policy(setup: SearchSetup, rating: Rating, at: int, tried: set[str], refused: set[str], confirmed: str | None) -> PolicyDocument:
    own, gap, sd = rating.policies[at], float(rating.belief.mean[at]), float(rating.belief.sd[at])
    state: Literal["confirmed", "not confirmed", "tried", "estimated"] = "tried" if own in tried else "estimated"
    if own in refused:
        state = "not confirmed"
    if own == confirmed:
        state = "confirmed"
    return PolicyDocument(
        policy=own,
        takes_back=names(setup.switches, own),
        speed=1.0 / setup.times[at],
        gap=gap,
        low=gap - _TWO_SIGMA * sd,
        high=gap + _TWO_SIGMA * sd,
        passes=float(rating.passes[at]),
        state=state,
    )
