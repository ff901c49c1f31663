"""what people add to jobs: tags, notes and sign-offs; and the columns and indexes by which lists find, sort and show jobs.

Revision ID: 0019
Revises: 0018
"""

import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

from training.presets import PRESETS

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_INDEXES = {
    "jobs_of_a_name": ["name", "id"],
    "jobs_by_branch": ["branch", "id"],
    "jobs_by_revision": ["revision", "id"],
    "jobs_by_model": ["model", "id"],
    "jobs_by_end": ["finished_at", "id"],
    "jobs_by_gap": ["worst_gap", "id"],
}
_NUMBERS = ("gap", "ci_low", "ci_high", "margin", "gap_rel")
_ROWS_AT_ONCE = 200


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("branch", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("model", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("worst_gap", sa.Float(precision=53), nullable=True))
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("code", sa.String(length=255), nullable=True))
        for name in _NUMBERS:
            batch_op.add_column(sa.Column(name, sa.Float(precision=53), nullable=True))
    _fill(op.get_bind())
    for name, columns in _INDEXES.items():
        op.create_index(name, "jobs", columns, unique=False)
    op.create_index("arms_by_recipe", "arms", ["recipe", "role", "job_id"], unique=False)
    op.create_index("verdicts_by_outcome", "verdicts", ["outcome", "job_id"], unique=False)
    op.create_table(
        "job_tags",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("tag", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "tag"),
    )
    op.create_index("job_tags_by_tag", "job_tags", ["tag", "job_id"], unique=False)
    op.create_table(
        "job_notes",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("who", sa.String(length=255), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_job_notes_job_id"), "job_notes", ["job_id"], unique=False)
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
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_sign_offs_job_id"), "sign_offs", ["job_id"], unique=False)


def downgrade() -> None:
    for table in ("sign_offs", "job_notes", "job_tags"):
        op.drop_table(table)
    op.drop_index("verdicts_by_outcome", table_name="verdicts")
    op.drop_index("arms_by_recipe", table_name="arms")
    for name in _INDEXES:
        op.drop_index(name, table_name="jobs")
    with op.batch_alter_table("verdicts", schema=None) as batch_op:
        for name in (*_NUMBERS, "code"):
            batch_op.drop_column(name)
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        for name in ("worst_gap", "model", "branch"):
            batch_op.drop_column(name)


def _fill(connection: sa.Connection) -> None:
    """Fill the new columns of the jobs and verdicts on record."""
    number = sa.Float(precision=53)
    jobs = sa.table("jobs", sa.column("id"), sa.column("spec", sa.JSON()), sa.column("model"), sa.column("worst_gap", number))
    verdicts = sa.table(
        "verdicts",
        *(sa.column(name) for name in ("id", "job_id", "document", "code")),
        *(sa.column(name, number) for name in _NUMBERS),
    )
    worst: dict[str, float] = {}
    for some in _slices(connection, verdicts.c.id):
        for row in connection.execute(
            sa.select(verdicts.c.id, verdicts.c.job_id, verdicts.c.document).where(verdicts.c.id.in_(some))
        ).all():
            values = _columns(json.loads(row.document))
            connection.execute(sa.update(verdicts).where(verdicts.c.id == row.id).values(**values))
            if values["gap_rel"] is not None:
                worst[row.job_id] = max(values["gap_rel"], worst.get(row.job_id, values["gap_rel"]))
    for some in _slices(connection, jobs.c.id):
        for job_id, spec in connection.execute(sa.select(jobs.c.id, jobs.c.spec).where(jobs.c.id.in_(some))).all():
            connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(model=_model(spec), worst_gap=worst.get(job_id)))


def _slices(connection: sa.Connection, key: Any) -> list[list[str]]:
    ids = [row[0] for row in connection.execute(sa.select(key).order_by(key))]
    return [ids[first : first + _ROWS_AT_ONCE] for first in range(0, len(ids), _ROWS_AT_ONCE)]


def _columns(document: dict[str, Any]) -> dict[str, Any]:
    gap, margin = document.get("gap") or {}, document.get("margin") or {}
    numbers = {
        "gap": gap.get("mean"),
        "ci_low": gap.get("lo"),
        "ci_high": gap.get("hi"),
        "margin": margin.get("nats"),
        "gap_rel": gap.get("rel"),
    }
    return {"code": (document.get("codes") or [None])[0], **{name: _finite(value) for name, value in numbers.items()}}


def _finite(value: Any) -> float | None:
    """A finite number; None for none, and for the texts nan, inf and -inf."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None


def _model(spec: dict[str, Any]) -> str | None:
    """As `server.jobs.submit.model_name` names it."""
    if spec.get("engine") == "external":
        return spec.get("family")
    shape = spec.get("model") or {}
    known = (name for name, preset in PRESETS.items() if all(shape.get(key) == value for key, value in preset.items()))
    return next(known, None) or f"{shape.get('n_layers')} x {shape.get('d_model')}"
