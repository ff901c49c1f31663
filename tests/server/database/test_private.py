"""The file of an SQLite database: only its owner reads it, also one that an earlier version
made.
"""

import sqlite3
import stat
from contextlib import closing

import pytest
from alembic import command

from server.database.sessions import Database, keep_private
from server.readiness import alembic_config
from server.settings import Settings


def _modes(folder):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_new_database_is_its_owners_only(tmp_path):
    with (
        closing(Database(f"sqlite:///{tmp_path / 'parity.db'}")) as database,
        database.write() as session,
    ):
        session.connection().exec_driver_sql("create table t (x)")
        assert _modes(tmp_path) == dict.fromkeys(
            ("parity.db", "parity.db-wal", "parity.db-shm"), 0o600
        )


def test_one_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "parity.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("pragma journal_mode=wal; create table t (x)")
    path.chmod(0o644)
    with closing(Database(f"sqlite:///{path}")) as database, database.read() as session:
        session.connection()
        assert set(_modes(tmp_path).values()) == {0o600}


def test_the_migrations_make_it_private(tmp_path):
    settings = Settings(state_dir=tmp_path, database_url="", redis_url="redis://unused")
    command.upgrade(alembic_config(settings.database), "head")
    assert _modes(tmp_path)["parity.db"] == 0o600


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:////no/such/folder/parity.db"]
)
def test_without_a_file_there_is_nothing_to_do(url):
    keep_private(url)
