"""Runs the migrations: on the URL that the caller configured, else on the one that the settings give."""

from alembic import context
from sqlalchemy import make_url, pool
from sqlalchemy.engine import create_engine

from server.database.sessions import keep_private
from server.database.tables import Base
from server.settings import Settings

url = context.config.get_main_option("sqlalchemy.url") or Settings().database

if context.is_offline_mode():
    context.configure(url=url, target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    if make_url(url).get_backend_name() == "sqlite":
        keep_private(url)
    with create_engine(url, poolclass=pool.NullPool).connect() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=connection.dialect.name == "sqlite")
        with context.begin_transaction():
            context.run_migrations()
