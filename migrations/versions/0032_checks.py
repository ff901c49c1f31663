"""The gates of a policy are its checks, in what is stored as JSON; a check of a verdict decides or
advises.

A verdict's document gets the new names, too, so a sign-off of an earlier verdict, which holds for a
digest, is void.

Revision ID: 0032
Revises: 0031
"""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_JOBS = sa.table("jobs", sa.column("id"), sa.column("policy", sa.JSON()))
_SEARCHES = sa.table("searches", sa.column("id"), sa.column("setup", sa.JSON()))
_VERDICTS = sa.table("verdicts", sa.column("id"), sa.column("document"))
_ROLES = {"gate": "decides", "advice": "advises"}


def upgrade() -> None:
    _rename("gates", "checks", _ROLES)


def downgrade() -> None:
    _rename("checks", "gates", {new: old for old, new in _ROLES.items()})


def _rename(old: str, new: str, roles: dict[str, str]) -> None:
    def policy(stated: dict[str, Any]) -> dict[str, Any]:
        return {new if key == old else key: value for key, value in stated.items()}

    def with_policy(document: dict[str, Any]) -> dict[str, Any]:
        return {key: policy(value) if key == "policy" else value for key, value in document.items()}

    def verdict(text: str) -> str:
        document = json.loads(text)
        if "params" in document:
            document["params"] = with_policy(document["params"])
        for check in document.get("checks", ()):
            check["role"] = roles.get(check["role"], check["role"])
        return json.dumps(document, sort_keys=True, allow_nan=False)

    _change(_JOBS, "policy", policy)
    _change(_SEARCHES, "setup", with_policy)
    _change(_VERDICTS, "document", verdict)


def _change(table: Any, column: str, change: Callable[[Any], Any]) -> None:
    connection = op.get_bind()
    for key, value in connection.execute(sa.select(table.c.id, table.c[column])).all():
        connection.execute(table.update().where(table.c.id == key).values({column: change(value)}))
