"""Failures of a database that pass by themselves, or once an operator has mended it: which errors
they are, and why in words.

A full disk is an error of its own, `DatabaseFullError`: the database answers, and waiting alone
does not help.
"""

import sqlite3

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

OUTAGES = (OperationalError, InterfaceError, PoolTimeoutError)
READ_ONLY = "25006"  # SQLSTATE read_only_sql_transaction: a standby, for example after a failover
DISK_FULL = "53100"  # SQLSTATE disk_full
_TOO_LONG = "57014"  # SQLSTATE query_canceled, by the limit of a statement
_LONGEST = 300  # characters of the database's own words


class DatabaseFullError(OperationalError):
    """The disk of the database is full: it can be read, and writes fail."""


def passes(error: SQLAlchemyError) -> bool:
    """Whether the same read or write may succeed later; not where the statement itself is wrong,
    which SQLite reports as the same kind of error as an outage.
    """
    return isinstance(error, OUTAGES) and _sqlite_code(error) != sqlite3.SQLITE_ERROR


def reason(error: SQLAlchemyError) -> str:
    """Why the database cannot be read or written, with its own words."""
    original = getattr(error, "orig", None)
    words = str(error if original is None else original).strip().partition("\n")[0][:_LONGEST]
    return f"{cause(error)} ({words})"


def cause(error: SQLAlchemyError) -> str:
    """The same without the database's own words, which may name hosts and users."""
    if isinstance(error, DatabaseFullError):
        return "the disk of the database is full"
    if isinstance(error, PoolTimeoutError):
        return "all database connections of this process are in use"
    code, state = _sqlite_code(error), getattr(getattr(error, "orig", None), "sqlstate", None)
    if state == READ_ONLY or code == sqlite3.SQLITE_READONLY:
        return "the database is read-only, as a standby is"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another process holds the lock of the database"
    if code == sqlite3.SQLITE_ERROR:
        return "the database refused a statement"
    if code is not None:
        return "the file of the database cannot be used"
    if state == _TOO_LONG:
        return "the database took too long"
    return "the database is unreachable" if state is None else "the database is not available"


def _sqlite_code(error: SQLAlchemyError) -> int | None:
    """SQLite's primary result code; None of any other database."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
