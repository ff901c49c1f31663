"""What workers read at a path, whose groups of reruns a job has, who owns a baseline, who is judging a job, and until when the service
has listened.

Revision ID: 0024
Revises: 0023
"""

import csv
import io

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "data_reads",
        sa.Column("place", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=255), nullable=False),
        sa.Column("run_id", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("place"),
    )
    op.add_column("jobs", sa.Column("data_place", sa.String(length=64), nullable=True))
    op.create_index("jobs_by_data", "jobs", ["data_place", "id"])
    op.add_column("jobs", sa.Column("reruns_family", sa.String(length=255), nullable=True))
    op.create_index("jobs_by_family", "jobs", ["reruns_family", "id"])
    jobs = sa.table("jobs", sa.column("id", sa.String), sa.column("reruns", sa.Text), sa.column("reruns_family", sa.String))
    connection = op.get_bind()
    for job_id, table in connection.execute(sa.select(jobs.c.id, jobs.c.reruns).where(jobs.c.reruns.is_not(None))).all():
        family = next(csv.DictReader(io.StringIO(table)))["family"]  # all groups of a job are of its own family
        connection.execute(jobs.update().where(jobs.c.id == job_id).values(reruns_family=family))
    op.add_column("jobs", sa.Column("judging_by", sa.String(length=255), nullable=True))
    op.add_column("jobs", sa.Column("judging_until", sa.Float(precision=53), nullable=True))
    op.execute("insert into duties (name, holder, expires_at) values ('listening', '', 0.0)")
    op.add_column("baselines", sa.Column("owner", sa.String(length=255), nullable=True))
    # Events name the token that promoted; the owner is whose token it was.
    op.execute(
        "update baselines set owner = (select tokens.principal from baseline_events join tokens on tokens.id = baseline_events.who"
        " where baseline_events.baseline_id = baselines.id and baseline_events.kind = 'promoted')"
    )


def downgrade() -> None:
    op.execute("delete from duties where name = 'listening'")
    with op.batch_alter_table("baselines") as baselines:
        baselines.drop_column("owner")
    op.drop_index("jobs_by_family", table_name="jobs")
    op.drop_index("jobs_by_data", table_name="jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("reruns_family")
        jobs.drop_column("data_place")
        jobs.drop_column("judging_until")
        jobs.drop_column("judging_by")
    op.drop_table("data_reads")
