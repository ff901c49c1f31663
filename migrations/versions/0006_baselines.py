"""baselines.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


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
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "version"),
    )
    op.create_table(
        "baseline_runs",
        sa.Column("baseline_id", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["baseline_id"], ["baselines.id"]),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"]),
        sa.PrimaryKeyConstraint("baseline_id", "run_id"),
    )
    op.create_index(op.f("ix_baseline_runs_run_id"), "baseline_runs", ["run_id"], unique=False)
    op.create_table(
        "baseline_events",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("baseline_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["baseline_id"], ["baselines.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_baseline_events_baseline_id"), "baseline_events", ["baseline_id"], unique=False)
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reuse", sa.Boolean(), nullable=False, server_default=sa.true()))
        batch_op.add_column(sa.Column("baseline_id", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("controls", sa.JSON(), nullable=True))
        batch_op.create_foreign_key("jobs_baseline", "baselines", ["baseline_id"], ["id"])
        batch_op.create_index(batch_op.f("ix_jobs_baseline_id"), ["baseline_id"], unique=False)
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("reused_from", sa.String(length=255), nullable=True))
        batch_op.create_foreign_key("runs_reused_from", "runs", ["reused_from"], ["id"])
        batch_op.create_index(batch_op.f("ix_runs_reused_from"), ["reused_from"], unique=False)
        batch_op.create_index(batch_op.f("ix_runs_fingerprint"), ["fingerprint"], unique=False)


def downgrade() -> None:
    # The older program knows no reference: a run that has another's curve gets a copy of it.
    for table, own in (("chunks", ("last_step", "count", "columns", "summary")), ("chunk_columns", ("name", "payload"))):
        names = ("kind", "epoch", "first_step", *own)
        op.execute(
            f"INSERT INTO {table} (run_id, {', '.join(names)}) "  # noqa: S608 (names of our own)
            f"SELECT runs.id, {', '.join(f'curve.{name}' for name in names)} "
            f"FROM {table} AS curve JOIN runs ON runs.reused_from = curve.run_id"
        )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_fingerprint"))
        batch_op.drop_index(batch_op.f("ix_runs_reused_from"))
        batch_op.drop_constraint("runs_reused_from", type_="foreignkey")
        batch_op.drop_column("reused_from")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_baseline_id"))
        batch_op.drop_constraint("jobs_baseline", type_="foreignkey")
        batch_op.drop_column("controls")
        batch_op.drop_column("baseline_id")
        batch_op.drop_column("reuse")
    for table in ("baseline_events", "baseline_runs", "baselines"):
        op.drop_table(table)
