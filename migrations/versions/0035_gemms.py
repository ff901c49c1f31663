"""The units of an analysis's answer are GEMMs, and what is guilty is a cause.

Revision ID: 0035
Revises: 0034
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_ANALYSES = sa.table(
    "analyses", sa.column("job_id"), sa.column("answer", sa.JSON(none_as_null=True))
)
_NAMES = {"units": "gemms", "guilty": "is_cause"}


def upgrade() -> None:
    _rename(_NAMES)


def downgrade() -> None:
    _rename({new: old for old, new in _NAMES.items()})


def _rename(names: Mapping[str, str]) -> None:
    connection = op.get_bind()
    for key, answer in connection.execute(
        sa.select(_ANALYSES).where(_ANALYSES.c.answer.is_not(None))
    ).all():
        connection.execute(
            _ANALYSES.update().where(_ANALYSES.c.job_id == key).values(answer=_keyed(answer, names))
        )


def _keyed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _keyed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_keyed(each, names) for each in value]
    return value
