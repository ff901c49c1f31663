"""A search names an assignment of precision, and a job's criteria are its policy: one name for one thing.

Revision ID: 0031
Revises: 0030
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_STEPS = sa.table("search_steps", *(sa.column(name) for name in ("search_id", "number")), sa.column("evaluations", sa.JSON()))


def upgrade() -> None:
    op.alter_column("searches", "policy", new_column_name="assignment")
    _rename_in_evaluations("policy", "assignment")


def downgrade() -> None:
    _rename_in_evaluations("assignment", "policy")
    op.alter_column("searches", "assignment", new_column_name="policy")


def _rename_in_evaluations(old: str, new: str) -> None:
    connection = op.get_bind()
    for search_id, number, evaluations in connection.execute(sa.select(_STEPS)).all():
        renamed = [{new if key == old else key: value for key, value in each.items()} for each in evaluations]
        own = (_STEPS.c.search_id == search_id) & (_STEPS.c.number == number)
        connection.execute(_STEPS.update().where(own).values(evaluations=renamed))
