"""A job with its arms as the API and the pages show it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from parity.frozen import frozen
from parity.judging.live.forecast_words import sentence, unseen_words
from parity.judging.live.rules import State
from parity.recipes import UNSTATED
from parity.report.forecast import change_words
from server.database import tables
from server.database.states import JOB_OPEN
from server.database.tables import Arm, Job, JobStatus, Role, Run
from server.documents.principals import principal_names
from server.documents.progress import last_end, run_times, share_done
from server.documents.remarks import NoteDocument, SignOffEntry, StatementEntry, remarks_of
from server.documents.runs import AttemptDocument, RunDocument, attempt_documents, run_document
from server.jobs import submissions
from server.jobs.applied_statements import arm_facts, tokens_per_step
from server.jobs.cost import CostDocument, Price, cost_of
from server.jobs.forecasts import last_change, latest
from server.jobs.job_kinds import kind_of
from server.jobs.missing import missing
from server.jobs.multiplicity import multiplicity_of
from server.jobs.reuse import standing_fail_of
from server.jobs.same_numerics import numerics_of
from server.jobs.verdict_rows import shown_documents
from server.jobs.workers import can_take, live_workers, why_waiting
from server.json_numbers import Number
from server.records import from_attributes
from server.stored import stored_model
from training.overrides import phrase
from training.rules import OTHERS_TRAINERS


@frozen
class NamedDocument:
    """The promoted baseline that a job names, who promoted it, and the number of its reruns that
    the judge gets.
    """

    name: str
    version: int
    controls: int
    promoted_by: str


@frozen
class LiveState:
    """The last forecast of a candidate's final gap: its state, in words, and the probability of
    each verdict at the planned end.

    `low` to `high` is the 90 % forecast of the final gap, `gap` the gap at the step of the
    forecast, nats. `trend` is what the gap has changed since half of these steps, where that is
    more than noise. `unseen` says what the forecast has not seen, `changed` why it says something
    else than before.
    """

    state: State
    sentence: str
    step: int
    passes: float
    fails: float
    inconclusive: float
    gap: float
    low: float
    high: float
    margin: float
    trend: float | None
    unseen: str
    changed: str


@frozen
class ArmDocument:
    """The baseline or a candidate, with totals over its runs; `live` is the last forecast of a
    candidate, `will_fail` its sentence if the final gap is surely above the margin; either may be
    null.

    `title` is the arm's name with what it does from which step on, where the name does not say
    that. `judged_against` is the arm that a candidate is judged against, which under engine command
    may be another candidate. `overrides` are the arm's rules for single blocks, projections and
    GEMMs, as phrases. `starts_in_seconds` is until its first run starts, null where one has, or
    nobody knows. `short_reruns` are reruns that stop early and measure run-to-run noise; they
    are not in the totals.
    """

    name: str
    title: str
    role: Role
    recipe: str
    overrides: list[str]
    steps_done: int
    planned_steps: int | None
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    judged_against: str | None
    will_fail: str | None
    live: LiveState | None
    starts_in_seconds: float | None
    runs: list[RunDocument]
    short_reruns: list[RunDocument]


@frozen
class LookDocument:
    """Which of the registered looks at its question a job is, and how many candidates share the
    error.
    """

    number: int
    looks: int
    candidates: int


@frozen
class JobDocument:
    """A job: its status, why it waits, its arms, and its verdicts once the last run has ended.

    While it is queued, `missing` has a sentence for each thing that it lacks, or that nobody has
    tried: a worker, a tokenizer, its data, the engine on a GPU, and what it takes in device hours.
    `awaits_conclusion`: all runs of a project have ended; it takes further ones until somebody
    concludes it. A job of engine `evaluations` has held-out losses in place of runs: its arms have
    none, and its verdicts name what was sent. `failed_by` is the job whose fail on the same
    question stands against a pass of this one. To each verdict as the judge wrote it are added
    `path`, the gap and its interval as of steps on the way to its end, and `chances`, of what one
    more pair of runs would make of it. Neither is part of the verdict's digest. `numerics` has, by
    candidate, what the rule of goldens says of runs of one recipe at two revisions that are too
    short to judge: no verdict, and not part of one.
    """

    id: str
    name: str
    status: JobStatus
    code: str | None
    message: str | None
    waiting: str | None
    missing: list[str]
    engine: str
    layer_policy: str | None
    capability: str
    device_class: str | None
    max_run_seconds: float | None
    is_open: bool
    awaits_conclusion: bool
    reuse: bool
    baseline: NamedDocument | None
    config_hash: str | None
    revision: str | None
    branch: str | None
    look: LookDocument | None
    failed_by: str | None
    parameters: int | None
    planned_steps: int | None
    tokens_per_step: int | None
    share_done: float
    eta_seconds: float | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    last_event: int
    spec: Mapping[str, Any]
    policy: Mapping[str, Any]
    arms: list[ArmDocument]
    verdicts: list[Mapping[str, Any]]
    numerics: Mapping[str, Mapping[str, Any]]
    cost: CostDocument
    tags: list[str]
    notes: list[NoteDocument]
    sign_offs: list[SignOffEntry]
    statements: list[StatementEntry]
    links: Mapping[str, str]


# What a job without runs has not.
_LINKS_OF_RUNS = ("gap", "cancel", "again")
# Load options for several jobs with their specifications: three queries for all jobs instead of
# three per job.
WHOLE = (selectinload(Job.arms), selectinload(Job.runs), selectinload(Job.verdicts))


def job_document(
    session: Session, job: Job, lease_seconds: float, price: Price | None = None
) -> JobDocument:
    """Everything that the pages and clients show about a job; `price` is that of a device hour,
    where one is stated.
    """
    _load_runs(session, job)
    live = live_workers(session, lease_seconds)
    slots = sum(worker.slots for worker in live if can_take(worker, job))
    times = run_times(job.runs, slots)
    attempts, remarks = attempt_documents(session, job), remarks_of(session, job)
    submitted = submissions.grouped_by_run(session, [run.id for run in job.runs])
    shared = multiplicity_of(job)
    address = f"/api/v1/jobs/{job.id}"
    links = {
        "self": address,
        **{name: f"{address}/{name}" for name in ("events", "verdict", "gap")},
    }
    links |= {
        "evidence": f"{address}/evidence.zip",
        "card": f"{address}/card.yaml",
        "markdown_card": f"{address}/card.md",
        "cancel": f"{address}:cancel",
        "again": f"{address}:again",
        "page": f"/jobs/{job.id}",
    }
    for name in _LINKS_OF_RUNS if job.has_evaluations else ():
        del links[name]
    if kind := kind_of(job):
        links |= kind.links(session, job)
    waiting = why_waiting(job, slots, live)
    return from_attributes(
        JobDocument,
        job,
        waiting=waiting,
        missing=missing(session, job, None if slots else waiting),
        layer_policy=job.spec.get("layer_policy"),
        awaits_conclusion=job.is_open
        and job.status in JOB_OPEN
        and len(job.arms) > 1
        and all(run.finished_at for run in job.runs),
        baseline=_named_baseline(session, job),
        failed_by=failed_by(session, job, lease_seconds),
        look=shared and from_attributes(LookDocument, shared, number=shared.look),
        # With a trainer of the user's own the specification need not have the model.
        tokens_per_step=tokens_per_step(job),
        parameters=None
        if job.engine in OTHERS_TRAINERS or job.has_evaluations
        else stored_model(job.spec).parameters,
        share_done=1.0 if job.has_evaluations else share_done(job.runs),
        eta_seconds=last_end([_ends_in(run, times) for run in job.runs]),
        last_event=job.event_sequence,
        arms=[_arm_document(arm, times, slots, attempts, submitted) for arm in job.arms],
        verdicts=[*shown_documents(session, job)],
        numerics=numerics_of(session, job),
        cost=cost_of(session, job, price),
        tags=remarks.tags,
        notes=remarks.notes,
        sign_offs=remarks.sign_offs,
        statements=remarks.statements,
        links=links,
    )


def failed_by(session: Session, job: Job, lease_seconds: float) -> str | None:
    """The id of the job whose fail stands against the pass of a job; held-out losses answer no
    question of training.
    """
    failed = None if job.has_evaluations else standing_fail_of(session, job, lease_seconds)
    return None if failed is None else failed.id


def _load_runs(session: Session, job: Job) -> None:
    """Load the runs of all arms with three queries; each arm by itself would take two."""
    of_job = [arm.id for arm in job.arms]  # which also keeps the arms, with what is loaded below
    session.scalars(
        select(Arm)
        .where(Arm.id.in_(of_job))
        .options(selectinload(Arm.runs), selectinload(Arm.short_reruns))
    ).all()


def _arm_document(
    arm: Arm,
    times: Mapping[str, tuple[float, float] | None],
    slots: int,
    attempts: Mapping[str, list[AttemptDocument]],
    submitted: Mapping[str, Sequence[tables.Submission]],
) -> ArmDocument:
    runs, short_reruns = (
        [
            run_document(
                run, arm.name, _ends_in(run, times), attempts[run.id], submitted.get(run.id, ())
            )
            for run in trained
        ]
        for trained in (arm.runs, arm.short_reruns)
    )
    live = live_state(arm)
    begun = [run for run in runs if run.loss is not None]
    speeds = [
        run.steps_per_second for run in runs if run.state == "running" and run.steps_per_second
    ]
    return from_attributes(
        ArmDocument,
        arm,
        recipe=(arm_facts(arm).recipe or arm.recipe) if arm.recipe == UNSTATED else arm.recipe,
        overrides=[phrase(override) for override in arm.overrides],
        steps_done=sum(run.steps_done for run in runs),
        planned_steps=None
        if arm.job.has_evaluations or any(run.planned_steps is None for run in arm.runs)
        else sum(run.length for run in arm.runs),
        loss=begun[-1].loss if begun else None,
        steps_per_second=sum(speeds) if speeds else None,
        eta_seconds=last_end([run.eta_seconds for run in runs]),
        judged_against=arm.judged_against.name if arm.role == "candidate" else None,
        starts_in_seconds=_starts_in(arm, times) if slots else None,
        will_fail=live.sentence if live and live.state == "will_fail" else None,
        live=live,
        runs=runs,
        short_reruns=short_reruns,
    )


def _ends_in(run: Run, times: Mapping[str, tuple[float, float] | None]) -> float | None:
    time = times[run.id]
    return None if time is None else time[1]


def _starts_in(arm: Arm, times: Mapping[str, tuple[float, float] | None]) -> float | None:
    """Seconds until the first run of an arm starts; None where one has, or nobody knows."""
    if any(run.state != "queued" for run in arm.runs):
        return None
    return min((time[0] for run in arm.runs if (time := times[run.id]) is not None), default=None)


def live_state(arm: Arm) -> LiveState | None:
    """The last forecast of a candidate; None before the first look, and for a baseline."""
    look = latest(arm.job, arm.name)
    if look is None:
        return None
    change = last_change(arm.job, arm.name)
    return from_attributes(
        LiveState,
        look,
        sentence=sentence(look),
        trend=look.trend,
        unseen=unseen_words(look),
        changed=change_words(*change) if change else "",
    )


def _named_baseline(session: Session, job: Job) -> NamedDocument | None:
    named = job.named
    if named is None:
        return None
    who = named.events[0].who
    promoted_by = principal_names(session, {who}).get(who, who)
    return from_attributes(
        NamedDocument, named, controls=len(job.controls or ()), promoted_by=promoted_by
    )
