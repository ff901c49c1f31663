"""The record: all tables of the first release, the duties that one process at a time has, and the
name of this deployment.

Revision ID: 0045
Revises:
"""

import secrets
from functools import partial

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = None
branch_labels = None
depends_on = None

DUTIES = ("housekeeping", "listening", "readiness")
DEPLOYMENT = "deployment"
IS_OPEN = sa.text("state <> 'ended'")
TEXT_255, TEXT_64, TEXT_32 = sa.String(length=255), sa.String(length=64), sa.String(length=32)
TEXT, INTEGER, REAL, JSON, BYTES = (
    sa.Text(),
    sa.BigInteger(),
    sa.Float(precision=53),
    sa.JSON(),
    sa.LargeBinary(),
)
column, optional, key = (
    partial(sa.Column, nullable=False),
    partial(sa.Column, nullable=True),
    partial(sa.Column, primary_key=True),
)


def reference(
    name: str, to: str, *, nullable: bool = False, primary_key: bool = False, index: bool = False
) -> sa.Column[str]:
    return sa.Column(
        name, TEXT_255, sa.ForeignKey(to), nullable=nullable, primary_key=primary_key, index=index
    )


def upgrade() -> None:
    op.create_table(
        "baselines",
        key("id", TEXT_255),
        column("name", TEXT_255),
        column("version", INTEGER),
        column("recipe", TEXT_255),
        column("engine", TEXT_255),
        column("created_at", REAL),
        optional("expires_at", REAL),
        optional("owner", TEXT_255),
        sa.UniqueConstraint("name", "version"),
    )
    op.create_table(
        "data_reads",
        key("place", TEXT_64),
        column("digest", TEXT_255),
        column("run_id", TEXT_255),
    )
    op.create_table(
        "duties",
        key("name", TEXT_32),
        column("holder", sa.String()),
        column("expires_at", REAL),
    )
    op.create_table(
        "goldens",
        key("id", TEXT_255),
        column("name", TEXT_255),
        column("version", INTEGER),
        column("recipe", TEXT_255),
        column("text", TEXT),
        column("steps", INTEGER),
        optional("answer", TEXT_255),
        column("gap_pct", REAL),
        column("accepted", sa.Boolean()),
        column("reason", TEXT),
        optional("owner", TEXT_255),
        column("created_at", REAL),
        column("sha256", TEXT_64),
        optional("removed_at", REAL),
        optional("removed_by", TEXT_255),
        optional("remove_reason", TEXT),
        sa.UniqueConstraint("name", "version"),
    )
    op.create_table(
        "imported_groups",
        key("family", TEXT_255),
        key("name", TEXT_255),
        column("cells", JSON),
        column("imported_by", TEXT_255),
        column("imported_at", REAL),
    )
    op.create_table(
        "tokens",
        key("id", TEXT_255),
        column("principal", TEXT_255),
        column("name", TEXT_255),
        column("digest", TEXT_64),
        column("scopes", JSON),
        optional("max_running", INTEGER),
        column("created_at", REAL),
        optional("expires_at", REAL),
        optional("last_used_at", REAL),
        optional("revoked_at", REAL),
        optional("repository", TEXT_255),
    )
    op.create_table(
        "webhooks",
        key("id", TEXT_255),
        column("events", JSON),
    )
    op.create_table(
        "workers",
        key("id", TEXT_255),
        column("name", TEXT_255),
        column("capability", TEXT_255),
        column("slots", INTEGER),
        column("device", JSON),
        column("started_at", REAL),
        column("heartbeat_at", REAL),
    )
    op.create_table(
        "baseline_events",
        key("id", TEXT_255),
        reference("baseline_id", "baselines.id", index=True),
        column("kind", TEXT_32),
        column("who", TEXT_255),
        column("reason", TEXT),
        column("detail", TEXT),
        column("created_at", REAL),
    )
    op.create_table(
        "browser_sessions",
        key("digest", TEXT_64),
        reference("token_id", "tokens.id", index=True),
        column("expires_at", REAL),
    )
    op.create_table(
        "jobs",
        key("id", TEXT_255),
        column("name", TEXT_255),
        column("status", TEXT_32),
        optional("code", TEXT_255),
        optional("message", TEXT),
        column("engine", TEXT_255),
        column("capability", TEXT_255),
        column("spec", JSON),
        column("devices", INTEGER, server_default="1"),
        column("policy", JSON),
        optional("config_hash", TEXT_64, index=True),
        optional("revision", TEXT_255),
        optional("data_place", TEXT_64),
        optional("branch", TEXT_255),
        optional("model", TEXT_255),
        optional("worst_gap", REAL),
        optional("max_run_seconds", REAL),
        optional("early_stop", JSON),
        optional("device_class", TEXT_255),
        optional("threads", INTEGER),
        column("reuse", sa.Boolean(), server_default=sa.true()),
        reference("baseline_id", "baselines.id", nullable=True, index=True),
        optional("controls", JSON),
        optional("noise_table", TEXT),
        optional("reruns", TEXT),
        optional("reruns_family", TEXT_255),
        column("event_sequence", INTEGER),
        optional("gate_groups", JSON),
        optional("judging_by", TEXT_255),
        optional("judging_until", REAL),
        optional("look", INTEGER),
        optional("look_candidates", INTEGER),
        optional("submitted_by", TEXT_255),
        column("created_at", REAL),
        optional("started_at", REAL),
        optional("finished_at", REAL),
        optional("looked_at", INTEGER),
        column("is_open", sa.Boolean(), server_default=sa.false()),
        optional("answer", TEXT_32),
        column("judge_tries", INTEGER, server_default="0"),
        optional("judge_after", REAL),
        column("spec_version", INTEGER, server_default="1"),
        optional("lead", TEXT_255),
        sa.Index("jobs_as_listed", "id", "status", "answer", "name", "model"),
        sa.Index("jobs_by_answer", "answer", "id"),
        sa.Index("jobs_by_branch", "branch", "id"),
        sa.Index("jobs_by_claim", "capability", "status", "device_class", "threads", "devices"),
        sa.Index("jobs_by_data", "data_place", "id"),
        sa.Index("jobs_by_end", "finished_at", "id"),
        sa.Index("jobs_by_family", "reruns_family", "id"),
        sa.Index("jobs_by_gap", "worst_gap", "id"),
        sa.Index("jobs_by_model", "model", "id"),
        sa.Index("jobs_by_revision", "revision", "id"),
        sa.Index("jobs_by_status", "status", "id"),
        sa.Index("jobs_of_a_name", "name", "id"),
    )
    op.create_table(
        "analyses",
        reference("job_id", "jobs.id", primary_key=True),
        reference("explains", "jobs.id", index=True),
        column("candidate", TEXT_255),
        column("against", TEXT_32),
        column("setup", JSON),
        optional("answer", JSON),
    )
    op.create_table(
        "arms",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("position", INTEGER),
        column("name", TEXT_255),
        column("role", TEXT_32),
        column("recipe", TEXT_255),
        optional("question", TEXT_64, index=True),
        optional("asked", TEXT_32, index=True),
        sa.UniqueConstraint("job_id", "name"),
        sa.Index("arms_by_recipe", "recipe", "role", "job_id"),
    )
    op.create_table(
        "evaluation_bundles",
        reference("job_id", "jobs.id", primary_key=True),
        column("bundle", BYTES),
        column("sha256", TEXT_64),
    )
    op.create_table(
        "events",
        reference("job_id", "jobs.id", primary_key=True),
        key("sequence", INTEGER),
        column("kind", TEXT_32),
        column("payload", JSON),
        column("created_at", REAL),
    )
    op.create_table(
        "healings",
        reference("job_id", "jobs.id", primary_key=True),
        reference("heals", "jobs.id", index=True),
        column("candidate", TEXT_255),
        column("setup", JSON),
        optional("answer", JSON),
    )
    op.create_table(
        "idempotency_keys",
        key("principal", TEXT_255),
        key("key", TEXT_255),
        column("body_digest", TEXT_64),
        reference("job_id", "jobs.id"),
        column("created_at", REAL),
    )
    op.create_table(
        "job_notes",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("who", TEXT_255),
        column("text", TEXT),
        column("created_at", REAL),
    )
    op.create_table(
        "job_tags",
        reference("job_id", "jobs.id", primary_key=True),
        key("tag", TEXT_64),
        sa.Index("job_tags_by_tag", "tag", "job_id"),
    )
    op.create_table(
        "new_questions",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("who", TEXT_255),
        column("reason", TEXT),
        column("created_at", REAL),
    )
    op.create_table(
        "sign_offs",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("candidate", TEXT_255),
        column("verdict_sha256", TEXT_64),
        column("policy_sha256", TEXT_64),
        column("who", TEXT_255),
        column("reason", TEXT),
        column("created_at", REAL),
        column("expires_at", REAL),
        optional("revoked_at", REAL),
        optional("revoked_by", TEXT_255),
        optional("revoke_reason", TEXT),
    )
    op.create_table(
        "statements",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("fact", TEXT_32),
        column("arm", TEXT_64),
        column("value", JSON),
        column("who", TEXT_255),
        column("is_late", sa.Boolean()),
        column("is_informed", sa.Boolean()),
        column("created_at", REAL),
        sa.UniqueConstraint("job_id", "fact", "arm"),
    )
    op.create_table(
        "verdicts",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        column("candidate", TEXT_255),
        column("outcome", TEXT_255),
        column("document", TEXT),
        optional("code", TEXT_255),
        optional("gap", REAL),
        optional("ci_low", REAL),
        optional("ci_high", REAL),
        optional("margin", REAL),
        optional("gap_rel", REAL),
        column("created_at", REAL),
        optional("path", TEXT),
        optional("lead", TEXT),
        optional("document_sha256", TEXT_64),
        optional("columns_sha256", TEXT_64),
        sa.UniqueConstraint("job_id", "candidate"),
        sa.Index("verdicts_by_outcome", "outcome", "job_id"),
    )
    op.create_table(
        "webhook_deliveries",
        key("id", TEXT_255),
        column("webhook_id", TEXT_255),
        column("kind", TEXT_32),
        column("state", TEXT_32),
        column("attempts", INTEGER),
        optional("status", INTEGER),
        optional("message", TEXT),
        column("created_at", REAL),
        optional("attempted_at", REAL),
        column("next_attempt_at", REAL),
        reference("job_id", "jobs.id"),
        sa.Index("webhook_deliveries_by_due", "state", "next_attempt_at"),
    )
    op.create_table(
        "runs",
        key("id", TEXT_255),
        reference("job_id", "jobs.id", index=True),
        reference("arm_id", "arms.id", index=True),
        column("position", INTEGER),
        column("seed", INTEGER),
        column("replicate", INTEGER),
        column("kind", TEXT_32, server_default="full"),
        column("capability", TEXT_255),
        column("priority", INTEGER),
        column("state", TEXT_32),
        optional("code", TEXT_255),
        optional("message", TEXT),
        column("attempt_number", INTEGER),
        column("crashes", INTEGER),
        optional("worker_id", TEXT_255),
        optional("lease_expires_at", REAL),
        optional("fingerprint", TEXT_255, index=True),
        optional("manifest", JSON),
        optional("rounding", TEXT_32),
        reference("reused_from", "runs.id", nullable=True, index=True),
        reference("forked_from", "runs.id", nullable=True, index=True),
        optional("kept_checkpoints", JSON),
        optional("planned_steps", INTEGER),
        column("steps_done", INTEGER),
        optional("last_loss", TEXT_32),
        optional("steps_per_second", REAL),
        optional("recorded_at", REAL),
        column("created_at", REAL),
        optional("started_at", REAL),
        optional("finished_at", REAL, index=True),
        optional("asked_by", JSON),
        optional("has_seed", sa.Boolean()),
        sa.Index(
            "runs_by_claim", "state", "capability", "priority", "created_at", "job_id", "position"
        ),
    )
    op.create_table(
        "analysis_results",
        reference("run_id", "runs.id", primary_key=True),
        key("key", TEXT_255),
        column("value", JSON),
    )
    op.create_table(
        "attempts",
        reference("run_id", "runs.id", primary_key=True),
        key("attempt_number", INTEGER),
        column("state", TEXT_32),
        optional("code", TEXT_255),
        optional("message", TEXT),
        optional("worker_id", TEXT_255),
        optional("first_step", INTEGER),
        optional("fingerprint", TEXT_255),
        optional("key", TEXT_255),
        optional("token_digest", TEXT_64),
        column("started_at", REAL),
        optional("ended_at", REAL),
    )
    op.create_table(
        "baseline_runs",
        reference("baseline_id", "baselines.id", primary_key=True),
        reference("run_id", "runs.id", primary_key=True, index=True),
        column("role", TEXT_32),
    )
    op.create_table(
        "chunks",
        reference("run_id", "runs.id", primary_key=True),
        key("kind", TEXT_32),
        key("attempt_number", INTEGER),
        key("first_step", INTEGER),
        column("last_step", INTEGER),
        column("count", INTEGER),
        column("columns", JSON),
        optional("payload", BYTES),
        optional("checksum", INTEGER),
    )
    op.create_table(
        "submissions",
        reference("run_id", "runs.id", primary_key=True),
        key("number", INTEGER),
        column("attempt_number", INTEGER),
        column("key", sa.String(length=63)),
        column("scheduler", TEXT_32),
        optional("scheduler_id", TEXT_255),
        column("launcher", TEXT_255),
        column("launcher_digest", TEXT_255),
        column("plan", JSON),
        column("folder", TEXT),
        column("state", TEXT_32),
        optional("reason", TEXT),
        optional("exit_status", INTEGER),
        optional("start", INTEGER),
        column("created_at", REAL),
        optional("started_at", REAL),
        column("earlier_seconds", REAL),
        optional("ended_at", REAL),
        sa.UniqueConstraint("key"),
        sa.Index(
            "submissions_open",
            "run_id",
            unique=True,
            sqlite_where=IS_OPEN,
            postgresql_where=IS_OPEN,
        ),
    )
    op.create_table(
        "chunk_columns",
        key("run_id", TEXT_255),
        key("kind", TEXT_32),
        key("attempt_number", INTEGER),
        key("first_step", INTEGER),
        key("name", TEXT_255),
        column("payload", BYTES),
        optional("checksum", INTEGER),
        sa.ForeignKeyConstraint(
            ["run_id", "kind", "attempt_number", "first_step"],
            ["chunks.run_id", "chunks.kind", "chunks.attempt_number", "chunks.first_step"],
            ondelete="CASCADE",
        ),
    )
    duties = sa.table(
        "duties",
        sa.column("name", sa.String),
        sa.column("holder", sa.String),
        sa.column("expires_at", sa.Float),
    )
    holders = dict.fromkeys(DUTIES, "") | {DEPLOYMENT: secrets.token_hex(4)}
    op.bulk_insert(
        duties,
        [{"name": name, "holder": holder, "expires_at": 0.0} for name, holder in holders.items()],
    )


def downgrade() -> None:
    for table in (
        "chunk_columns",
        "submissions",
        "chunks",
        "baseline_runs",
        "attempts",
        "analysis_results",
        "runs",
        "webhook_deliveries",
        "verdicts",
        "statements",
        "sign_offs",
        "new_questions",
        "job_tags",
        "job_notes",
        "idempotency_keys",
        "healings",
        "events",
        "evaluation_bundles",
        "arms",
        "analyses",
        "jobs",
        "browser_sessions",
        "baseline_events",
        "workers",
        "webhooks",
        "tokens",
        "imported_groups",
        "goldens",
        "duties",
        "data_reads",
        "baselines",
    ):
        op.drop_table(table)
