"""Flipped bits of the record: each is found when it is read, none reaches a verdict, and `python -m
server.check` lists them all.
"""

from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, inspect, select, text, update

from server.check import __main__ as main_module
from server.check.__main__ import check, main
from server.database import states
from server.database.metrics import store
from server.database.tables import Chunk, ChunkColumn, Job, Run, table_of
from server.errors import DamagedError
from server.jobs.conclude import conclude, judge_again
from tests.conftest import THOROUGH

pytestmark = pytest.mark.both_databases


def _columns(count):
    rng = np.random.default_rng(3)
    return {name: rng.normal(2, 0.1, count) for name in ("lm_loss", "accuracy")}


@pytest.fixture
def run_id(database, recorded):
    """A run of a job with a packed chunk, one whose columns have rows of their own, and one that
    also has its steps in a row.
    """
    job_id = recorded({"nvfp4": 0.0}, steps=300, done=0)
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).order_by(Run.position).first()
        for steps in (np.arange(10), np.arange(10, 4106), 5000 + np.cumsum(np.arange(1, 4000))):
            store.append(session, run.id, "train", 1, steps, _columns(len(steps)))
        return run.id


class Cell:
    """A value of a row, that is changed as a disk might change it."""

    def __init__(self, owner_database, table, key, column):
        own = table_of(table)
        self._database, self._where, self._column = (
            owner_database,
            [own.c[name] == value for name, value in key.items()],
            own.c[column],
        )
        with owner_database.read() as session:
            self.value = (
                session.connection().execute(select(self._column).where(*self._where)).scalar_one()
            )

    def write(self, value):
        with self._database.write() as session:
            session.connection().execute(
                update(self._column.table).where(*self._where).values({self._column.name: value})
            )

    def flip(self, position, bit):
        changed = bytearray(self.value)
        changed[position % len(changed)] ^= 1 << bit
        self.write(bytes(changed))


def _rows(database, table):
    names = [column.name for column in inspect(table).primary_key]
    with database.read() as session:
        return [
            dict(zip(names, row, strict=True))
            for row in session.execute(select(*(table_of(table).c[name] for name in names)))
        ]


def _damage(database):
    return [damage for checked in check(database) for damage in checked.damage]


def _is_refused(database, run_id):
    with database.read() as session, pytest.raises(DamagedError, match=run_id):
        store.read(session, run_id, "train")


def test_an_intact_record_is_read_whole(database, run_id, capsys, monkeypatch, settings):
    monkeypatch.setattr(main_module, "settings_or_exit", lambda: settings)
    assert _damage(database) == []
    assert main([]) == 0
    assert "3 chunks read, 0 damaged" in capsys.readouterr().err


def test_each_flipped_bit_of_a_value_is_found(database, owner_database, run_id):
    rng = np.random.default_rng(5)
    places: list[tuple[Any, Any]] = [
        (Chunk, key) for key in _rows(database, Chunk) if key["first_step"] == 0
    ]
    places += [(ChunkColumn, key) for key in _rows(database, ChunkColumn)]
    assert len(places) == 1 + 2 + 3
    for table, key in places:
        cell = Cell(owner_database, table, key, "payload")
        for position in (0, 1, *rng.integers(2, 30_000, 40 if THOROUGH else 2)):
            cell.flip(int(position), int(rng.integers(8)))
            (found,) = _damage(database)
            assert run_id in found.what
            assert f"from step {key['first_step']}" in found.what
            _is_refused(database, run_id)
        cell.write(cell.value)
    assert _damage(database) == []


@pytest.mark.parametrize(
    ("table", "first", "column", "change"),
    [
        (Chunk, 0, "last_step", lambda value: value + 1),
        (Chunk, 10, "last_step", lambda value: value + 4096),
        (Chunk, 10, "count", lambda value: value - 1),
        (Chunk, 10, "columns", lambda value: [*value[:-1], "loss"]),
        (Chunk, 0, "columns", lambda value: [value[0], *reversed(value[1:])]),
        (Chunk, 0, "first_step", lambda value: value + 1),
        (Chunk, 0, "attempt_number", lambda value: value + 2),
        (Chunk, 0, "checksum", lambda value: value ^ 1),
        (ChunkColumn, 10, "checksum", lambda value: value ^ 1),
        (ChunkColumn, 10, "name", lambda value: value + "_"),
        # the steps of a chunk at uneven distances
        (ChunkColumn, 5001, "name", lambda value: "x" + value),
    ],
)
def test_what_is_said_of_values_is_covered_too(
    database, owner_database, run_id, table, first, column, change
):
    wanted = "lm_loss" if first == 10 else "step"
    key = next(
        each
        for each in _rows(database, table)
        if each["first_step"] == first and each.get("name", wanted) == wanted
    )
    cell = Cell(owner_database, table, key, column)
    cell.write(change(cell.value))
    _is_refused(database, run_id)
    assert _damage(database)


