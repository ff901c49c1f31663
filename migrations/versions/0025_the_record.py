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
column, optional = partial(sa.Column, nullable=False), partial(sa.Column, nullable=True)


def reference(name: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([name], [to])


def upgrade() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("recipe", sa.String(length=255), nullable=False),
        sa.Column("engine", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "version"),
    )
    op.create_table(
        "data_reads",
        sa.Column("place", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_table(
        "duties",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "imported_groups",
        sa.Column("family", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("cells", sa.JSON(), nullable=False),
        sa.Column("imported_by", sa.String(length=255), nullable=False),
        sa.Column("imported_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("family", "name"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("max_running", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("last_used_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("secret", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("capability", sa.String(length=255), nullable=False),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.Column("device", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("heartbeat_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "baseline_events",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("baseline_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["baseline_id"],
            ["baselines.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_baseline_events_baseline_id"), "baseline_events", ["baseline_id"], unique=False)
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.String(length=255), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"],
            ["tokens.id"],
        ),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index(op.f("ix_browser_sessions_token_id"), "browser_sessions", ["token_id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("engine", sa.String(length=255), nullable=False),
        sa.Column("capability", sa.String(length=255), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("devices", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("criteria", sa.JSON(), nullable=False),
        sa.Column("config_hash", sa.String(length=64), nullable=True),
        sa.Column("revision", sa.String(length=255), nullable=True),
        sa.Column("data_place", sa.String(length=64), nullable=True),
        sa.Column("branch", sa.String(length=255), nullable=True),
        sa.Column("model", sa.String(length=255), nullable=True),
        sa.Column("worst_gap", sa.Float(precision=53), nullable=True),
        sa.Column("max_run_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("early_stop", sa.JSON(), nullable=True),
        sa.Column("device_class", sa.String(length=255), nullable=True),
        sa.Column("threads", sa.BigInteger(), nullable=True),
        sa.Column("reuse", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("baseline_id", sa.String(length=255), nullable=True),
        sa.Column("controls", sa.JSON(), nullable=True),
        sa.Column("floors", sa.Text(), nullable=True),
        sa.Column("reruns", sa.Text(), nullable=True),
        sa.Column("reruns_family", sa.String(length=255), nullable=True),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("gate_groups", sa.JSON(), nullable=True),
        sa.Column("judging_by", sa.String(length=255), nullable=True),
        sa.Column("judging_until", sa.Float(precision=53), nullable=True),
        sa.Column("look", sa.BigInteger(), nullable=True),
        sa.Column("look_candidates", sa.BigInteger(), nullable=True),
        sa.Column("submitted_by", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline_id"],
            ["baselines.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_jobs_baseline_id"), "jobs", ["baseline_id"], unique=False)
    op.create_index(op.f("ix_jobs_config_hash"), "jobs", ["config_hash"], unique=False)
    op.create_index("jobs_by_branch", "jobs", ["branch", "id"], unique=False)
    op.create_index("jobs_by_claim", "jobs", ["capability", "status", "device_class", "threads", "devices"], unique=False)
    op.create_index("jobs_by_data", "jobs", ["data_place", "id"], unique=False)
    op.create_index("jobs_by_end", "jobs", ["finished_at", "id"], unique=False)
    op.create_index("jobs_by_family", "jobs", ["reruns_family", "id"], unique=False)
    op.create_index("jobs_by_gap", "jobs", ["worst_gap", "id"], unique=False)
    op.create_index("jobs_by_model", "jobs", ["model", "id"], unique=False)
    op.create_index("jobs_by_name", "jobs", ["id", "name"], unique=False)
    op.create_index("jobs_by_revision", "jobs", ["revision", "id"], unique=False)
    op.create_index("jobs_by_status", "jobs", ["status", "id"], unique=False)
    op.create_index("jobs_of_a_name", "jobs", ["name", "id"], unique=False)
    op.create_table(
        "analyses",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("explains", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("against", sa.String(length=32), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["explains"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index(op.f("ix_analyses_explains"), "analyses", ["explains"], unique=False)
    op.create_table(
        "arms",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("recipe", sa.String(length=255), nullable=False),
        sa.Column("question", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "name"),
    )
    op.create_index("arms_by_recipe", "arms", ["recipe", "role", "job_id"], unique=False)
    op.create_index(op.f("ix_arms_job_id"), "arms", ["job_id"], unique=False)
    op.create_index(op.f("ix_arms_question"), "arms", ["question"], unique=False)
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "sequence"),
    )
    op.create_table(
        "gap_charts",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("made_from", sa.String(length=64), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_digest", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("principal", "key"),
    )
    op.create_table(
        "job_notes",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_job_notes_job_id"), "job_notes", ["job_id"], unique=False)
    op.create_table(
        "job_tags",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("tag", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "tag"),
    )
    op.create_index("job_tags_by_tag", "job_tags", ["tag", "job_id"], unique=False)
    op.create_table(
        "searches",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("base_id", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("question", sa.String(length=255), nullable=False),
        sa.Column("setup", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("policy", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("max_run_seconds", sa.Float(precision=53), nullable=True),
        sa.Column("submitted_by", sa.String(length=255), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["base_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_searches_base_id"), "searches", ["base_id"], unique=False)
    op.create_index(op.f("ix_searches_question"), "searches", ["question"], unique=False)
    op.create_index(op.f("ix_searches_state"), "searches", ["state"], unique=False)
    op.create_table(
        "sign_offs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("verdict_sha256", sa.String(length=64), nullable=False),
        sa.Column("policy_sha256", sa.String(length=64), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.Column("revoked_by", sa.String(length=255), nullable=True),
        sa.Column("revoke_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_sign_offs_job_id"), "sign_offs", ["job_id"], unique=False)
    op.create_table(
        "verdicts",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("outcome", sa.String(length=255), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("code", sa.String(length=255), nullable=True),
        sa.Column("gap", sa.Float(precision=53), nullable=True),
        sa.Column("ci_low", sa.Float(precision=53), nullable=True),
        sa.Column("ci_high", sa.Float(precision=53), nullable=True),
        sa.Column("margin", sa.Float(precision=53), nullable=True),
        sa.Column("gap_rel", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "candidate"),
    )
    op.create_index(op.f("ix_verdicts_job_id"), "verdicts", ["job_id"], unique=False)
    op.create_index("verdicts_by_outcome", "verdicts", ["outcome", "job_id"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("webhook_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("attempted_at", sa.Float(precision=53), nullable=True),
        sa.Column("next_attempt_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_webhook_deliveries_webhook_id"), "webhook_deliveries", ["webhook_id"], unique=False)
    op.create_index("webhook_deliveries_by_due", "webhook_deliveries", ["state", "next_attempt_at"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("arm_id", sa.String(length=255), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("replicate", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), server_default="full", nullable=False),
        sa.Column("capability", sa.String(length=255), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("crashes", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.String(length=255), nullable=True),
        sa.Column("lease_expires_at", sa.Float(precision=53), nullable=True),
        sa.Column("fingerprint", sa.String(length=255), nullable=True),
        sa.Column("manifest", sa.JSON(), nullable=True),
        sa.Column("rounding", sa.String(length=32), nullable=True),
        sa.Column("reused_from", sa.String(length=255), nullable=True),
        sa.Column("forked_from", sa.String(length=255), nullable=True),
        sa.Column("kept_checkpoints", sa.JSON(), nullable=True),
        sa.Column("planned_steps", sa.BigInteger(), nullable=False),
        sa.Column("steps_done", sa.BigInteger(), nullable=False),
        sa.Column("last_loss", sa.String(length=32), nullable=True),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=True),
        sa.Column("recorded_at", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["arm_id"],
            ["arms.id"],
        ),
        sa.ForeignKeyConstraint(
            ["forked_from"],
            ["runs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["reused_from"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_runs_arm_id"), "runs", ["arm_id"], unique=False)
    op.create_index(op.f("ix_runs_fingerprint"), "runs", ["fingerprint"], unique=False)
    op.create_index(op.f("ix_runs_finished_at"), "runs", ["finished_at"], unique=False)
    op.create_index(op.f("ix_runs_forked_from"), "runs", ["forked_from"], unique=False)
    op.create_index(op.f("ix_runs_job_id"), "runs", ["job_id"], unique=False)
    op.create_index(op.f("ix_runs_reused_from"), "runs", ["reused_from"], unique=False)
    op.create_index("runs_by_claim", "runs", ["state", "capability", "priority", "created_at"], unique=False)
    op.create_table(
        "search_steps",
        sa.Column("search_id", sa.String(length=255), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("evaluations", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("cost", sa.Float(precision=53), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
        ),
        sa.PrimaryKeyConstraint("search_id", "number"),
        sa.UniqueConstraint("job_id"),
    )
    op.create_table(
        "analysis_results",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "key"),
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=255), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("worker_id", sa.String(length=255), nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("fingerprint", sa.String(length=255), nullable=True),
        sa.Column("key", sa.String(length=255), nullable=True),
        sa.Column("token_digest", sa.String(length=64), nullable=True),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "epoch"),
    )
    op.create_table(
        "baseline_runs",
        sa.Column("baseline_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["baseline_id"],
            ["baselines.id"],
        ),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("baseline_id", "run_id"),
    )
    op.create_index(op.f("ix_baseline_runs_run_id"), "baseline_runs", ["run_id"], unique=False)
    op.create_table(
        "chunks",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "kind", "epoch", "first_step"),
    )
    op.create_table(
        "chunk_columns",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "kind", "epoch", "first_step"],
            ["chunks.run_id", "chunks.kind", "chunks.epoch", "chunks.first_step"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "kind", "epoch", "first_step", "name"),
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
