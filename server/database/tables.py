"""The tables. The schema is created by `migrations/` only; a test checks that the two agree.

Times are seconds since 1970 (UTC) as floats, so that lease arithmetic is the same on SQLite and
PostgreSQL. An id begins with a letter for the kind and the time in milliseconds, so that ids sort
by creation (keyset paging).
"""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import Annotated, Any, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from parity.effective_recipe import title, written
from parity.judging.decision import State
from parity.judging.document_types import VerdictDocument
from parity.judging.policy import Policy, policy_from_mapping
from parity.recipes import UNSTATED
from server.database.verdict_digest import check_document
from server.settings import WebhookEvent
from server.stored import reading
from training.later_recipe import LaterRecipe, in_todays_form, later_recipe
from training.overrides import Override, from_document
from training.spec import SPEC_VERSION, labels_of
from training.switches import Rounding

JobStatus = Literal["queued", "running", "concluded", "failed", "cancelled"]
RunState = Literal["awaiting_data", "queued", "running", "finished", "failed", "cancelled"]
AttemptState = Literal["running", "finished", "failed", "cancelled", "crashed", "lost", "released"]
Role = Literal["baseline", "candidate"]
RunKind = Literal["full", "short", "why", "heal", "retired"]
Fact = Literal["recipe", "rounding", "seeds", "planned_steps", "tokens_per_step", "family"]
BaselineRole = Literal["member", "control"]
BaselineEventKind = Literal["promoted", "control", "expired"]
DeliveryState = Literal["pending", "delivered", "failed"]
SubmissionState = Literal["intended", "held", "released", "ended"]
# The names of duties (`Duty`).
READINESS, HOUSEKEEPING, LISTENING, DEPLOYMENT = (
    "readiness",
    "housekeeping",
    "listening",
    "deployment",
)
# The engine of a job whose held-out losses were sent as they are: it has no run.
EVALUATIONS = "evaluations"
# The sender if the server requires no token.
LOCAL_ID, LOCAL_NAME = "local", "this machine"
_STATES = (JobStatus, RunState, AttemptState, DeliveryState, SubmissionState)
_KINDS = (Role, RunKind, Rounding, BaselineRole, BaselineEventKind, WebhookEvent, Fact)

Key = Annotated[str, mapped_column(primary_key=True)]
NumberedKey = Annotated[int, mapped_column(primary_key=True)]
KindKey = Annotated[str, mapped_column(String(32), primary_key=True)]
OfRun = Annotated[str, mapped_column(ForeignKey("runs.id"), primary_key=True)]
OfJob = Annotated[str, mapped_column(ForeignKey("jobs.id"), primary_key=True)]
JobKey = Annotated[str, mapped_column(ForeignKey("jobs.id"), index=True)]
FromZero = Annotated[int, mapped_column(default=0)]
LongText = Annotated[str, mapped_column(Text)]
Sha256 = Annotated[str, mapped_column(String(64))]


def new_id(kind: str) -> str:
    """An identifier such as `j019aa5c1f2e0-8f3c1d2e4b`: kind, milliseconds since 1970, 40 random
    bits.
    """
    return f"{kind}{int(time.time() * 1000):012x}-{secrets.token_hex(5)}"


def is_id(kind: str, text: str) -> bool:
    """Whether a text from a request can be an id of this kind; if not, no query is made."""
    return re.fullmatch(kind + r"[0-9a-f]{12,}-[0-9a-f]{10}", text) is not None


class Base(DeclarativeBase):
    """The base class of all tables."""

    type_annotation_map = dict.fromkeys((*_STATES, *_KINDS), String(32)) | {
        dict[str, Any]: JSON,
        list[str]: JSON,
        int: BigInteger,
        float: Float(53),
        str: String(255),
    }


def table_of(model: type[Base]) -> Table:
    """The table of a model, for statements that the mapper would slow down."""
    return Base.metadata.tables[model.__tablename__]