@pytest.mark.parametrize(
    ("column", "changed"),
    [
        ("run_id", "r-of-nobody"),
        ("kind", "trbin"),
        ("attempt_number", 0),
        ("last_step", -1),
        ("first_step", -5),
    ],
)
def test_what_hides_a_chunk_from_its_readers_is_found(
    database, owner_database, database_kind, run_id, column, changed
):
    """As a disk changes it, which asks for no constraint."""
    with owner_database.write() as session:
        store.append(session, run_id, "train", 1, np.arange(4106, 4110), _columns(4))
    own = table_of(Chunk)
    changes = update(own).where(own.c.first_step == 4106).values({column: changed})
    if database_kind == "postgresql":
        with owner_database.write() as session:
            session.execute(text("set local session_replication_role = replica"))
            session.connection().execute(changes)
    else:
        plain = create_engine(owner_database.engine.url)  # by itself SQLite checks no foreign key
        with plain.begin() as connection:
            connection.execute(text("pragma ignore_check_constraints = on"))
            connection.execute(changes)
        plain.dispose()
    (damage,) = _damage(database)
    assert any("backup" in remedy for remedy in damage.remedies)
    assert (changed if column == "run_id" else run_id) in damage.what


def test_a_column_that_was_not_asked_for_is_not_read(database, owner_database, run_id):
    key = next(each for each in _rows(database, ChunkColumn) if each["name"] == "accuracy")
    Cell(owner_database, ChunkColumn, key, "payload").flip(100, 3)
    with database.read() as session:
        assert len(store.read(session, run_id, "train", ["lm_loss"])[0]) == 10 + 4096 + 3999
    _is_refused(database, run_id)


def test_damage_is_not_merged_into_a_new_chunk(database, owner_database, run_id):
    with database.write() as session:
        store.append(session, run_id, "validation", 1, np.arange(4), {"loss": np.ones(4)})
        store.append(session, run_id, "validation", 1, np.arange(4, 8), {"loss": np.ones(4)})
    key = next(each for each in _rows(database, Chunk) if each["kind"] == "validation")
    Cell(owner_database, Chunk, key, "payload").flip(5, 5)
    with database.write() as session, pytest.raises(DamagedError):
        store.seal(session, run_id, "validation", 1)


def test_steps_from_before_there_were_checksums_are_read_as_they_are(
    database, owner_database, run_id
):
    with owner_database.write() as session:
        session.execute(update(Chunk).values(checksum=None))
        session.execute(update(ChunkColumn).values(checksum=None))
    assert sum(checked.unchecked for checked in check(database)) == 3
    with database.read() as session:
        assert len(store.read(session, run_id, "train")[0]) == 10 + 4096 + 3999


def test_a_damaged_curve_is_a_code_and_no_verdict_until_it_is_restored(
    api, database, owner_database, recorded, capsys, monkeypatch, settings
):
    job_id = recorded({"nvfp4": 0.0})
    key = next(each for each in _rows(database, ChunkColumn) if each["name"] == "lm_loss")
    cell = Cell(owner_database, ChunkColumn, key, "payload")
    cell.flip(700, 2)
    assert conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.code, job.verdicts, job.judge_tries) == (
            "failed",
            states.RECORD_DAMAGED,
            [],
            0,
        )
        assert key["run_id"] in job.message
    page = api.get(f"/jobs/{job_id}")
    assert (page.status_code, states.RECORD_DAMAGED in page.text) == (200, True)
    answer = api.get(f"/api/v1/runs/{key['run_id']}/metrics?names=lm_loss")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:parity:problem:damaged")
    monkeypatch.setattr(main_module, "settings_or_exit", lambda: settings)
    assert main([]) == 1
    said = capsys.readouterr()
    assert job_id in said.out
    assert "backup" in said.out
    assert "1 damaged" in said.err
    cell.write(cell.value)
    assert main([]) == 0
    with database.write() as session:
        judge_again(session, job_id)
    assert conclude(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).status == "concluded"
