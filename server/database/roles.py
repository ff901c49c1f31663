"""The rights of the two PostgreSQL roles that serve: the API's and the workers'. A third one owns the tables and runs the migrations.

Neither can change the schema. Workers, which run strangers' job files next to them, can read no token, session or webhook secret, and
cannot change what a job asks for or whose it is. Each table has a line for each role; a test compares the two with the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, text

_JOB_PROGRESS = (
    "update (status, code, message, device_class, threads, early_stop, event_sequence, floors, reruns, worst_gap, started_at, finished_at, "
    "judging_by, judging_until, reruns_family)"
)
_RUN_PROGRESS = (
    "update (state, code, message, epoch, crashes, worker_id, lease_expires_at, fingerprint, manifest, rounding, reused_from, "
    "kept_checkpoints, steps_done, last_loss, recorded_at, steps_per_second, started_at, finished_at)"
)

API: Mapping[str, str] = {
    "analyses": "select, insert, update (answer)",
    "analysis_results": "select",
    "alembic_version": "select",
    "arms": "select, insert, update (question)",
    "attempts": "select, insert, update",
    "baseline_events": "select, insert",
    "baseline_runs": "select, insert",
    "baselines": "select, insert, update (expires_at)",
    "browser_sessions": "select, insert, delete",
    "chunk_columns": "select, insert",
    "chunks": "select, insert, delete",
    # What workers read at a path is theirs alone to say.
    "data_reads": "select",
    "duties": "select, update",
    "events": "select, insert",
    "gap_charts": "select",
    "idempotency_keys": "select, insert",
    "imported_groups": "select, insert",
    "job_notes": "select, insert",
    "job_tags": "select, insert, delete",
    "jobs": f"select, insert, {_JOB_PROGRESS}, update (gate_groups, look, look_candidates)",
    "runs": f"select, insert, {_RUN_PROGRESS}",
    "search_steps": "select, insert, update (results)",
    "searches": "select, insert, update (state, policy, message, finished_at)",
    "sign_offs": "select, insert, update (revoked_at, revoked_by, revoke_reason)",
    "tokens": "select, insert, update",
    "verdicts": "select, insert",
    "webhook_deliveries": "select, insert, update",
    "webhooks": "select, insert, update, delete",
    "workers": "select",
}
WORKER: Mapping[str, str] = {
    "analyses": "select, update (answer)",
    "analysis_results": "select, insert",
    "alembic_version": "",
    "arms": "select",
    "attempts": "select, insert, update",
    "baseline_events": "",
    "baseline_runs": "select",
    "baselines": "select",
    # The elected worker deletes old rows of this and other tables; whole jobs, with their verdicts, only the owner can.
    "browser_sessions": "select (expires_at), delete",
    "chunk_columns": "select, insert",
    "chunks": "select, insert, delete",
    "data_reads": "select, insert, update",
    "duties": "select, update",
    "events": "select, insert, delete",
    "gap_charts": "select, insert, delete",
    "idempotency_keys": "select (principal, key, created_at), delete",
    "imported_groups": "select",
    "job_notes": "",
    "job_tags": "",
    "jobs": f"select, {_JOB_PROGRESS}",
    "runs": f"select, {_RUN_PROGRESS}",
    # What a search queues is the API's.
    "search_steps": "select",
    "searches": "select",
    # Workers, which run strangers' job files, accept no verdict.
    "sign_offs": "",
    "tokens": "select (id, max_running)",
    "verdicts": "select, insert",
    "webhook_deliveries": "select, insert, delete",
    "webhooks": "select",
    "workers": "select, insert, update, delete",
}
_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class RoleError(Exception):
    """A role that cannot be used; the message names it."""


def grants(api: str, worker: str) -> Iterator[str]:
    """The SQL that takes every right from both roles and gives them theirs."""
    yield "revoke create on schema public from public"
    for role, rights in ((api, API), (worker, WORKER)):
        yield f"revoke all on all tables in schema public from {role}"
        yield f"grant usage on schema public to {role}"
        for table, what in rights.items():
            # Rights on columns are revoked with the table's own.
            if what:
                yield f"grant {what} on {table} to {role}"


def apply(connection: Connection, api: str, worker: str) -> None:
    """Create the roles that do not exist, without a password, and grant them exactly their rights; safe to repeat.

    Run it as the owner of the tables, in a transaction. RoleError for a name or a role that would make the rights meaningless.
    """
    for role in (api, worker):
        if not _ROLE.fullmatch(role):
            raise RoleError(f"role is {role!r:.80}, expected lower-case letters, digits and _, at most 63")
        row = connection.execute(_LOOK, {"role": role}).first()
        if row is None:
            connection.execute(text(f"create role {role} login"))
        elif any(row):
            raise RoleError(f"role {role} is a superuser, or owns the tables itself or through another role; expected a role of its own")
    if api == worker:
        raise RoleError(f"both roles are {api}; expected one for the API and another one for the workers")
    for statement in grants(api, worker):
        connection.execute(text(statement))


_LOOK = text("select rolsuper, pg_has_role(rolname, current_user, 'member') from pg_roles where rolname = :role")