class Job(Base):
    """A submitted comparison."""

    __tablename__ = "jobs"
    # Whether any open job fits a worker; and a page of the jobs of one status.
    __table_args__ = (
        Index("jobs_by_claim", "capability", "status", "device_class", "threads", "devices"),
        Index("jobs_by_status", "status", "id"),
        # Lists in another order, and jobs of one name, branch or revision, newest first.
        Index("jobs_of_a_name", "name", "id"),
        Index("jobs_by_branch", "branch", "id"),
        Index("jobs_by_revision", "revision", "id"),
        Index("jobs_by_model", "model", "id"),
        Index("jobs_by_end", "finished_at", "id"),
        Index("jobs_by_gap", "worst_gap", "id"),
        # The jobs with one answer; and all that a list filters by text and counts.
        Index("jobs_by_answer", "answer", "id"),
        Index("jobs_as_listed", "id", "status", "answer", "name", "model"),
        # What a gate asks: other jobs on the data at a place, and reruns of a family.
        Index("jobs_by_data", "data_place", "id"),
        Index("jobs_by_family", "reruns_family", "id"),
    )

    id: Mapped[Key]
    name: Mapped[str]
    status: Mapped[JobStatus]
    code: Mapped[str | None]
    message: Mapped[LongText | None]
    engine: Mapped[str]
    capability: Mapped[str]
    spec: Mapped[dict[str, Any]]
    # A worker that reads older versions only leaves its runs to others.
    spec_version: Mapped[int] = mapped_column(default=SPEC_VERSION, server_default="1")
    # Devices that each of its runs trains on together.
    devices: Mapped[int] = mapped_column(default=1, server_default="1")
    policy: Mapped[dict[str, Any]]
    # Of all that decides its verdict and is known before training
    # (`server.jobs.submit.config_hash`): equal hashes, the same comparison.
    config_hash: Mapped[Sha256 | None] = mapped_column(index=True)
    revision: Mapped[str | None]
    # Where its data lie (`server.jobs.data_digests.place_of`); None if they belong to the trainer.
    data_place: Mapped[Sha256 | None]
    # The branch of the code, as the sender states it; and a short name of the model, to find the
    # job by. Under engine command the latter is the launcher, by which workers choose
    # (`server.jobs.submit.model_name`).
    branch: Mapped[str | None]
    model: Mapped[str | None]
    # The largest gap of its candidates as a share of the baseline's loss, to sort by; set when it
    # is judged.
    worst_gap: Mapped[float | None]
    # Its one state, the worst of its candidates' verdicts, and its lead as pages show it; set when
    # it is judged. Jobs from before 0042 have no lead.
    answer: Mapped[State | None] = mapped_column(String(32))
    lead: Mapped[str | None]
    # A run that trains for longer than this, summed over its attempts, is failed; None: the
    # operator's limit.
    max_run_seconds: Mapped[float | None]
    # The live forecast: `pairs` by the candidate's run, and the looks at each candidate in `arms`,
    # by its name.
    early_stop: Mapped[dict[str, Any] | None]
    # Device class and thread count of all runs of the job; set when the first run starts to train.
    device_class: Mapped[str | None]
    threads: Mapped[int | None]
    # Whether the baseline arm may reuse the curve of an equal earlier run.
    reuse: Mapped[bool] = mapped_column(default=True)
    # The promoted baseline that the job names, and the ids of its reruns that the judge gets; fixed
    # at submission.
    baseline_id: Mapped[str | None] = mapped_column(ForeignKey("baselines.id"), index=True)
    controls: Mapped[list[str] | None]
    # The groups of reruns (CSV) from which its verdicts borrow their run-to-run noise; set at
    # submission if it names a family, else when judged.
    noise_table: Mapped[LongText | None]
    # The groups of its own reruns (CSV), from which later jobs borrow, and the family of all of
    # them; set when it is judged.
    reruns: Mapped[LongText | None]
    reruns_family: Mapped[str | None]
    event_sequence: Mapped[FromZero]
    # Who asked for it in a gate, and which groups, such as pull requests, wait for it
    # (`server.jobs.lifecycle`).
    gate_groups: Mapped[list[str] | None]
    # The process that judges the job, until when (unix seconds); nobody else judges it meanwhile.
    judging_by: Mapped[str | None]
    judging_until: Mapped[float | None]
    # How often it could not be judged for a reason that may pass, and until when (unix seconds)
    # nobody tries again.
    judge_tries: Mapped[int] = mapped_column(default=0, server_default="0")
    judge_after: Mapped[float | None]
    # Whether it takes further arms and runs (`server.jobs.projects`); it is not judged before its
    # owner says so.
    is_open: Mapped[bool] = mapped_column(default=False, server_default=false())
    # How many of a project's runs had finished when it was last judged; None for a job that never
    # was a project.
    looked_at: Mapped[int | None]
    # Which look at its question the job is, and how many candidates share the error; None if nobody
    # counts its looks.
    look: Mapped[int | None]
    look_candidates: Mapped[int | None]
    submitted_by: Mapped[str | None]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]

    arms: Mapped[list[Arm]] = relationship(order_by="Arm.position", back_populates="job")
    runs: Mapped[list[Run]] = relationship(order_by="Run.position", back_populates="job")
    verdicts: Mapped[list[Verdict]] = relationship(order_by="Verdict.id", back_populates="job")
    named: Mapped[Baseline | None] = relationship()
    tags: Mapped[list[JobTag]] = relationship(order_by="JobTag.tag", cascade="all, delete-orphan")
    notes: Mapped[list[JobNote]] = relationship(order_by="JobNote.id")
    sign_offs: Mapped[list[SignOff]] = relationship(order_by="SignOff.id")
    statements: Mapped[list[Statement]] = relationship(
        order_by="Statement.created_at, Statement.id"
    )

    @property
    def planned_steps(self) -> int | None:
        """The steps of its full runs; None where those are a user's own, and nobody has stated the
        steps.
        """
        steps: int | None = self.spec.get("schedule", {}).get("steps")
        if steps is not None:
            return steps
        return next(
            (statement.value for statement in self.statements if statement.fact == "planned_steps"),
            None,
        )

    @property
    def is_judged(self) -> bool:
        """Whether the judge compares its arms; a job of the lab (`server.jobs.job_kinds`) has
        nothing for it.
        """
        return self.has_evaluations or any(arm.runs for arm in self.arms)

    @property
    def has_evaluations(self) -> bool:
        """Whether its arms have held-out losses (`EvaluationBundle`) in place of runs."""
        return self.engine == EVALUATIONS

    def read_policy(self) -> Policy:
        """The policy that its verdicts follow. Raises StoredFormError if this version cannot read
        it.
        """
        with reading(f"job {self.id}: its policy"):
            return policy_from_mapping(self.policy)


