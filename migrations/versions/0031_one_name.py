"""One name for one thing: a search names an assignment, and a job's criteria are its policy, in
columns and in what is stored as JSON.

A verdict's document gets the new name, too, so a sign-off of an earlier verdict, which holds for a
digest, is void.

Revision ID: 0031
Revises: 0030
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_SEARCHES = sa.table("searches", sa.column("id"), sa.column("setup", sa.JSON()))
_STEPS = sa.table(
    "search_steps", sa.column("search_id"), sa.column("number"), sa.column("evaluations", sa.JSON())
)
_VERDICTS = sa.table("verdicts", sa.column("id"), sa.column("document"))


def upgrade() -> None:
    op.alter_column("jobs", "criteria", new_column_name="policy")
    op.alter_column("searches", "policy", new_column_name="assignment")
    _rename("criteria", "policy", "policy", "assignment")


def downgrade() -> None:
    op.alter_column("searches", "assignment", new_column_name="policy")
    op.alter_column("jobs", "policy", new_column_name="criteria")
    _rename("policy", "criteria", "assignment", "policy")


def _rename(policy: str, now: str, assignment: str, then: str) -> None:
    _change(_SEARCHES, "setup", lambda setup: _keyed(setup, policy, now))
    _change(_STEPS, "evaluations", lambda made: [_keyed(each, assignment, then) for each in made])
    _change(_VERDICTS, "document", lambda text: _verdict(text, policy, now))


def _change(table: Any, column: str, change: Callable[[Any], Any]) -> None:
    """Change a column of each row, which its other columns name."""
    connection = op.get_bind()
    keys = [each for each in table.c if each.name != column]
    for *key, value in connection.execute(sa.select(*keys, table.c[column])).all():
        own = sa.and_(*(each == part for each, part in zip(keys, key, strict=True)))
        connection.execute(table.update().where(own).values({column: change(value)}))


def _keyed(mapping: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: value for key, value in mapping.items()}


def _verdict(text: str, old: str, new: str) -> str:
    """The JSON of a verdict as it is stored, its parameters under the new name."""
    document = json.loads(text)
    if "params" in document:
        document["params"] = _keyed(document["params"], old, new)
    return json.dumps(document, sort_keys=True, allow_nan=False)
