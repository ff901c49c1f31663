"""Addresses of the database and of the broker: what is wrong with one, without its password."""

import re
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

_DATABASES = ("postgresql+psycopg", "postgresql", "sqlite", "sqlite+pysqlite")
_BROKERS = ("redis", "rediss", "redis+socket")
_DATABASE = "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:////PATH"
_BROKER = "redis://:PASSWORD@HOST:PORT/0, rediss://... for TLS, or redis+socket:///PATH"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30})://", re.IGNORECASE)


def check_database_url(url: str) -> None:
    """Raises PydanticCustomError for a URL with which no database can be opened."""
    _check_scheme(url, _DATABASES, _DATABASE)
    try:
        make_url(url)
    except (ArgumentError, ValueError):
        raise _wrong(f"cannot be parsed as a URL; expected {_DATABASE}") from None


def check_broker_url(url: str) -> None:
    """Raises PydanticCustomError for a URL with which no broker can be reached."""
    _check_scheme(url, _BROKERS, _BROKER)
    try:
        parts = urlsplit(url)
        number = parts.port
    except ValueError:
        raise _wrong(f"has a port that is not a number up to 65535; expected {_BROKER}") from None
    if parts.scheme == "redis+socket":
        return
    database = parts.path.strip("/")
    if number == 0 or (database and not (database.isascii() and database.isdecimal())):
        raise _wrong(f"has a wrong port or number of a database; expected {_BROKER}")


def _check_scheme(url: str, known: tuple[str, ...], expected: str) -> None:
    # Only the scheme is shown: the rest may be a password.
    match = _SCHEME.match(url)
    if match is None:
        raise _wrong(f"does not begin with a scheme and ://; expected {expected}")
    if match[1].lower() not in known:
        raise _wrong(f"begins with {match[1]}://; expected {expected}")


def _wrong(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("setting_url", "{sentence}", {"sentence": sentence})
