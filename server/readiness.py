"""Readiness checks: the database, its migrations and the broker."""

from __future__ import annotations

import logging
from functools import cache

import redis
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from kombu.utils.url import parse_url
from sqlalchemy.exc import SQLAlchemyError

from server.database.sessions import Database
from server.settings import CHECKOUT, Settings

_log = logging.getLogger(__name__)


def alembic_config(url: str) -> Config:
    """Alembic's configuration for a database."""
    config = Config(CHECKOUT / "alembic.ini")
    config.set_main_option("script_location", str(CHECKOUT / "migrations"))
    # Alembic interpolates %; a URL may have a %-escaped password.
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def problems(settings: Settings, database: Database) -> list[str]:
    """One sentence per part that is not ready; empty if all are."""
    return [sentence for sentence in (_database_problem(database), _broker_problem(settings.redis)) if sentence]


def _database_problem(database: Database) -> str | None:
    expected = _heads()
    try:
        with database.engine.connect() as connection:
            current = set(MigrationContext.configure(connection).get_current_heads())
    except SQLAlchemyError as error:
        # This needs no token, so hosts and users appear in the log only, not in the response.
        _log.warning("the database does not answer: %s", error)
        return "the database does not answer; see the server's log for the reason"
    if current != expected:
        return f"the database is at migration {', '.join(current) or 'none'}, expected {', '.join(expected)}: run `alembic upgrade head`"
    return None


@cache
def _heads() -> frozenset[str]:
    """The newest migrations of this version; read once, since a readiness check comes every few seconds."""
    return frozenset(ScriptDirectory.from_config(alembic_config("")).get_heads())


def _broker_problem(url: str) -> str | None:
    try:
        redis_client(url).ping()
    except redis.RedisError as error:
        _log.warning("the broker does not answer: %s", error)
        return "the broker does not answer; see the server's log for the reason"
    return None


def redis_client(url: str) -> redis.Redis:
    """A client for the broker's URL; kombu spells a unix socket `redis+socket://`, the client `unix://`."""
    if url.startswith("redis+socket://"):
        return redis.Redis(unix_socket_path="/" + parse_url(url)["virtual_host"].lstrip("/"), socket_timeout=3)
    return redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3)
