"""What only a SQLite file can suffer is found: PostgreSQL refuses it, or checks its own pages."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from server.check.__main__ import check
from server.database.tables import Run
from server.jobs.conclude import conclude


@pytest.fixture
def file(database, recorded):
    """The database file of a concluded job."""
    assert conclude(database, recorded({"nvfp4": 0.01}))
    return Path(database.engine.url.database)


def damage_of(database):
    return [damage.what for checked in check(database) for damage in checked.damage]


def change(file, sql):
    """As another program changes a file: without the rules of the tables."""
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(sql)


def test_an_intact_file_has_no_damage(database, file):
    assert damage_of(database) == []


def test_json_that_cannot_be_parsed_is_found_by_its_row(database, file):
    with database.read() as session:
        run_id = session.query(Run.id).filter(Run.position == 0).scalar()
    change(file, f"UPDATE runs SET manifest = '{{' WHERE id = '{run_id}'")
    assert any(f"table runs, row {run_id}" in what for what in damage_of(database))


def test_a_row_that_belongs_to_nobody_is_found(database, file):
    change(file, "UPDATE verdicts SET job_id = 'j-of-nobody'")
    assert [what for what in damage_of(database) if "table verdicts, row" in what], damage_of(
        database
    )


def test_an_index_without_its_row_is_found(database, file):
    change(file, "PRAGMA writable_schema = on")
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA writable_schema = on")
        connection.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = "
            "'jobs_by_end') WHERE name = 'jobs_by_gap'"
        )
    database.engine.dispose()
    assert any("cannot be read" in what for what in damage_of(database))


def test_a_zeroed_page_of_the_verdicts_is_found(database, file):
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'verdicts'"
        ).fetchone()
        database.engine.dispose()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with file.open("r+b") as content:
        content.seek((root - 1) * size)
        content.write(bytes(size))
    assert any("the database file" in what for what in damage_of(database))
