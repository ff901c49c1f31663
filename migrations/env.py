"""Runs the migrations: on the URL that the caller configured, else on the one that the settings
give.

The first migration makes the tables of the first release. A database of an earlier, unreleased
version is refused with what to do.
"""

from alembic import context
from alembic.util import CommandError
from sqlalchemy import make_url, pool
from sqlalchemy.engine import create_engine

from server.database.sessions import keep_private
from server.database.tables import Base
from server.process_settings import settings_or_exit

FIRST = "0045"
LAST_WITH_EARLIER = "cb59f32b"
"""The last commit that has the migrations before the first."""


def refuse_earlier() -> None:
    """Raise CommandError for a database that no migration here begins at."""
    version = context.get_context().get_current_revision()
    if version is not None and version < FIRST:
        raise CommandError(
            f"the database is at migration {version}, of before the first release, which this "
            f"version cannot upgrade; expected {FIRST} or later: begin a new database, or upgrade "
            f"this one first, with `alembic upgrade {FIRST}` in a checkout of {LAST_WITH_EARLIER}"
        )


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
            refuse_earlier()
            context.run_migrations()
