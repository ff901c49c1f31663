"""What a search would run and cost, its switches, and each of its steps as a job."""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.policy import Policy, policy_from_mapping
from parity.structure import frozen
from parity_lab.analysis import REPLAY_SHARE
from parity_lab.answer import rates_sentence, sentence
from parity_lab.assignments import (
    END_TO_END,
    GEMMS,
    GROUPS,
    MOST_SWITCHES,
    Assignment,
    Box,
    Cell,
    Shape,
    Space,
    Switch,
    boxes,
    measured_times,
    modelled_times,
    proposals,
    ranges_of,
    without,
)
from parity_lab.belief import WANTED, Evaluation, evaluations_from
from parity_lab.replay import check, planned
from parity_lab.search import GIVEN, SearchSetup, SwitchSource, arm_name, key_of
from parity_lab.server.analyses import (
    MOST_PARENTS,
    derived_job,
    fork_parents,
    judged_candidate,
    kept_step,
    late_loss,
    pairs_of,
    parted_pair,
    rates_differ,
    readable_spec,
    recorded,
    replayed_runs,
    results_of,
    seconds_of,
)
from parity_lab.server.tables import Analysis, Search, SearchStep
from parity_lab.training.menu import arithmetic, assignments, subject, uncovered
from server.database.sessions import find_job
from server.database.tables import Arm, Job, Run, Verdict
from server.errors import ConflictError, InvalidError
from server.jobs.fingerprint import unsound
from server.jobs.noise_tables import family_in, lent_noise_table, named_noise_table, newest_family
from server.jobs.submit import Order, Submission, submit_registered
from server.records import Body, of
from training.gemm_time import GB300, weights
from training.rules import SpecError
from training.spec import Arm as SpecArm
from training.spec import JobSpec
from training.switches import from_document

# The switches of a search that names none: what the newest analysis of its base job named, then
# blocks; without one, parts of blocks.


@frozen
class Proposal:
    """Switches, where they come from, and the job of the analysis if it is one."""

    switches: Sequence[Switch]
    source: SwitchSource
    analysis: str | None = None


def propose(session: Session, arm: Arm, spec: JobSpec, step: int, fork_steps: int) -> Proposal:
    """The switches for a candidate, each of which takes its part back to the baseline's recipe.
    Raises InvalidError and SpecError.
    """
    baseline, own = spec.baseline, spec.arms[arm.position]
    if (
        baseline.overrides
        or baseline.bf16_from_step is not None
        or own.bf16_from_step is not None
        or baseline.recipe == "f32"
    ):
        raise InvalidError(
            "search.switches is missing, and arms with overrides or a late switch have no default "
            "space; name the switches"
        )
    units = subject(spec.run_of(own, 0), spec.run_of(baseline, 0), step, fork_steps).units
    changed: set[Cell] = {(unit.block, unit.projection, unit.gemm) for unit in units}
    analysis = _newest_that_names(session, arm, {unit.name for unit in units})
    if analysis is not None:
        named = [
            [_cell(name) for name in cluster["gemms"]]
            for cluster in (analysis.answer or {})["named"]
        ]
        parts = proposals(changed, named)
        if parts:
            return Proposal(
                switches=_switches(baseline, parts), source="analysis", analysis=analysis.job_id
            )
    return Proposal(
        switches=_switches(baseline, _parts_of_blocks(changed, spec.model.n_layers)),
        source="default",
    )


def _newest_that_names(session: Session, arm: Arm, units: set[str]) -> Analysis | None:
    """The newest analysis of this candidate that names some of its GEMMs, and not all of them as
    one cluster.
    """
    newest = (
        select(Analysis)
        .join(Job, Job.id == Analysis.job_id)
        .where(Job.status == "concluded")
        .order_by(Analysis.job_id.desc())
    )
    for analysis in session.scalars(
        newest.where(Analysis.explains == arm.job_id, Analysis.candidate == arm.name)
    ):
        named = {
            unit
            for cluster in (analysis.answer or {}).get("named", ())
            for unit in cluster["gemms"]
        }
        if named & units and not units <= named:
            return analysis
    return None


