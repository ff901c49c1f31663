"""A table of reruns is a noise table, and a policy states run-to-run noise: in columns and in what
is stored as JSON.

A verdict's document gets the new names, too, so a sign-off of an earlier verdict, which holds for a
digest, is void.

Revision ID: 0034
Revises: 0033
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_JOBS = sa.table("jobs", sa.column("id"), sa.column("policy", sa.JSON()))
_SEARCHES = sa.table("searches", sa.column("id"), sa.column("setup", sa.JSON()))
_VERDICTS = sa.table("verdicts", sa.column("id"), sa.column("document"))
_POLICY = {
    "baseline_run_floor": "baseline_run_noise",
    "candidate_run_floor": "candidate_run_noise",
    "run_floor_df": "run_noise_df",
    "run_floor_evidence": "run_noise_evidence",
}


def upgrade() -> None:
    op.alter_column("jobs", "floors", new_column_name="noise_table")
    _rename(_POLICY, {"floors": "noise_table"})


def downgrade() -> None:
    _rename({new: old for old, new in _POLICY.items()}, {"noise_table": "floors"})
    op.alter_column("jobs", "noise_table", new_column_name="floors")


def _rename(policy: Mapping[str, str], setup: Mapping[str, str]) -> None:
    def with_policy(document: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: _keyed(value, policy) if key == "policy" else value
            for key, value in document.items()
        }

    def verdict(text: str) -> str:
        document = json.loads(text)
        if "params" in document:
            document["params"] = with_policy(document["params"])
        return json.dumps(document, sort_keys=True, allow_nan=False)

    _change(_JOBS, "policy", lambda own: _keyed(own, policy))
    _change(_SEARCHES, "setup", lambda own: with_policy(_keyed(own, setup)))
    _change(_VERDICTS, "document", verdict)


def _keyed(mapping: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in mapping.items()}


def _change(table: Any, column: str, change: Callable[[Any], Any]) -> None:
    connection = op.get_bind()
    for key, value in connection.execute(sa.select(table.c.id, table.c[column])).all():
        connection.execute(table.update().where(table.c.id == key).values({column: change(value)}))
