"""From steps to chunks: everything arrives, NaN too, and nothing after the fence."""

import math
from contextlib import contextmanager

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from server.database import events, run_progress
from server.database.metrics import chunk_tables, store
from server.database.tables import Chunk, Run
from training.step_values import StepStats
from workers import lease
from workers.lease import LeaseLostError
from workers.recorder import StepRecorder, write_all

pytestmark = pytest.mark.both_databases


@pytest.fixture
def database(worker_database):
    """These tests do what a worker does, with its rights."""
    return worker_database


def _step(step, loss=1.0, validation=None, layers=None):
    norms = ("learning_rate", "grad_norm", "clipped_grad_norm", "param_norm", "update_norm")
    rest = {
        "tokens": 64 * (step + 1),
        "validation_loss": validation,
        "layer_grad_norms": [0.25, float(step)],
        "layers": layers,
    }
    halves = dict.fromkeys((*norms, "step_seconds", "data_wait_seconds", "nonfinite_inputs"), 0.5)
    return StepStats(step=step, loss=loss, lm_loss=loss, **rest, **halves)


@pytest.fixture
def claim(database, submit, make_worker):
    submit()
    with database.write() as session:
        return lease.claim(session, make_worker(), 5.0)


def test_every_step_arrives_with_progress_and_no_event(database, claim):
    recorder = StepRecorder(database, claim, 5.0)
    for first in (0, 3):
        for step in range(first, first + 3):
            recorder.add(_step(step, loss=float(step), validation=9.0 if step == 4 else None))
        recorder.flush()
    recorder.flush()
    with database.read() as session:
        steps, columns = store.read(session, claim.run_id, "train")
        validated, validation = store.read(session, claim.run_id, "validation")
        run = session.get_one(Run, claim.run_id)
        kinds = {event.kind for event in events.after(session, claim.job_id, 0)}
        progress = run_progress.progress(session, [claim.job_id])
    assert steps.tolist() == list(range(6))
    assert columns["lm_loss"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert (validated.tolist(), validation["loss"].tolist()) == ([4], [9.0])
    assert (run.steps_done, run.last_loss) == (6, "5.0")
    assert "metric" not in kinds
    assert [(row.run_id, row.arm, row.step) for row in progress] == [(claim.run_id, claim.arm, 5)]


def test_nan_is_recorded(database, claim):
    recorder = StepRecorder(database, claim, 5.0)
    recorder.add(_step(0, loss=math.nan))
    recorder.flush()
    with database.read() as session:
        assert math.isnan(store.read(session, claim.run_id, "train")[1]["loss"][0])
        assert session.get_one(Run, claim.run_id).last_loss == "nan"


def test_after_the_fence_nothing_is_written(database, claim):
    recorder = StepRecorder(database, claim, 5.0)
    recorder.add(_step(0))
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, claim.run_id), "silent", attempt="crashed", max_attempts=3
        )
    with pytest.raises(LeaseLostError):
        recorder.flush()
    with database.read() as session:
        assert store.read(session, claim.run_id, "train")[0].size == 0
        assert run_progress.progress(session, [claim.job_id]) == []


def test_a_write_whose_commit_was_not_confirmed_is_recorded_once(database, claim):
    """The server took it and died before it said so, at every place where that can be; small chunks
    are being sealed meanwhile.
    """
    recorder, lost, write = StepRecorder(database, claim, 5.0), [False], database.write

    @contextmanager
    def unconfirmed():
        with write() as session:
            yield session
        lost[0] = not lost[0]
        if lost[0]:
            raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    database.write = unconfirmed
    at = 0
    while at < 2 * chunk_tables.SEALED_STEPS + 10:
        for _ in range(1500):
            recorder.add(_step(at, loss=float(at), validation=1.0 if at % 100 == 0 else None))
            at += 1
        while True:
            try:
                recorder.flush()
                break
            except OperationalError:
                continue
    with database.read() as session:
        for kind, every in (("train", 1), ("validation", 100)):
            assert store.read(session, claim.run_id, kind)[0].tolist() == list(range(0, at, every))
        assert store.read(session, claim.run_id, "train")[1]["loss"].tolist() == [
            float(step) for step in range(at)
        ]
        chunks = (
            select(func.count())
            .select_from(Chunk)
            .where(Chunk.run_id == claim.run_id, Chunk.kind == "train")
        )
        assert session.scalar(chunks) < at / 1500


def test_statistics_by_layer_are_recorded_under_its_names(database, claim):
    recorder = StepRecorder(database, claim, 5.0)
    recorder.name_layers(["0.up", "0.down"], ["x/amax", "x/snr_db", "grad/amax", "grad/snr_db"])
    for step in range(4):
        table = [[1.0, step, 2.0, math.inf], [3.0, 30.0, 4.0, math.nan]]
        recorder.add(_step(step, layers=table if step % 2 == 0 else None))
    recorder.flush()
    recorder.seal()
    with database.read() as session:
        steps, norms = store.read(session, claim.run_id, "layer_grad_norm")
        watched, layers = store.read(session, claim.run_id, "layers")
    assert steps.tolist() == [0, 1, 2, 3]
    assert norms["0.up"].tolist() == [0.25] * 4
    assert norms["0.down"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert watched.tolist() == [0, 2]
    assert layers["0.up/x/snr_db"].tolist() == [0.0, 2.0]
    assert layers["0.up/grad/snr_db"].tolist() == [math.inf] * 2
    assert layers["0.down/grad/amax"].tolist() == [4.0] * 2
    assert math.isnan(layers["0.down/grad/snr_db"][0])


def test_many_runs_are_written_at_once_and_nothing_of_those_that_are_lost_or_have_other_steps(
    database, submit, make_worker
):
    submit()
    worker = make_worker()
    with database.write() as session:
        claims = [lease.claim(session, worker, 5.0), lease.claim(session, worker, 5.0)]
    recorders = [StepRecorder(database, claim, 5.0) for claim in claims]
    for recorder in recorders:
        recorder.add(_step(0))
        recorder.add(_step(1, loss=2.0))
    with database.write() as session:
        assert write_all(session, recorders, 1000.0) == recorders
    for recorder in recorders:
        recorder.flushed()
        recorder.add(_step(2))
    first, second = (claim.run_id for claim in claims)
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, second), "silent", attempt="crashed", max_attempts=3
        )
    with database.write() as session:
        assert write_all(session, recorders, 1000.0) == recorders[:1]
        assert write_all(session, [], 1000.0) == []
    with database.read() as session:
        assert [store.read(session, run, "train")[0].tolist() for run in (first, second)] == [
            [0, 1, 2],
            [0, 1],
        ]
        run = session.get_one(Run, first)
        assert (run.steps_done, run.last_loss) == (3, "1.0")
        assert run.lease_expires_at > run.recorded_at + 900
    # restored from a backup: the steps since then would be missing
    with database.write() as session:
        session.get_one(Run, first).steps_done = 1
    recorders[0].flushed()
    recorders[0].add(_step(3))
    with database.write() as session:
        assert write_all(session, recorders[:1], 1000.0) == []
