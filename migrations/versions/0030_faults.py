"""How often a job could not be judged for a reason that may pass, and when that is tried again;
checksums of recorded steps; the whole order of claims in an index, and the version of a
specification.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("judge_tries", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("jobs", sa.Column("judge_after", sa.Float(53)))
    op.add_column(
        "jobs", sa.Column("spec_version", sa.BigInteger(), nullable=False, server_default="1")
    )
    op.drop_index("runs_by_claim", "runs")
    op.create_index(
        "runs_by_claim",
        "runs",
        ["state", "capability", "priority", "created_at", "job_id", "position"],
    )
    op.add_column("chunks", sa.Column("checksum", sa.BigInteger()))
    op.add_column("chunk_columns", sa.Column("checksum", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("chunk_columns", "checksum")
    op.drop_column("chunks", "checksum")
    op.drop_index("runs_by_claim", "runs")
    op.create_index("runs_by_claim", "runs", ["state", "capability", "priority", "created_at"])
    op.drop_column("jobs", "spec_version")
    op.drop_column("jobs", "judge_after")
    op.drop_column("jobs", "judge_tries")