class Arm(Base):
    """The baseline of a job, or one of its candidates. `runs` are those that the judge compares;
    `short_reruns` only measure run-to-run noise.
    """

    __tablename__ = "arms"
    __table_args__ = (
        UniqueConstraint("job_id", "name"),
        Index("arms_by_recipe", "recipe", "role", "job_id"),
    )

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    position: Mapped[int]
    name: Mapped[str]
    role: Mapped[Role]
    recipe: Mapped[str]
    # SHA-256 of the question that the verdict on this candidate answers (`server.jobs.ledger`).
    question: Mapped[Sha256 | None] = mapped_column(index=True)
    # What all ways to ask it share, whatever the engine, the word for it and the revision are: 32
    # digits, None before there was this.
    asked: Mapped[str | None] = mapped_column(String(32), index=True)

    job: Mapped[Job] = relationship(back_populates="arms")
    runs: Mapped[list[Run]] = relationship(
        order_by="Run.position",
        back_populates="arm",
        primaryjoin="and_(Run.arm_id == Arm.id, Run.kind == 'full')",
    )
    short_reruns: Mapped[list[Run]] = relationship(
        order_by="Run.position",
        viewonly=True,
        primaryjoin="and_(Run.arm_id == Arm.id, Run.kind == 'short')",
    )

    @property
    def overrides(self) -> list[Override]:
        """The arm's rules for single blocks, projections and GEMMs."""
        with reading(f"job {self.job_id}, arm {self.name}: overrides"):
            return [from_document(document) for document in self.requested.get("overrides", ())]

    @property
    def then(self) -> LaterRecipe | None:
        """The recipe of the rest of its runs."""
        with reading(f"job {self.job_id}, arm {self.name}: its later recipe"):
            return later_recipe(self.requested.get("then"))

    @property
    def stated_recipe(self) -> str | None:
        """What the arm does from which step on, with its switches and overrides
        (`parity.effective_recipe`); None where nobody has stated its recipe.
        """
        if self.recipe == UNSTATED:
            return None
        with reading(f"job {self.job_id}, arm {self.name}: its recipe"):
            return written(labels_of(self.job.spec, self.requested))

    @property
    def title(self) -> str:
        """The arm's name with what it does, where the name does not say that."""
        return title(self.name, self.stated_recipe)

    @property
    def judged_against(self) -> Arm:
        """The arm that a candidate is judged against: the baseline, but under engine command maybe
        another candidate.
        """
        named = self.requested.get("against")
        return next((arm for arm in self.job.arms if arm.name == named), self.job.arms[0])

    @property
    def last_change(self) -> int:
        """The 0-based step from which the arm's arithmetic stays as it is; 0 if it never
        changes.
        """
        return max(
            (
                0 if self.then is None else self.then.from_step,
                *(override.from_step or 0 for override in self.overrides),
            )
        )

    @property
    def requested(self) -> dict[str, Any]:
        """The arm in the job's specification."""
        spec = self.job.spec
        return in_todays_form([spec["baseline"], *spec["candidates"]][self.position])


