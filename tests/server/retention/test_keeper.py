"""The keeper's turns, and the command."""

import sys
import time
from types import SimpleNamespace

import pytest

from server.database.tables import Chunk, IdempotencyKey, Job
from server.retention import __main__ as command
from server.retention import keeper as keeper_module
from server.retention import rows
from server.retention.batch import DeletionBatch, slices
from server.retention.keeper import DatabaseRetention, plan

OLD = 40 * 86_400


@pytest.fixture
def old_keys(database, recorded):
    """Idempotency keys that are 40 days old, and the job that they are of."""
    job_id = recorded({"nvfp4": 0.0}, done=1)
    with database.write() as session:
        for number in range(5):
            row = IdempotencyKey(
                principal="me",
                key=f"{number}",
                body_digest="",
                job_id=job_id,
                created_at=time.time() - OLD,
            )
            session.add(row)
    return job_id


def _left(database):
    with database.read() as session:
        return session.query(IdempotencyKey).count()


def test_a_turn_is_short_and_the_next_one_goes_on(database, settings, old_keys, monkeypatch):
    monkeypatch.setattr(rows, "slices", lambda items: slices(items, 1))
    now = iter(range(10**6))
    monkeypatch.setattr(
        "server.retention.keeper.time", SimpleNamespace(monotonic=lambda: next(now))
    )
    monkeypatch.setattr(keeper_module, "_SECONDS_AT_ONCE", 1.5)  # one batch a turn, by this clock
    keeper = DatabaseRetention(settings, database)
    left = []
    for _ in range(5):
        keeper.work()
        left.append(_left(database))
    assert left == [4, 3, 2, 1, 0]


def test_after_the_last_batch_it_rests_for_an_hour(database, settings, old_keys):
    keeper = DatabaseRetention(settings, database)
    keeper.work()
    assert _left(database) == 0
    with database.write() as session:
        session.add(
            IdempotencyKey(
                principal="me",
                key="again",
                body_digest="",
                job_id=old_keys,
                created_at=time.time() - OLD,
            )
        )
    keeper.work()
    assert _left(database) == 1


def test_what_cannot_be_deleted_does_not_keep_the_rest(database, settings, old_keys, monkeypatch):
    def broken(_session):
        raise RuntimeError("a lock")

    batches = [*plan(settings, database)]
    impossible = DeletionBatch(what="job", of="j1", rows=1, size_bytes=0, why="", delete=broken)
    monkeypatch.setattr(keeper_module, "plan", lambda *_: iter([impossible, *batches]))
    DatabaseRetention(settings, database).work()
    assert _left(database) == 0


def test_the_list_is_printed_and_nothing_is_deleted_without_apply(
    database, kept, recorded, monkeypatch, capsys
):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "cancelled", time.time() - OLD
    monkeypatch.setattr(command, "settings_or_exit", lambda: kept)
    for arguments, left in ((), 4), (("--apply",), 2):
        monkeypatch.setattr(sys, "argv", ["retention", *arguments])
        assert command.main() == 0
        with database.read() as session:
            assert session.query(Chunk).count() == left
        assert "the job has ended without a verdict (cancelled)" in capsys.readouterr().out


def test_a_database_that_cannot_be_opened_is_one_line(settings, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        command,
        "settings_or_exit",
        lambda: settings.model_copy(
            update={"database_url": f"sqlite:///{tmp_path}/none/parity.db"}
        ),
    )
    monkeypatch.setattr(sys, "argv", ["retention"])
    assert command.main() == 1
    assert capsys.readouterr().err.count("\n") == 1
