"""A noise run is a short rerun, and a forecast that was harmful will fail: in columns and in what
is stored as JSON.

A verdict's document gets the new names, too, so a sign-off of an earlier verdict, which holds for a
digest, is void.

Revision ID: 0033
Revises: 0032
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_RUNS = sa.table("runs", sa.column("kind"))
_EVENTS = sa.table("events", sa.column("kind"))
_JOBS = sa.table(
    "jobs",
    sa.column("id"),
    sa.column("spec", sa.JSON()),
    sa.column("early_stop", sa.JSON(none_as_null=True)),
    sa.column("spec_version"),
)
_VERDICTS = sa.table("verdicts", sa.column("id"), sa.column("document"), sa.column("code"))
_SPEC = {"noise": "short_reruns"}
_FORECASTS = {"harmful": "will_fail"}
_IN_DOCUMENTS = {
    "noise_runs": "short_reruns",
    "NOISE_RUN_DIVERGED": "SHORT_RERUN_DIVERGED",
    "NOISE_RUNS_LEFT_OUT": "SHORT_RERUNS_LEFT_OUT",
}


def upgrade() -> None:
    _rename({"noise": "short"}, {"hopeless": "will_fail"}, (_SPEC, _FORECASTS, _IN_DOCUMENTS))
    # a worker of before leaves these to newer ones
    op.execute(_JOBS.update().values(spec_version=2))


def downgrade() -> None:
    spec, forecasts, documents = (
        {new: old for old, new in names.items()} for names in (_SPEC, _FORECASTS, _IN_DOCUMENTS)
    )
    _rename({"short": "noise"}, {"will_fail": "hopeless"}, (spec, forecasts, documents))
    op.execute(_JOBS.update().values(spec_version=1))


def _rename(
    runs: Mapping[str, str], events: Mapping[str, str], stored: tuple[Mapping[str, str], ...]
) -> None:
    connection, (spec, forecasts, documents) = op.get_bind(), stored
    for table, kinds in ((_RUNS, runs), (_EVENTS, events)):
        for old, new in kinds.items():
            connection.execute(table.update().where(table.c.kind == old).values(kind=new))
    for key, own, early_stop in connection.execute(
        sa.select(_JOBS.c.id, _JOBS.c.spec, _JOBS.c.early_stop)
    ).all():
        values = {"spec": {spec.get(name, name): value for name, value in own.items()}}
        if early_stop is not None:
            values["early_stop"] = _named(early_stop, forecasts)
        connection.execute(_JOBS.update().where(_JOBS.c.id == key).values(values))
    for key, text, code in connection.execute(sa.select(_VERDICTS)).all():
        document = json.dumps(_named(json.loads(text), documents), sort_keys=True, allow_nan=False)
        connection.execute(
            _VERDICTS.update()
            .where(_VERDICTS.c.id == key)
            .values(document=document, code=documents.get(code, code))
        )


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """A JSON value with other names, as keys and as whole texts."""
    if isinstance(value, dict):
        return {names.get(key, key): _named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if isinstance(value, str):
        return names.get(value, value)
    return value