class Run(Base):
    """One training run. `attempt_number` counts its attempts and fences the writers of earlier
    ones; `crashes` counts failed attempts.

    A run of `kind` short stops after `planned_steps`, before the end of its schedule: it measures
    run-to-run noise and is never judged. A run of `kind` why, which has no curve, measures what
    starts from the run `forked_from`; its steps are the cost of its measurements
    (`server.jobs.job_kinds`). A run of `kind` heal goes on from the checkpoint that the run
    `forked_from` kept of the step at which its arm changes its recipe; its curve begins there. One
    of `kind` retired measured for a question that this version does
    not ask; it has ended, and is never judged.
    """

    __tablename__ = "runs"
    # The whole order in which workers claim them: with it a claim sorts nothing, whatever the
    # database knows of its tables.
    __table_args__ = (
        Index(
            "runs_by_claim", "state", "capability", "priority", "created_at", "job_id", "position"
        ),
    )

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    arm_id: Mapped[str] = mapped_column(ForeignKey("arms.id"), index=True)
    position: Mapped[int]
    seed: Mapped[int]
    replicate: Mapped[int]
    kind: Mapped[RunKind] = mapped_column(default="full", server_default="full")
    capability: Mapped[str]
    priority: Mapped[FromZero]
    state: Mapped[RunState]
    code: Mapped[str | None]
    message: Mapped[LongText | None]
    attempt_number: Mapped[FromZero]
    crashes: Mapped[FromZero]
    worker_id: Mapped[str | None]
    lease_expires_at: Mapped[float | None]
    fingerprint: Mapped[str | None] = mapped_column(index=True)
    manifest: Mapped[dict[str, Any] | None]
    # "stochastic" or "nearest", from the trainer; None if it was not recorded.
    rounding: Mapped[Rounding | None]
    # The run whose curve this run reuses; that run was trained itself.
    reused_from: Mapped[str | None] = mapped_column(ForeignKey("runs.id"), index=True)
    forked_from: Mapped[str | None] = mapped_column(ForeignKey("runs.id"), index=True)
    # The numbers of steps after which a checkpoint of the run is kept.
    kept_checkpoints: Mapped[list[int] | None] = mapped_column(JSON)
    # None: an external run of which nobody has stated how long it is meant to be.
    planned_steps: Mapped[int | None]
    steps_done: Mapped[FromZero]
    last_loss: Mapped[str | None] = mapped_column(String(32))
    steps_per_second: Mapped[float | None]
    # When the newest training steps were recorded; open pages follow it.
    recorded_at: Mapped[float | None]
    # Of a project's run: the trainers' names for the requests that asked for it, and whether one
    # stated its seed.
    asked_by: Mapped[list[str] | None]
    has_seed: Mapped[bool | None]
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None] = mapped_column(index=True)

    @property
    def stated_seed(self) -> int | None:
        """Its seed; None where nobody has stated that of a user's own run, so that its batches show
        its pair.
        """
        is_stated = "seed" in self.job.spec if self.has_seed is None else self.has_seed
        return self.seed if is_stated else None

    @property
    def is_added(self) -> bool:
        """Whether it was added to a job after that was submitted, of which each run has the job's
        own time; a project has no plan.
        """
        return (
            self.kind == "full"
            and self.job.looked_at is None
            and self.created_at != self.job.created_at
        )

    @property
    def first_step(self) -> int:
        """The step at which it starts: 0, or where a fork goes on from its parent."""
        return 0 if self.kind != "heal" or self.arm.then is None else self.arm.then.from_step

    @property
    def length(self) -> int:
        """Its planned steps; of a user's own run of which nobody stated them, those that it has
        taken.
        """
        if self.planned_steps is None:
            return self.steps_done
        return self.planned_steps

    job: Mapped[Job] = relationship(back_populates="runs")
    arm: Mapped[Arm] = relationship(back_populates="runs")
    source: Mapped[Run | None] = relationship(remote_side="Run.id", foreign_keys=reused_from)


