"""Flushes of many runs in one transaction: each under its own fence, none waits for another's lock, and no bit of a curve changes."""

import threading
import time

import numpy as np
import pytest
from sqlalchemy import func, select, text

from server.database import flushes, store
from server.database.flushes import Flush, Flushes
from server.database.states import begin_attempt
from server.database.tables import Attempt, Chunk, Job, Run
from server.errors import ConflictError, InvalidError, StaleAttemptError
from server.jobs import external
from server.jobs.external import Batch

pytestmark = pytest.mark.both_databases


@pytest.fixture
def runs(database, recorded):
    """Four runs that train, each in its second attempt."""
    job_id = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.engine = "external"
        for run in job.runs:
            run.epoch, run.lease_expires_at, run.capability = 2, time.time() + 60, "external"
            begin_attempt(session, run.id, 1, None)
            begin_attempt(session, run.id, 2, None)
        return [run.id for run in job.runs]


def _flush(run_id, step, loss=1.5, epoch=2):
    steps = np.atleast_1d(np.asarray(step, np.float64))
    columns = {"step": steps, "lm_loss": np.full(len(steps), loss), "grad_norm": 0.1 * steps}
    return Flush(run_id=run_id, epoch=epoch, columns=columns, last_loss=repr(loss))


def _write(database, *some):
    with database.write() as session:
        return flushes.write(session, some, 60.0)


def _read(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train")
    return steps.tolist(), columns


def test_steps_progress_and_lease_are_written_together(database, runs):
    assert None not in _write(database, *(_flush(run_id, [0, 1, 2], loss=1.1 + at) for at, run_id in enumerate(runs)))
    assert None not in _write(database, _flush(runs[0], 3, loss=np.nan))
    for at, run_id in enumerate(runs):
        steps, columns = _read(database, run_id)
        assert steps == [0, 1, 2, 3][: 4 if at == 0 else 3]
        assert columns["grad_norm"].tobytes() == (0.1 * np.arange(len(steps))).tobytes()
        assert columns["lm_loss"][:3].tolist() == [1.1 + at] * 3
    with database.read() as session:
        run = session.get_one(Run, runs[0])
        assert (run.steps_done, run.last_loss) == (4, "nan")
        assert run.recorded_at == pytest.approx(run.lease_expires_at - 60)
        assert run.steps_per_second > 0


def test_what_is_not_new_steps_of_the_running_attempt_is_not_written_and_stops_nobody(database, runs):
    _write(database, _flush(runs[0], 5))
    with database.write() as session:
        session.get_one(Run, runs[1]).state = "finished"
    written = _write(database, _flush(runs[0], [5, 6]), _flush(runs[1], 0), _flush(runs[2], 0, epoch=1), _flush(runs[3], 0))
    assert [each is None for each in written] == [True, True, True, False]
    assert [_read(database, run_id)[0] for run_id in runs] == [[5], [], [], [0]]


def test_a_run_that_a_worker_trains_is_not_written(database, settings, runs):
    with database.write() as session:
        session.get_one(Run, runs[0]).capability = "cpu"
    assert _write(database, _flush(runs[0], 0)) == [None]
    with pytest.raises(InvalidError, match="which a worker trains"):
        external.record(
            database, Flushes(database, 60.0), settings, runs[0], 2, "train", Batch(steps=np.array([0]), columns={"loss": np.ones(1)})
        )
    assert _read(database, runs[0])[0] == []


def test_a_locked_run_is_left_out_and_a_locked_job_waits_for_nobody(database, database_kind, runs):
    if database_kind == "sqlite":
        pytest.skip("SQLite has one lock for all")
    with database.write() as other:
        run = other.get_one(Run, runs[0], with_for_update=True)
        other.get_one(Job, run.job_id, with_for_update=True)
        assert [each is None for each in _write(database, _flush(runs[0], 0), _flush(runs[1], 0))] == [True, False]
    assert _read(database, runs[1])[0] == [0]


def test_chunks_stay_few_and_the_curve_is_the_same(database, settings, runs):
    shared, count = Flushes(database, 60.0), 2 * store.SMALL_CHUNKS + 5
    losses = np.random.default_rng(0).normal(size=count)
    for step, loss in enumerate(losses):
        batch = Batch(steps=np.array([step]), columns={"loss": np.array([loss])})
        assert external.record(database, shared, settings, runs[0], 2, "train", batch) == 1
    assert _read(database, runs[0])[1]["lm_loss"].tobytes() == losses.tobytes()
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Chunk)) <= 2 + 6


@pytest.mark.parametrize(("count", "stride", "flushed"), [(1, 1, 64), (1, 10, 64), (5, 1, 64), (100, 1, 41), (200, 3, 21)])
def test_a_seal_is_due_after_so_many_flushes_whatever_their_size_and_stride(count, stride, flushed):
    due, last = [], None
    for number in range(4 * flushed):
        flush = _flush("r", stride * np.arange(number * count, (number + 1) * count))
        if flushes._seal_due(last, flush) is not None:
            due.append(number)
        last = flush.last_step
    assert len(due) in (3, 4)
    assert max(np.diff(due)) <= flushed + 1


def test_every_step_is_recorded_once_however_many_trainers_send_it_at_once(database, settings, runs):
    """Two trainers send every step of each run twice and in different batches; one of an earlier attempt sends forged ones."""
    shared, refused = Flushes(database, 60.0), []

    def send(run_id, epoch, size, loss):
        for first in range(0, 24, size):
            steps = np.arange(first, first + size)
            try:
                external.record(
                    database, shared, settings, run_id, epoch, "train", Batch(steps=steps, columns={"loss": loss + 0.1 * steps})
                )
            except (StaleAttemptError, ConflictError) as error:
                refused.append(error)

    senders = [(run_id, *more) for run_id in runs for more in ((2, 1, 1.0), (2, 3, 1.0), (1, 2, 9.0))]
    threads = [threading.Thread(target=send, args=sender) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(error) for error in refused} == {StaleAttemptError}
    assert len(refused) == 12 * len(runs)
    with database.read() as session:
        assert set(session.scalars(select(Chunk.epoch))) == {2}
        assert session.scalar(select(func.sum(Chunk.count))) == 24 * len(runs)
        assert session.scalar(select(func.count()).select_from(Attempt).where(Attempt.epoch == 2)) == len(runs)
    for run_id in runs:
        steps, columns = _read(database, run_id)
        assert steps == [*range(24)]
        assert columns["lm_loss"].tobytes() == (1.0 + 0.1 * np.arange(24)).tobytes()


def test_a_run_id_of_any_characters_is_only_unknown(database, runs):
    odd = ['r"\\', "r,{NULL}", "r'--", "NULL", ""]
    assert _write(database, *(_flush(run_id, 0) for run_id in odd), _flush(runs[0], 0))[:-1] == [None] * len(odd)
    assert _read(database, runs[0])[0] == [0]


def test_arrays_for_postgresql_hold_every_value_exactly(database):
    if database.engine.dialect.name == "sqlite":
        pytest.skip("arrays are PostgreSQL's")
    values = {
        "text[]": ['a"b\\c', "{,}", "NULL", None, "", " \u00e9\n"],
        "float8[]": [0.1, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), None],
        "bytea[]": [b"", bytes(range(256)), None],
        "bigint[]": [0, -1, 2**53],
    }
    with database.read() as session:
        for kind, given in values.items():
            assert session.scalar(text(f"select cast(:given as {kind})"), {"given": flushes._array(given)}) == given
