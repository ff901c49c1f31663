"""the record.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
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
        sa.Column("criteria", sa.JSON(), nullable=False),
        sa.Column("device_class", sa.String(length=255), nullable=True),
        sa.Column("threads", sa.BigInteger(), nullable=True),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
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
        "arms",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("recipe", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "name"),
    )
    with op.batch_alter_table("arms", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_arms_job_id"), ["job_id"], unique=False)

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
        "verdicts",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("candidate", sa.String(length=255), nullable=False),
        sa.Column("outcome", sa.String(length=255), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "candidate"),
    )
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_verdicts_job_id"), ["job_id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("arm_id", sa.String(length=255), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("replicate", sa.BigInteger(), nullable=False),
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
        sa.Column("planned_steps", sa.BigInteger(), nullable=False),
        sa.Column("steps_done", sa.BigInteger(), nullable=False),
        sa.Column("last_loss", sa.String(length=32), nullable=True),
        sa.Column("steps_per_second", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(
            ["arm_id"],
            ["arms.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_arm_id"), ["arm_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_job_id"), ["job_id"], unique=False)
        batch_op.create_index("runs_by_claim", ["state", "capability", "priority", "created_at"], unique=False)

    op.create_table(
        "chunks",
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "kind", "epoch", "first_step"),
    )


def downgrade() -> None:
    op.drop_table("chunks")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index("runs_by_claim")
        batch_op.drop_index(batch_op.f("ix_runs_job_id"))
        batch_op.drop_index(batch_op.f("ix_runs_arm_id"))

    op.drop_table("runs")
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_verdicts_job_id"))

    op.drop_table("verdicts")
    op.drop_table("events")
    with op.batch_alter_table("arms", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_arms_job_id"))

    op.drop_table("arms")
    op.drop_table("workers")
    op.drop_table("jobs")