class Attempt(Base):
    """One claim of a run; they are numbered from 1. Attempts are never deleted, so every crash and
    resume can be read later.
    """

    __tablename__ = "attempts"

    run_id: Mapped[OfRun]
    attempt_number: Mapped[NumberedKey]
    state: Mapped[AttemptState]
    code: Mapped[str | None]
    message: Mapped[LongText | None]
    worker_id: Mapped[str | None]
    first_step: Mapped[int | None]
    fingerprint: Mapped[str | None]
    # The idempotency key of an external trainer's attach, so that it can repeat one whose response
    # was lost.
    key: Mapped[str | None]
    # SHA-256 of the secret of the run's token, which its trainer (or worker) sends with every write
    # of this attempt.
    token_digest: Mapped[Sha256 | None]
    started_at: Mapped[float]
    ended_at: Mapped[float | None]


class Submission(Base):
    """A job of a scheduler (Slurm, Kubernetes) that trains a run; a run has one open submission at
    the most, and they are numbered from 1.

    It moves from `intended` (before the scheduler is asked) to `held` (it has the job), `released`
    (the job may start) and `ended`; whoever claims the run goes on from there. The scheduler knows
    the job by `key`, which is written before it is asked.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        Index(
            "submissions_open",
            "run_id",
            unique=True,
            sqlite_where=text("state <> 'ended'"),
            postgresql_where=text("state <> 'ended'"),
        ),
    )

    run_id: Mapped[OfRun]
    number: Mapped[NumberedKey]
    # The attempt that began with the newest start of the job: what it and later ones recorded came
    # from that start.
    attempt_number: Mapped[int]
    key: Mapped[str] = mapped_column(String(63), unique=True)
    scheduler: Mapped[str] = mapped_column(String(32))
    scheduler_id: Mapped[str | None]
    launcher: Mapped[str]
    launcher_digest: Mapped[str]
    # What the launcher said then (`workers.submitting`): a job that is submitted goes on under it,
    # whatever the file says later.
    plan: Mapped[dict[str, Any]]
    # Where the job's script is and its trainer writes, on storage that the worker and the nodes
    # share.
    folder: Mapped[LongText]
    state: Mapped[SubmissionState]
    # What the scheduler last said of it, such as `PENDING (Resources)`.
    reason: Mapped[LongText | None]
    exit_status: Mapped[int | None]
    # How often the scheduler has restarted it; None before its first start.
    start: Mapped[int | None]
    created_at: Mapped[float]
    # Of the newest start, by the node's clock; and the seconds that earlier ones took.
    started_at: Mapped[float | None]
    earlier_seconds: Mapped[float] = mapped_column(default=0.0)
    ended_at: Mapped[float | None]


class Chunk(Base):
    """Consecutive records of one run, by columns; `kind` is for example `train` or `validation`.

    `payload` has the values of a small chunk: its columns one after another, as `codec.encode`
    writes them, without `step` if the steps are at equal distances. It is None where `ChunkColumn`
    has them.
    """

    __tablename__ = "chunks"

    run_id: Mapped[OfRun]
    kind: Mapped[KindKey]
    attempt_number: Mapped[NumberedKey]
    first_step: Mapped[NumberedKey]
    last_step: Mapped[int]
    count: Mapped[int]
    columns: Mapped[list[str]]
    payload: Mapped[bytes | None]
    # Of all the others (`server.database.metrics.checksums`); None if it was written before there
    # were checksums.
    checksum: Mapped[int | None]


class ChunkColumn(Base):
    """One column of a large chunk, as `codec.encode` writes it: a reader of one column touches no
    other.
    """

    __tablename__ = "chunk_columns"
    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "kind", "attempt_number", "first_step"],
            ["chunks.run_id", "chunks.kind", "chunks.attempt_number", "chunks.first_step"],
            ondelete="CASCADE",
        ),
    )

    run_id: Mapped[Key]
    kind: Mapped[KindKey]
    attempt_number: Mapped[NumberedKey]
    first_step: Mapped[NumberedKey]
    name: Mapped[Key]
    payload: Mapped[bytes]
    checksum: Mapped[int | None]


class EvaluationBundle(Base):
    """What a job of engine evaluations compares: the held-out losses of all arms and the question,
    as an evidence bundle without a verdict (`server.jobs.evaluations`).
    """

    __tablename__ = "evaluation_bundles"

    job_id: Mapped[OfJob]
    bundle: Mapped[bytes]
    sha256: Mapped[Sha256]


class Verdict(Base):
    """The judge's verdict on one candidate; `document` is its canonical JSON, byte for byte.

    The columns after it repeat what lists show (nats; `gap_rel` is the gap as a share of the
    baseline's loss), so that a list reads no document. None: not measured, or not finite.
    """

    __tablename__ = "verdicts"
    __table_args__ = (
        UniqueConstraint("job_id", "candidate"),
        Index("verdicts_by_outcome", "outcome", "job_id"),
    )

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    candidate: Mapped[str]
    outcome: Mapped[State] = mapped_column(String(255))
    document: Mapped[LongText]
    code: Mapped[str | None]
    gap: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    margin: Mapped[float | None]
    gap_rel: Mapped[float | None]
    # Its path as JSON (`parity.judging.verdict.path`), which no list reads; None where none was
    # computed. No part of the document.
    path: Mapped[LongText | None] = mapped_column(deferred=True)
    # Its lead (`parity.report.words`), which lists show; None for a verdict of before leads were
    # stored. No part of the document either.
    lead: Mapped[LongText | None]
    # `server.database.verdict_digest`
    document_sha256: Mapped[Sha256 | None]
    columns_sha256: Mapped[Sha256 | None]
    created_at: Mapped[float]

    job: Mapped[Job] = relationship(back_populates="verdicts")

    def read_document(self) -> VerdictDocument:
        """The judge's document, of runs in training or of evaluations. Raises DamagedError unless
        it is as the judge wrote it.
        """
        check_document(self)
        document: VerdictDocument = json.loads(self.document)
        return document

    def read_outcome(self) -> State:
        """What the judge answered. Raises DamagedError unless it is as the judge wrote it: a fail
        that was rewritten must not stop to stand.
        """
        check_document(self)
        return self.outcome


class JobTag(Base):
    """A word that a job is found by; its owner may change it."""

    __tablename__ = "job_tags"
    __table_args__ = (Index("job_tags_by_tag", "tag", "job_id"),)

    job_id: Mapped[OfJob]
    tag: Mapped[str] = mapped_column(String(64), primary_key=True)


class JobNote(Base):
    """What a person wrote about a job (`who` is the id of a principal). Rows are only added, never
    changed.
    """

    __tablename__ = "job_notes"

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    who: Mapped[str]
    text: Mapped[LongText]
    created_at: Mapped[float]


class NewQuestion(Base):
    """An operator's word that the question of a job may be asked again from `created_at` on (`who`
    is the id of a principal).

    Rows are only added.
    """

    __tablename__ = "new_questions"

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    who: Mapped[str]
    reason: Mapped[LongText]
    created_at: Mapped[float]


class SignOff(Base):
    """A person's acceptance of one inconclusive verdict, until `expires_at`. Rows are only added;
    revoking fills the last three columns.

    It holds for the verdict document and the policy with these SHA-256 only
    (`parity.judging.verdict.sign_offs`). `who` and `revoked_by` are ids of principals.
    """

    __tablename__ = "sign_offs"

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    candidate: Mapped[str]
    verdict_sha256: Mapped[Sha256]
    policy_sha256: Mapped[Sha256]
    who: Mapped[str]
    reason: Mapped[LongText]
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]
    revoked_by: Mapped[str | None]
    revoke_reason: Mapped[LongText | None]


class Statement(Base):
    """A fact of external runs that was on no record until the job's owner stated it: each once, and
    rows are only added.

    `arm` is empty for a fact of the whole job. `who` is the id of a principal. `is_late`: the job
    had ended by then; `is_informed`: it could be judged, as each arm had a finished run.
    """

    __tablename__ = "statements"
    __table_args__ = (UniqueConstraint("job_id", "fact", "arm"),)

    id: Mapped[Key]
    job_id: Mapped[JobKey]
    fact: Mapped[Fact]
    arm: Mapped[str] = mapped_column(String(64))
    value: Mapped[Any] = mapped_column(JSON)
    who: Mapped[str]
    is_late: Mapped[bool]
    is_informed: Mapped[bool]
    created_at: Mapped[float]


class Baseline(Base):
    """A version of a named baseline. Its runs and specification never change; only its expiry can
    be moved forward.
    """

    __tablename__ = "baselines"
    __table_args__ = (UniqueConstraint("name", "version"),)

    id: Mapped[Key]
    name: Mapped[str]
    version: Mapped[int]
    recipe: Mapped[str]
    engine: Mapped[str]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    # The principal that promoted it; only they, or a token of scope approve or admin, change what
    # the name means.
    owner: Mapped[str | None]

    runs: Mapped[list[BaselineRun]] = relationship(
        order_by="BaselineRun.run_id", back_populates="baseline"
    )
    events: Mapped[list[BaselineEvent]] = relationship(
        order_by="BaselineEvent.id", back_populates="baseline"
    )


class BaselineRun(Base):
    """A run of a baseline: a `member`, whose curve jobs reuse, or a `control`, a rerun that
    measures how much reruns differ.
    """

    __tablename__ = "baseline_runs"

    baseline_id: Mapped[str] = mapped_column(ForeignKey("baselines.id"), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True, index=True)
    role: Mapped[BaselineRole]

    baseline: Mapped[Baseline] = relationship(back_populates="runs")
    run: Mapped[Run] = relationship()


class BaselineEvent(Base):
    """A change to a baseline: what, by whom (the id of a token) and why. Rows are only added, never
    changed.
    """

    __tablename__ = "baseline_events"

    id: Mapped[Key]
    baseline_id: Mapped[str] = mapped_column(ForeignKey("baselines.id"), index=True)
    kind: Mapped[BaselineEventKind]
    who: Mapped[str]
    reason: Mapped[LongText]
    detail: Mapped[LongText]
    created_at: Mapped[float]

    baseline: Mapped[Baseline] = relationship(back_populates="events")


class Golden(Base):
    """A version of a golden: the curve of a run that later runs of its recipe are judged by, as the
    text of a golden's file, and why it was taken. Rows are only added; removing one fills the last
    three columns.

    `answer` and `gap_pct` are those of its check by the version before; None for a first one.
    `sha256` is the digest of all columns before it (`server.jobs.goldens`).
    """

    __tablename__ = "goldens"
    __table_args__ = (UniqueConstraint("name", "version"),)

    id: Mapped[Key]
    name: Mapped[str]
    version: Mapped[int]
    recipe: Mapped[str]
    text: Mapped[LongText] = mapped_column(deferred=True)
    steps: Mapped[int]
    answer: Mapped[str | None]
    gap_pct: Mapped[float]
    accepted: Mapped[bool]
    reason: Mapped[LongText]
    # The principal that took it; only they, or a token of scope approve or admin, change what the
    # name means.
    owner: Mapped[str | None]
    created_at: Mapped[float]
    sha256: Mapped[Sha256]
    removed_at: Mapped[float | None]
    removed_by: Mapped[str | None]
    remove_reason: Mapped[LongText | None]


class ImportedGroup(Base):
    """A group of reruns from a table that was imported: `cells` is its row as text, `imported_by`
    the id of a token.

    Rows are only added, never changed.
    """

    __tablename__ = "imported_groups"

    family: Mapped[Key]
    name: Mapped[Key]
    cells: Mapped[dict[str, Any]]
    imported_by: Mapped[str]
    imported_at: Mapped[float]


class DataRead(Base):
    """What a worker last read at a place: the digest of the data, and the run that it was read for.

    Workers alone write it: what a run states that nobody here trained, or whose curve was reused,
    says nothing about the data there now. `place` is the SHA-256 of a source and a path
    (`server.jobs.workers`).
    """

    __tablename__ = "data_reads"

    place: Mapped[Sha256] = mapped_column(primary_key=True)
    digest: Mapped[str]
    run_id: Mapped[str]


class Worker(Base):
    """A worker: its device, what it can train, and the time of its last heartbeat."""

    __tablename__ = "workers"

    id: Mapped[Key]
    name: Mapped[str]
    capability: Mapped[str]
    slots: Mapped[int]
    device: Mapped[dict[str, Any]]
    started_at: Mapped[float]
    heartbeat_at: Mapped[float]


class Duty(Base):
    """What one process at a time does for all: who does it, until when (unix seconds).

    Three rows are nobody's. Readiness checks write `readiness` to see whether the database can be
    written; `expires_at` of `listening` is until when an API process has listened to trainers
    (`server.jobs.external`); `holder` of `deployment` names this record to schedulers.
    """

    __tablename__ = "duties"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    holder: Mapped[str] = mapped_column(default="")
    expires_at: Mapped[float] = mapped_column(default=0.0)


class Event(Base):
    """An event of a job, numbered without gaps under the job row's lock; the number is the
    SSE id.
    """

    __tablename__ = "events"

    job_id: Mapped[OfJob]
    sequence: Mapped[NumberedKey]
    kind: Mapped[str] = mapped_column(String(32))
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[float]


class Token(Base):
    """A bearer token: the secret itself is shown once and never stored, only its SHA-256."""

    __tablename__ = "tokens"

    id: Mapped[Key]
    # Whose token it is: the id of the first token of this owner. Jobs belong to a principal, so a
    # rotated token keeps them.
    principal: Mapped[str]
    name: Mapped[str]
    digest: Mapped[Sha256]
    scopes: Mapped[list[str]]
    # Largest number of runs submitted under this token that train at once; None: no limit.
    max_running: Mapped[int | None]
    # The repository whose gates it asks, for which the operator has pinned rules
    # (`server.jobs.pinned_gates`).
    repository: Mapped[str | None]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    revoked_at: Mapped[float | None]


class BrowserSession(Base):
    """A dashboard login: a cookie in place of a token; only the cookie's SHA-256 is stored."""

    __tablename__ = "browser_sessions"

    digest: Mapped[Sha256] = mapped_column(primary_key=True)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), index=True)
    expires_at: Mapped[float]


class IdempotencyKey(Base):
    """The key of a submission: the same key and body return the same job, another body is an
    error.
    """

    __tablename__ = "idempotency_keys"

    principal: Mapped[Key]
    key: Mapped[Key]
    body_digest: Mapped[Sha256]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[float]


class Webhook(Base):
    """Which events a webhook of the settings receives: for workers, which know neither its URL nor
    its secret.
    """

    __tablename__ = "webhooks"

    id: Mapped[Key]
    events: Mapped[list[str]]


class WebhookDelivery(Base):
    """An event to be sent to one webhook; written in the event's own transaction."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index("webhook_deliveries_by_due", "state", "next_attempt_at"),)

    id: Mapped[Key]
    # No foreign key: a webhook may leave the settings while an event is written.
    webhook_id: Mapped[str]
    kind: Mapped[WebhookEvent]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    state: Mapped[DeliveryState] = mapped_column(default="pending")
    attempts: Mapped[FromZero]
    # The HTTP status of the newest answer, and why the newest attempt failed.
    status: Mapped[int | None]
    message: Mapped[LongText | None]
    created_at: Mapped[float]
    attempted_at: Mapped[float | None]
    next_attempt_at: Mapped[float]

    job: Mapped[Job] = relationship()
