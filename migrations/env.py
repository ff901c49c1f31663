"""Runs the migrations: on the URL that the caller configured, else on the one that the settings
give.

There is one migration before the first release. A database at 0024, the last migration before it,
is brought to it; an older one is refused.
"""

import sqlalchemy as sa
from alembic import context
from alembic.util import CommandError
from sqlalchemy import make_url, pool
from sqlalchemy.engine import create_engine

from server.database.sessions import keep_private
from server.database.tables import Base
from server.process_settings import settings_or_exit

BEFORE, FIRST = "0024", "0025"


def adopt(connection: sa.Connection) -> None:
    """Bring a database at the last earlier migration to the first release's. Raises CommandError
    for an older one.
    """
    version = context.get_context().get_current_revision()
    if version is None or version >= FIRST:
        return
    if version != BEFORE:
        raise CommandError(
            f"the database is at migration {version}, which this version cannot upgrade; expected "
            f"{BEFORE} or later: upgrade it to {BEFORE} with a checkout that still has that "
            "migration, or begin a new database"
        )
    for column in ("fork_draw", "fork_step"):
        connection.execute(sa.text(f"ALTER TABLE runs DROP COLUMN {column}"))
    connection.execute(sa.text("UPDATE alembic_version SET version_num = :first"), {"first": FIRST})


url = context.config.get_main_option("sqlalchemy.url") or settings_or_exit().database

if context.is_offline_mode():
    context.configure(url=url, target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    if make_url(url).get_backend_name() == "sqlite":
        keep_private(url)
    # Behind a pooler a prepared statement stays with a process of the server that another client
    # gets next.
    pooled = {"prepare_threshold": None} if make_url(url).get_backend_name() == "postgresql" else {}
    with create_engine(url, poolclass=pool.NullPool, connect_args=pooled).connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=connection.dialect.name == "sqlite",
            on_version_apply=context.config.attributes.get("on_version_apply"),
        )
        with context.begin_transaction():
            adopt(connection)
            context.run_migrations()