def _parts_of_blocks(changed: set[Cell], layers: int) -> list[Box]:
    """Attention and MLP, by GEMM, in as many ranges of blocks as 12 switches allow."""
    parts = [
        cells
        for members, gemm in itertools.product(GROUPS.values(), GEMMS)
        if (cells := {cell for cell in changed if cell[1] in members and cell[2] == gemm})
    ]
    ranges = max(1, min(layers, MOST_SWITCHES // len(parts)))
    return [
        box
        for first, end in ranges_of(layers, ranges)
        for cells in parts
        for box in boxes(cell for cell in cells if first <= cell[0] < end)
    ]


def _switches(baseline: SpecArm, parts: Sequence[Box]) -> list[Switch]:
    """A switch for each box."""
    given = baseline.switches.given()
    taken = {"recipe": baseline.recipe, "switches": given} if given else {"recipe": baseline.recipe}
    return [
        Switch(
            name=box.name,
            override={
                "blocks": box.ranges,
                "projections": list(box.projections),
                "gemms": list(box.gemms),
                **taken,
            },
        )
        for box in parts
    ]


def _cell(unit: str) -> Cell:
    block, projection, gemm = unit.split(".")
    return int(block), projection, gemm


# What a search would run and cost, from a job that has ended: checked before anything is queued.

FORK_STEPS = 120  # the later half of them is the loss of a fork
MOST_PAIRS = 16


@frozen
class SwitchWish(Body):
    """A part that can go back to something safer: a name, and the override of a job file that does
    it.
    """

    name: str
    override: dict[str, Any]


@frozen
class Speed(Body):
    """What a step takes. Either modelled: GEMMs at the ratios of `throughput` (bf16, fp8, fp4), and
    the candidate's recipe everywhere `end_to_end` times as fast as FP8; or measured: the `seconds`
    of a step of the baseline, and those that each switch `gains`.
    """

    throughput: dict[str, float] | None = None
    end_to_end: float | None = None
    seconds: float | None = None
    gains: dict[str, float] | None = None


MODELLED = Speed()


@frozen
class Wish(Body):
    """What to search; `parity_lab.server.web.SearchRequest` says what each field is."""

    candidate: str | None = None
    switches: Sequence[SwitchWish] = ()
    step: int | None = None
    fork_steps: int | None = None
    speed: Speed = MODELLED
    pairs: int | None = None
    pilots: int = 6
    confirmations: int = 2
    budget: float | None = None


@frozen
class SearchOfFile(Wish):
    """What `parity search` starts from: the id of a job that has ended (default: this file's job is
    trained first), and what to search.
    """

    base: str | None = None


@frozen
class PlannedSearch:
    """A search that could begin. `seconds`: about how long its largest cost takes on one device;
    None while that is unknown.
    """

    arm: Arm
    setup: SearchSetup
    seconds: float | None


def plan_search(session: Session, job_id: str, wish: Wish) -> PlannedSearch:
    """What a search would run and cost. Raises NotFoundError, InvalidError or ConflictError with
    the way out.
    """
    job = find_job(session, job_id)
    arm, verdict = judged_candidate(job, wish.candidate, "expected one")
    if verdict.outcome == "pass":
        raise ConflictError(
            f"candidate {arm.name} of job {job.id} passed: no switch has to go back, so there is "
            "nothing to search"
        )
    spec = readable_spec(job)
    _check_engine(spec)
    baseline, steps = job.arms[0], spec.schedule.steps
    step = kept_step(baseline, wish.step, steps)
    parents = fork_parents(session, baseline, step)[:MOST_PARENTS]
    fork_steps = min(FORK_STEPS, steps - step) if wish.fork_steps is None else wish.fork_steps
    own = spec.arms[arm.position]
    proposal = _proposal(session, arm, spec, wish, step, fork_steps)
    space = _space(spec, own, proposal, step, fork_steps)
    losses = _losses(session, baseline)
    level = sum(losses) / len(losses)
    runs = replayed_runs(session, baseline, arm, parents)
    rates = rates_differ(session, pairs_of(runs))
    if rates is not None:
        raise ConflictError(
            f"there is nothing to search: {rates_sentence(rates)}; train the job again"
        )
    policy = replace(policy_from_mapping(job.policy), looks=1)
    pairs = wish.pairs or max(spec.baseline.replicates, own.replicates, 2)
    if pairs > MOST_PAIRS:
        raise InvalidError(f"search.pairs is {pairs}, expected 1 to {MOST_PAIRS}")
    table, family = _noise_table(session, spec)
    setup = SearchSetup(
        switches=space.switches,
        times=_times(spec, own, space, wish.speed),
        given={"0" * space.size: losses, space.candidate: _losses(session, arm)},
        parents=tuple(parent.id for parent in parents),
        fork_step=step,
        fork_steps=fork_steps,
        run_steps=steps,
        pairs=pairs,
        pilots=wish.pilots,
        confirmations=wish.confirmations,
        margin=_margin(verdict, policy, level),
        design=_design(spec, own, level, pairs),
        policy=policy.document(),
        noise_table=table,
        family=family,
        budget=wish.budget,
        switches_from=proposal.source,
        analysis=proposal.analysis,
    )
    _check_worth(setup)
    whole = int(REPLAY_SHARE * setup.least_steps / (2 * steps))
    records = [recorded(session, run, role) for role, own in runs.items() for run in own]
    replays = planned(records, whole)
    if parted_pair(session, pairs_of(runs), replays, records) is not None:
        replays = planned(records, len(records))
    setup = replace(setup, replays=replays)
    _check_worth(setup)
    return PlannedSearch(arm=arm, setup=setup, seconds=seconds_of(parents, setup.most_steps))


def assignment_arm(
    candidate: SpecArm, space: Space, assignment: Assignment, replicates: int = 1
) -> SpecArm:
    """The arm of a job that trains an assignment."""
    changes = tuple(map(from_document, space.overrides(assignment)))
    return replace(
        candidate,
        name=arm_name(assignment),
        replicates=replicates,
        overrides=(*candidate.overrides, *changes),
    )


def _check_engine(spec: JobSpec) -> None:
    reasons = {
        "external": "its trainer is yours: train each assignment as an arm of a job of yours, and "
        "judge it with `parity compare`",
        "maxtext": "MaxText quantizes every layer alike and its checkpoints are its own: search "
        "on engine emulated, and confirm there",
        "transformer_engine": "its GEMMs cannot be chosen while it runs: search on engine "
        "emulated, and confirm its result as a job here",
    }
    if spec.engine != "emulated":
        raise InvalidError(
            f"engine is {spec.engine}, expected emulated; "
            f"{reasons.get(spec.engine, 'it has no forks')}"
        )


def _proposal(
    session: Session, arm: Arm, spec: JobSpec, wish: Wish, step: int, fork_steps: int
) -> Proposal:
    """The switches that were asked for, else those that the record proposes."""
    try:
        if not wish.switches:
            return propose(session, arm, spec, step, fork_steps)
        named = [Switch(name=each.name, override=each.override) for each in wish.switches]
    except (SpecError, ValueError) as error:
        raise InvalidError(f"the space of the search is not one: {error}") from error
    late = next((each.name for each in named if "from_step" in each.override), None)
    if late is not None:
        raise InvalidError(
            f"switch {late!r} has from_step, which forks of {fork_steps} steps cannot see; try it "
            "as an arm of a job"
        )
    return Proposal(switches=named, source="request")


def _space(spec: JobSpec, own: SpecArm, proposal: Proposal, step: int, fork_steps: int) -> Space:
    """The switches, checked: that every assignment is a run that a fork can compute, and that all
    of them together reach all of the gap.
    """
    try:
        space = Space(switches=tuple(proposal.switches))
        ends = ["0" * space.size, space.candidate]
        tried = dict.fromkeys([*ends, *(without(space.size, at) for at in range(space.size))])
        runs = {
            assignment: spec.run_of(assignment_arm(own, space, assignment), 0)
            for assignment in tried
        }
        assignments(runs, step, fork_steps)
        before = arithmetic(spec.run_of(spec.baseline, 0), step, fork_steps, "baseline")
        restored, everything = (
            arithmetic(runs[assignment], step, fork_steps, "assignment") for assignment in ends
        )
    except (SpecError, ValueError, TypeError) as error:
        raise InvalidError(f"the space of the search is not one: {error}") from error
    left = uncovered(everything, restored, before)
    if left is not None:
        raise InvalidError(
            f"no switch takes {left.gemm} of {left.projection} in block {left.block} back to the "
            "baseline's arithmetic or bf16, so the gap "
            "of no assignment is known to be 0; add a switch for it, or leave search.switches out "
            "for the default space"
        )
    return space


def _losses(session: Session, arm: Arm) -> list[float]:
    """The mean losses (nats) of an arm's sound runs in the window that the judge reads."""
    losses = [
        late_loss(session, run) for run in arm.runs if unsound(session, run.source or run) is None
    ]
    if not losses:
        raise ConflictError(
            f"arm {arm.name} of job {arm.job_id} has no finished run with its whole curve; train "
            "the job again"
        )
    return losses


def _noise_table(session: Session, spec: JobSpec) -> tuple[str | None, str | None]:
    """The noise table from which a confirmation of this job would borrow, as CSV, and the name of
    the family.
    """
    if spec.family:
        return named_noise_table(session, spec.family).csv(), spec.family
    unsaved = Job(id="", engine=spec.engine, spec=spec.document())
    noise_table = lent_noise_table(session, unsaved, newest_family(session, unsaved))
    if not noise_table:
        return None, None
    return noise_table.csv(), family_in(noise_table)


def _margin(verdict: Verdict, policy: Policy, level: float) -> float:
    """The margin in nats: the one that decided, else that of the policy at the baseline's loss."""
    margin: Mapping[str, Any] | None = json.loads(verdict.document).get("margin")
    if margin is not None and math.isfinite(margin["nats"]):
        return float(margin["nats"])
    if policy.margin is None:
        raise ConflictError(
            "the verdict has no margin, expected one; state policy.margin and judge the job again"
        )
    return policy.margin.nats(level)


def _design(spec: JobSpec, own: SpecArm, level: float, pairs: int) -> dict[str, Any]:
    """The fields of the `Design` of a confirmation."""
    return {
        "planned_steps": spec.schedule.steps,
        "level": level,
        "baseline_runs": pairs,
        "candidate_runs": pairs,
        "baseline_recipe": spec.baseline.label,
        "candidate_recipe": own.label,
        "baseline_rounding": spec.rounding(spec.baseline),
        "candidate_rounding": spec.rounding(own),
    }


def _times(spec: JobSpec, own: SpecArm, space: Space, speed: Speed) -> tuple[float, ...]:
    """The time of a step of each assignment, as a share of the baseline's."""
    try:
        if speed.gains is not None or speed.seconds is not None:
            if speed.gains is None or speed.seconds is None or not 0.0 < speed.seconds < math.inf:
                raise ValueError("search.speed needs both seconds (above 0) and gains, or neither")
            times = measured_times(space, speed.seconds, speed.gains)
        else:
            if own.overrides or own.bf16_from_step is not None or spec.keep_first or spec.keep_last:
                raise ValueError(
                    "step times are modelled for one recipe in all blocks only; measure them: "
                    "search.speed.seconds and gains"
                )
            quantized = spec.projections.quantized(spec.layer_policy)
            shape = Shape(
                weights={
                    name: weight
                    for name, weight in weights(spec.model).items()
                    if name in quantized
                },
                n_layers=spec.model.n_layers,
                steps=spec.schedule.steps,
                recipe=own.recipe,
                throughput={**GB300, **(speed.throughput or {})},
                end_to_end=speed.end_to_end or END_TO_END,
            )
            times = modelled_times(space, shape)
    except ValueError as error:
        raise InvalidError(f"the speed of the assignments is not known: {error}") from error
    return tuple(float(each) for each in times / times[0])


def _check_worth(setup: SearchSetup) -> None:
    """Refuse confirmations that nothing would pass, and a budget that is too small."""
    if setup.target is None:
        enough = next(
            (
                pairs
                for pairs in range(setup.pairs + 1, MOST_PAIRS + 1)
                if _with_pairs(setup, pairs).target is not None
            ),
            None,
        )
        if enough:
            remedy = f"set search.pairs: {enough}"
        else:
            remedy = (
                "widen the margin, or measure the run-to-run noise with reruns (`short_reruns:`)"
            )
        raise InvalidError(
            f"search.pairs is {setup.pairs}: even an assignment without a gap would be confirmed "
            "with "
            f"{100 * setup.confirmation.passes(0.0):.0f} % only, expected at least "
            f"{100 * WANTED:.0f} %; {remedy}"
        )
    least = setup.least_steps + 2 * setup.pairs * setup.run_steps
    if setup.budget is not None and setup.budget < least:
        raise InvalidError(
            f"search.budget is {setup.budget:,.0f} steps, expected at least {least:,.0f}: first "
            "forks and one confirmation"
        )


def _with_pairs(setup: SearchSetup, pairs: int) -> SearchSetup:
    return replace(
        setup, design={**setup.design, "baseline_runs": pairs, "candidate_runs": pairs}, pairs=pairs
    )


# A step of a search as a job: forks in one run of kind `why`, a pilot in one of kind `pilot`, a
# confirmation as an ordinary job.
#
# Forks and pilots end without a verdict, and no judge, baseline, run-to-run noise or reuse ever
# sees them. A confirmation trains both arms again from step 0 with a seed that no run on record
# has, reuses nothing, and is judged like any job, at the confidence of one of the search's
# confirmations. It counts as a look at its policy's question (`server.jobs.ledger`).

UNKNOWN = 1e6
"""The standard error (nats) of a gap that a confirmation without a verdict did not measure."""


def queue_step(
    session: Session, search: Search, setup: SearchSetup, step: Sequence[Evaluation]
) -> Job:
    """Write the job of a step. Raises LookError for a confirmation whose question has been judged
    before.
    """
    if step[0].kind == "confirmation":
        return _confirmation(session, search, setup, step[0])
    tried, parent = (
        list(dict.fromkeys(each.assignment for each in step)),
        session.get_one(Run, setup.parents[0]),
    )
    # replicates of the base job count from 0: a pilot is one that no run of it has
    if step[0].kind == "run":
        what, own = f"pilot of {tried[0]}", {"kind": "pilot", "replicate": GIVEN + step[0].number}
    else:
        what, own = (
            f"forks of {len(tried)} assignments",
            {"kind": "why", "replicate": parent.replicate, "forked_from": parent.id},
        )
    spec = replace(
        job_of(search, setup, tried, 1),
        name=f"search: {what} of {search.base.name}"[:200],
        family=None,
    )
    steps = int(setup.cost(tuple(step)))
    return derived_job(
        session,
        search.base,
        spec,
        search.submitted_by,
        _order(search),
        seed=spec.seed,
        planned_steps=steps,
        **own,
    )


def job_of(
    search: Search, setup: SearchSetup, tried: Sequence[Assignment], replicates: int
) -> JobSpec:
    """The job that compares these assignments with the baseline."""
    whole = readable_spec(search.base)
    own = next(arm for arm in whole.candidates if arm.name == search.candidate)
    return replace(
        whole,
        name=f"{tried[0]} of {search.base.name}"[:200],
        baseline=replace(whole.baseline, replicates=replicates),
        candidates=tuple(
            assignment_arm(own, setup.space, assignment, replicates) for assignment in tried
        ),
        short_reruns=None,
        keep_checkpoints=(),
    )


def results_of_step(session: Session, step: SearchStep) -> list[dict[str, Any]] | None:
    """What a step's job gave, in the order of its evaluations; None if it ended without."""
    job, evaluations = step.job, evaluations_from(step.evaluations)
    if evaluations[0].kind == "confirmation":
        return _verdict(job)
    if job.status != "concluded":
        return None
    if evaluations[0].kind == "run":
        return [{"value": late_loss(session, job.runs[0])}]
    values = results_of(session, job.id)
    if not values.keys() >= {key_of(each) for each in evaluations}:  # its replays ended it
        return None
    return [{"value": float(values[key_of(each)])} for each in evaluations]


def why_unfit(session: Session, setup: SearchSetup, step: SearchStep) -> str:
    """Why no assignment can pass whatever its precision, by the replays of a step that has ended;
    empty if they say nothing like it.
    """
    if step.number != 1 or step.job.status != "concluded":
        return ""
    replays = check(setup.replays, results_of(session, step.job_id), accept_noise=True)
    if not replays.ends_it:
        return ""
    return sentence(replays)


def _verdict(job: Job) -> list[dict[str, Any]] | None:
    """The gap of a confirmation, its standard error, and whether the judge passed it: that the
    policy of the job says so.
    """
    if job.status != "concluded" or len(job.verdicts) != 1:
        return None
    verdict = job.verdicts[0]
    gap = json.loads(verdict.document).get("gap") or {}
    value, se = gap.get("mean"), gap.get("se")
    known = (
        isinstance(value, float)
        and isinstance(se, float)
        and abs(value) < UNKNOWN
        and 0.0 < se < UNKNOWN
    )
    return [
        {
            "value": value if known else 0.0,
            "se": se if known else UNKNOWN,
            "passed": verdict.outcome == "pass",
        }
    ]


def _confirmation(session: Session, search: Search, setup: SearchSetup, own: Evaluation) -> Job:
    spec = replace(
        job_of(search, setup, [own.assignment], setup.pairs), seed=_fresh_seed(session, search, own)
    )
    spec = replace(spec, name=f"confirm: {spec.name}"[:200])
    policy = replace(setup.policy_of_the_job, confidence=setup.confirmation.confidence, looks=1)
    wanted = Submission(
        spec=spec, policy=policy, order=_order(search), revision=search.base.revision or ""
    )
    job = submit_registered(session, wanted, search.submitted_by or "")
    job.device_class, job.threads = search.base.device_class, search.base.threads
    return job


def _order(search: Search) -> Order:
    return of(Order, search, reuse=False)


def _fresh_seed(session: Session, search: Search, own: Evaluation) -> int:
    """A seed that no run on record has: a confirmation shares no initialization and no data order
    with what chose its assignment.
    """
    for attempt in range(1000):
        digest = hashlib.sha256(
            f"{search.id} {own.number} {len(search.steps)} {attempt}".encode()
        ).digest()
        seed = int.from_bytes(digest[:4]) >> 2
        if session.scalar(select(Run.id).where(Run.seed == seed).limit(1)) is None:
            return seed
    raise RuntimeError("no seed of 1,000 is unused, expected one that no run on record has")
