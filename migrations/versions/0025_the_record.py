"""The record: all tables of the first release, and the duties that one process at a time has.

Revision ID: 0025
Revises:
"""

from functools import partial

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = None
branch_labels = None
depends_on = None

DUTIES = ("housekeeping", "readiness", "listening")
TEXT_255, TEXT_64, TEXT_32 = sa.String(length=255), sa.String(length=64), sa.String(length=32)
TEXT, INTEGER, REAL, JSON, BYTES = sa.Text(), sa.BigInteger(), sa.Float(precision=53), sa.JSON(), sa.LargeBinary()
column, optional, key = partial(sa.Column, nullable=False), partial(sa.Column, nullable=True), partial(sa.Column, primary_key=True)


def reference(name: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([name], [to])


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
    )
    op.create_table(
        "webhooks",
        key("id", TEXT_255),
        column("url", TEXT),
        column("events", JSON),
        column("secret", TEXT_255),
        column("created_at", REAL),
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
        column("baseline_id", TEXT_255),
        column("kind", TEXT_32),
        column("who", TEXT_255),
        column("reason", TEXT),
        column("detail", TEXT),
        column("created_at", REAL),
        reference("baseline_id", "baselines.id"),
    )
    op.create_index("ix_baseline_events_baseline_id", "baseline_events", ["baseline_id"])
    op.create_table(
        "browser_sessions",
        key("digest", TEXT_64),
        column("token_id", TEXT_255),
        column("expires_at", REAL),
        reference("token_id", "tokens.id"),
    )
    op.create_index("ix_browser_sessions_token_id", "browser_sessions", ["token_id"])
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
        column("criteria", JSON),
        optional("config_hash", TEXT_64),
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
        optional("baseline_id", TEXT_255),
        optional("controls", JSON),
        optional("floors", TEXT),
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
        reference("baseline_id", "baselines.id"),
    )
    op.create_index("ix_jobs_baseline_id", "jobs", ["baseline_id"])
    op.create_index("ix_jobs_config_hash", "jobs", ["config_hash"])
    op.create_index("jobs_by_branch", "jobs", ["branch", "id"])
    op.create_index("jobs_by_claim", "jobs", ["capability", "status", "device_class", "threads", "devices"])
    op.create_index("jobs_by_data", "jobs", ["data_place", "id"])
    op.create_index("jobs_by_end", "jobs", ["finished_at", "id"])
    op.create_index("jobs_by_family", "jobs", ["reruns_family", "id"])
    op.create_index("jobs_by_gap", "jobs", ["worst_gap", "id"])
    op.create_index("jobs_by_model", "jobs", ["model", "id"])
    op.create_index("jobs_by_name", "jobs", ["id", "name"])
    op.create_index("jobs_by_revision", "jobs", ["revision", "id"])
    op.create_index("jobs_by_status", "jobs", ["status", "id"])
    op.create_index("jobs_of_a_name", "jobs", ["name", "id"])
    op.create_table(
        "analyses",
        key("job_id", TEXT_255),
        column("explains", TEXT_255),
        column("candidate", TEXT_255),
        column("against", TEXT_32),
        column("setup", JSON),
        optional("answer", JSON),
        reference("explains", "jobs.id"),
        reference("job_id", "jobs.id"),
    )
    op.create_index("ix_analyses_explains", "analyses", ["explains"])
    op.create_table(
        "arms",
        key("id", TEXT_255),
        column("job_id", TEXT_255),
        column("position", INTEGER),
        column("name", TEXT_255),
        column("role", TEXT_32),
        column("recipe", TEXT_255),
        optional("question", TEXT_64),
        reference("job_id", "jobs.id"),
        sa.UniqueConstraint("job_id", "name"),
    )
    op.create_index("arms_by_recipe", "arms", ["recipe", "role", "job_id"])
    op.create_index("ix_arms_job_id", "arms", ["job_id"])
    op.create_index("ix_arms_question", "arms", ["question"])
    op.create_table(
        "events",
        key("job_id", TEXT_255),
        key("sequence", INTEGER),
        column("kind", TEXT_32),
        column("payload", JSON),
        column("created_at", REAL),
        reference("job_id", "jobs.id"),
    )
    op.create_table(
        "gap_charts",
        key("job_id", TEXT_255),
        column("made_from", TEXT_64),
        column("steps", INTEGER),
        column("content", BYTES),
        reference("job_id", "jobs.id"),
    )
    op.create_table(
        "idempotency_keys",
        key("principal", TEXT_255),
        key("key", TEXT_255),
        column("body_digest", TEXT_64),
        column("job_id", TEXT_255),
        column("created_at", REAL),
        reference("job_id", "jobs.id"),
    )
    op.create_table(
        "job_notes",
        key("id", TEXT_255),
        column("job_id", TEXT_255),
        column("who", TEXT_255),
        column("text", TEXT),
        column("created_at", REAL),
        reference("job_id", "jobs.id"),
    )
    op.create_index("ix_job_notes_job_id", "job_notes", ["job_id"])
    op.create_table(
        "job_tags",
        key("job_id", TEXT_255),
        key("tag", TEXT_64),
        reference("job_id", "jobs.id"),
    )
    op.create_index("job_tags_by_tag", "job_tags", ["tag", "job_id"])
    op.create_table(
        "searches",
        key("id", TEXT_255),
        column("base_id", TEXT_255),
        column("candidate", TEXT_255),
        column("question", TEXT_255),
        column("setup", JSON),
        column("state", TEXT_32),
        optional("policy", TEXT_255),
        optional("message", TEXT),
        column("priority", INTEGER),
        optional("max_run_seconds", REAL),
        optional("submitted_by", TEXT_255),
        column("created_at", REAL),
        optional("finished_at", REAL),
        reference("base_id", "jobs.id"),
    )
    op.create_index("ix_searches_base_id", "searches", ["base_id"])
    op.create_index("ix_searches_question", "searches", ["question"])
    op.create_index("ix_searches_state", "searches", ["state"])
    op.create_table(
        "sign_offs",
        key("id", TEXT_255),
        column("job_id", TEXT_255),
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
        reference("job_id", "jobs.id"),
    )
    op.create_index("ix_sign_offs_job_id", "sign_offs", ["job_id"])
    op.create_table(
        "verdicts",
        key("id", TEXT_255),
        column("job_id", TEXT_255),
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
        reference("job_id", "jobs.id"),
        sa.UniqueConstraint("job_id", "candidate"),
    )
    op.create_index("ix_verdicts_job_id", "verdicts", ["job_id"])
    op.create_index("verdicts_by_outcome", "verdicts", ["outcome", "job_id"])
    op.create_table(
        "webhook_deliveries",
        key("id", TEXT_255),
        column("webhook_id", TEXT_255),
        column("kind", TEXT_32),
        optional("job_id", TEXT_255),
        column("state", TEXT_32),
        column("attempts", INTEGER),
        optional("status", INTEGER),
        optional("message", TEXT),
        column("created_at", REAL),
        optional("attempted_at", REAL),
        column("next_attempt_at", REAL),
        reference("job_id", "jobs.id"),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"])
    op.create_index("webhook_deliveries_by_due", "webhook_deliveries", ["state", "next_attempt_at"])
    op.create_table(
        "runs",
        key("id", TEXT_255),
        column("job_id", TEXT_255),
        column("arm_id", TEXT_255),
        column("position", INTEGER),
        column("seed", INTEGER),
        column("replicate", INTEGER),
        column("kind", TEXT_32, server_default="full"),
        column("capability", TEXT_255),
        column("priority", INTEGER),
        column("state", TEXT_32),
        optional("code", TEXT_255),
        optional("message", TEXT),
        column("epoch", INTEGER),
        column("crashes", INTEGER),
        optional("worker_id", TEXT_255),
        optional("lease_expires_at", REAL),
        optional("fingerprint", TEXT_255),
        optional("manifest", JSON),
        optional("rounding", TEXT_32),
        optional("reused_from", TEXT_255),
        optional("forked_from", TEXT_255),
        optional("kept_checkpoints", JSON),
        column("planned_steps", INTEGER),
        column("steps_done", INTEGER),
        optional("last_loss", TEXT_32),
        optional("steps_per_second", REAL),
        optional("recorded_at", REAL),
        column("created_at", REAL),
        optional("started_at", REAL),
        optional("finished_at", REAL),
        reference("arm_id", "arms.id"),
        reference("forked_from", "runs.id"),
        reference("job_id", "jobs.id"),
        reference("reused_from", "runs.id"),
    )
    op.create_index("ix_runs_arm_id", "runs", ["arm_id"])
    op.create_index("ix_runs_fingerprint", "runs", ["fingerprint"])
    op.create_index("ix_runs_finished_at", "runs", ["finished_at"])
    op.create_index("ix_runs_forked_from", "runs", ["forked_from"])
    op.create_index("ix_runs_job_id", "runs", ["job_id"])
    op.create_index("ix_runs_reused_from", "runs", ["reused_from"])
    op.create_index("runs_by_claim", "runs", ["state", "capability", "priority", "created_at"])
    op.create_table(
        "search_steps",
        key("search_id", TEXT_255),
        key("number", INTEGER),
        column("job_id", TEXT_255),
        column("evaluations", JSON),
        optional("results", sa.JSON(none_as_null=True)),
        column("cost", REAL),
        column("created_at", REAL),
        reference("job_id", "jobs.id"),
        reference("search_id", "searches.id"),
        sa.UniqueConstraint("job_id"),
    )
    op.create_table(
        "analysis_results",
        key("run_id", TEXT_255),
        key("key", TEXT_255),
        column("value", JSON),
        reference("run_id", "runs.id"),
    )
    op.create_table(
        "attempts",
        key("run_id", TEXT_255),
        key("epoch", INTEGER),
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
        reference("run_id", "runs.id"),
    )
    op.create_table(
        "baseline_runs",
        key("baseline_id", TEXT_255),
        key("run_id", TEXT_255),
        column("role", TEXT_32),
        reference("baseline_id", "baselines.id"),
        reference("run_id", "runs.id"),
    )
    op.create_index("ix_baseline_runs_run_id", "baseline_runs", ["run_id"])
    op.create_table(
        "chunks",
        key("run_id", TEXT_255),
        key("kind", TEXT_32),
        key("epoch", INTEGER),
        key("first_step", INTEGER),
        column("last_step", INTEGER),
        column("count", INTEGER),
        column("columns", JSON),
        optional("payload", BYTES),
        reference("run_id", "runs.id"),
    )
    op.create_table(
        "chunk_columns",
        key("run_id", TEXT_255),
        key("kind", TEXT_32),
        key("epoch", INTEGER),
        key("first_step", INTEGER),
        key("name", TEXT_255),
        column("payload", BYTES),
        sa.ForeignKeyConstraint(
            ["run_id", "kind", "epoch", "first_step"],
            ["chunks.run_id", "chunks.kind", "chunks.epoch", "chunks.first_step"],
            ondelete="CASCADE",
        ),
    )
    duties = sa.table("duties", sa.column("name", sa.String), sa.column("holder", sa.String), sa.column("expires_at", sa.Float))
    op.bulk_insert(duties, [{"name": name, "holder": "", "expires_at": 0.0} for name in DUTIES])


def downgrade() -> None:
    for table in (
        "chunk_columns",
        "chunks",
        "baseline_runs",
        "attempts",
        "analysis_results",
        "search_steps",
        "runs",
        "webhook_deliveries",
        "verdicts",
        "sign_offs",
        "searches",
        "job_tags",
        "job_notes",
        "idempotency_keys",
        "gap_charts",
        "events",
        "arms",
        "analyses",
        "jobs",
        "browser_sessions",
        "baseline_events",
        "workers",
        "webhooks",
        "tokens",
        "imported_groups",
        "duties",
        "data_reads",
        "baselines",
    ):
        op.drop_table(table)
