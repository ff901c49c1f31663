"""Each verdict has the digest of its document and of what lists show of it.

Revision ID: 0041
Revises: 0040
"""

import hashlib

import sqlalchemy as sa
from alembic import op

from parity.canonical_json import canonical_json

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_LISTED = ("candidate", "outcome", "code", "gap", "ci_low", "ci_high", "gap_rel", "margin", "lead")
_AT_ONCE = 500


def upgrade() -> None:
    op.add_column("verdicts", sa.Column("document_sha256", sa.String(64)))
    op.add_column("verdicts", sa.Column("columns_sha256", sa.String(64)))
    verdicts = sa.table(
        "verdicts",
        *(
            sa.column(name)
            for name in ("id", "document", "document_sha256", "columns_sha256", *_LISTED)
        ),
    )
    connection, last = op.get_bind(), ""
    while True:
        page = (
            sa.select(verdicts.c.id, verdicts.c.document, *(verdicts.c[name] for name in _LISTED))
            .where(verdicts.c.id > last)
            .order_by(verdicts.c.id)
            .limit(_AT_ONCE)
        )
        rows = connection.execute(page).all()
        if not rows:
            return
        for row in rows:
            document = _sha256(row.document)
            columns = _sha256(canonical_json([*(getattr(row, name) for name in _LISTED), document]))
            connection.execute(
                sa.update(verdicts)
                .where(verdicts.c.id == row.id)
                .values(document_sha256=document, columns_sha256=columns)
            )
        last = rows[-1].id


def downgrade() -> None:
    with op.batch_alter_table("verdicts") as table:
        table.drop_column("columns_sha256")
        table.drop_column("document_sha256")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
