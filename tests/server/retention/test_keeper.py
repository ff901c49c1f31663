"""The keeper's turns, and the command."""

import sys
import time
from types import SimpleNamespace

import pytest

from server.database.tables import Chunk, Event, IdempotencyKey, Job
from server.retention import __main__ as command
from server.retention import curves, rows
from server.retention import keeper as keeper_module
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


@pytest.mark.postgresql
@pytest.mark.parametrize("chunks_at_once", [50, 1])
def test_the_list_is_exactly_what_is_deleted(
    database, kept, recorded, monkeypatch, capsys, chunks_at_once
):
    """Jobs with curves and keys, one of them a look whose verdicts stay, and a job whose curve
    another one that goes reuses; long curves go in parts.
    """
    monkeypatch.setattr(curves, "CHUNKS_AT_ONCE", chunks_at_once)
    jobs = [recorded({"nvfp4": 0.0}) for _ in range(4)]
    with database.write() as session:
        for number, job_id in enumerate(jobs):
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "cancelled", time.time() - (1 + number / 10) * OLD
            session.query(Event).filter(Event.job_id == job_id).update(
                {Event.created_at: Event.created_at - OLD}
            )
            session.add(
                IdempotencyKey(
                    principal="me",
                    key=job_id,
                    body_digest="",
                    job_id=job_id,
                    created_at=time.time() - OLD,
                )
            )
        look, user, used, young = (session.get_one(Job, job_id) for job_id in jobs)
        look.status, look.look = "concluded", 1
        user.runs[0].reused_from = used.runs[0].id
        used.runs[1].state = "failed"
        young.finished_at = time.time() - 0.85 * OLD
    settings = kept.model_copy(update={"retention_job_days": 36.0})
    monkeypatch.setattr(command, "settings_or_exit", lambda: settings)
    told = []
    for arguments in ((), ("--apply",)):
        monkeypatch.setattr(sys, "argv", ["retention", *arguments])
        assert command.main() == 0
        out, error = capsys.readouterr()
        told.append((out, error.split(" values ")[0]))
    assert [*told[0][0].splitlines(), told[0][1]] == [*told[1][0].splitlines(), told[1][1]]
    lines = [line.split("\t")[:2] for line in told[0][0].splitlines()]
    assert [of for what, of in lines if what == "job"] == [user.id]
    assert ["curve", look.id] in lines
    assert ["curve", used.runs[1].id] in lines
    with database.read() as session:
        assert session.get(Job, user.id) is None
        assert {session.get(Job, job_id) is None for job_id in (look.id, used.id)} == {False}
