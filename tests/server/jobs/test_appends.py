"""Appends of many runs at once: each under its own fence, none waits for another run's lock, and no
bit of a curve changes.
"""

import threading
import time

import numpy as np
import pytest
from sqlalchemy import func, select

from parity.judging.curves.outside_plan import last_recorded
from server.database.metrics import store
from server.database.states import begin_attempt
from server.database.tables import Attempt, Chunk, Job, Run
from server.errors import ConflictError, InvalidError, NotFoundError, StaleAttemptError
from server.jobs import external
from server.jobs.external import Batch
from server.jobs.fingerprint import unsound

pytestmark = pytest.mark.both_databases


@pytest.fixture
def runs(database, recorded):
    """Four runs that train, each in its second attempt."""
    job_id = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.engine = "external"
        for run in job.runs:
            run.attempt_number, run.lease_expires_at, run.capability = (
                2,
                time.time() + 60,
                "external",
            )
            begin_attempt(session, run.id, 1, None)
            begin_attempt(session, run.id, 2, None)
        return [run.id for run in job.runs]


@pytest.fixture
def append(database, settings):
    """A function that appends steps of a run in a transaction of their own; returns the number of
    new ones.
    """

    def write(run_id, steps, loss=1.5, attempt_number=2):
        at = np.atleast_1d(np.asarray(steps))
        batch = Batch(
            steps=at,
            columns={
                "loss": np.broadcast_to(loss, len(at)).astype(np.float64),
                "grad_norm": 0.1 * at,
            },
        )
        with database.write() as session:
            return external.append(session, settings, run_id, attempt_number, "train", batch)[0]

    return write


def _read(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train")
    return steps.tolist(), columns


def test_steps_progress_and_lease_are_written_together(database, settings, append, runs):
    for at, run_id in enumerate(runs):
        assert append(run_id, [0, 1, 2], loss=1.1 + at) == 3
    assert append(runs[0], 3, loss=np.nan) == 1
    for at, run_id in enumerate(runs):
        steps, columns = _read(database, run_id)
        assert steps == [0, 1, 2, 3][: 4 if at == 0 else 3]
        assert columns["grad_norm"].tobytes() == (0.1 * np.arange(len(steps))).tobytes()
        assert columns["lm_loss"][:3].tolist() == [1.1 + at] * 3
    with database.read() as session:
        run = session.get_one(Run, runs[0])
        assert (run.steps_done, run.last_loss) == (4, "nan")
        assert run.recorded_at == pytest.approx(
            run.lease_expires_at - settings.external_stale_seconds
        )
        assert run.steps_per_second > 0


@pytest.mark.parametrize("kind", ["train", "validation"])
def test_steps_a_little_above_the_plan_are_recorded_and_later_ones_are_left_out(
    database, settings, runs, kind
):
    with database.read() as session:
        planned = session.get_one(Run, runs[0]).planned_steps
    last = last_recorded(planned)

    def send(steps):
        with database.write() as session:
            batch = Batch(steps=np.array(steps), columns={"loss": 0.5 * np.array(steps)})
            return external.append(session, settings, runs[0], 2, kind, batch)

    def run():
        with database.read() as session:
            found = session.get_one(Run, runs[0])
            return found.state, found.code, found.message

    assert planned < planned + 1 < last
    assert send([planned - 1, planned, planned + 1]) == (3, 0)
    assert run() == ("running", None, None)
    assert send([2 * planned, 0, last + 1, last]) == (2, 2)
    assert send([10 * planned]) == (0, 1)
    assert send([last, last + 1]) == (0, 1)  # once more
    with database.read() as session:
        steps, columns = store.read(session, runs[0], kind)
    assert steps.tolist() == [0, planned - 1, planned, planned + 1, last]
    assert columns["loss" if kind == "validation" else "lm_loss"].tolist() == (0.5 * steps).tolist()
    state, code, message = run()
    assert (state, code) == ("running", "STEPS_ABOVE_PLAN")
    assert f"{planned:,} steps" in message
    assert f"step {last + 1:,}" in message
    assert f"up to {last:,}" in message
    with database.write() as session:
        session.get_one(Run, runs[0]).planned_steps = None  # nobody has stated it
    assert send([last + 1]) == (1, 0)


def test_a_run_whose_trainer_went_on_ends_and_says_so(database, settings, runs):
    for at, run_id in enumerate(runs[:2]):
        with database.write() as session:
            planned = session.get_one(Run, run_id).planned_steps
            steps = np.arange(planned + 2 if at == 0 else 2 * planned)
            external.append(
                session,
                settings,
                run_id,
                2,
                "train",
                Batch(steps=steps, columns={"loss": np.ones(len(steps))}),
            )
        with database.write() as session:
            external.finish(session, settings, run_id, 2, "finished")
    with database.read() as session:
        ends = [session.get_one(Run, run_id) for run_id in runs[:2]]
        assert [(run.state, run.code, run.steps_done) for run in ends] == [
            ("finished", None, planned),
            ("finished", "STEPS_ABOVE_PLAN", planned),
        ]
        assert session.get_one(Attempt, (runs[1], 2)).message == ends[1].message
        assert unsound(session, ends[0]) is None
        # its curve answers no other question
        assert "STEPS_ABOVE_PLAN" in unsound(session, ends[1])


def test_only_the_running_attempt_is_written(database, append, runs):
    assert append(runs[0], 5) == 1
    with database.write() as session:
        session.get_one(Run, runs[1]).state = "finished"
    assert append(runs[0], [5, 6]) == 1
    for run_id, attempt_number in ((runs[1], 2), (runs[2], 1)):
        with pytest.raises(StaleAttemptError):
            append(run_id, 0, attempt_number=attempt_number)
    assert append(runs[3], 0) == 1
    assert [_read(database, run_id)[0] for run_id in runs] == [[5, 6], [], [], [0]]


def test_a_run_that_a_worker_trains_is_not_written(database, append, runs):
    with database.write() as session:
        session.get_one(Run, runs[0]).capability = "cpu"
    with pytest.raises(InvalidError, match="which a worker trains"):
        append(runs[0], 0)
    assert _read(database, runs[0])[0] == []


def test_a_locked_run_and_a_locked_job_stop_no_other_run(database, database_kind, append, runs):
    if database_kind == "sqlite":
        pytest.skip("SQLite has one lock for all")
    with database.write() as other:
        run = other.get_one(Run, runs[0], with_for_update=True)
        other.get_one(Job, run.job_id, with_for_update=True)
        assert append(runs[1], 0) == 1
    assert _read(database, runs[1])[0] == [0]


def test_chunks_stay_few_and_the_curve_is_the_same(database, append, runs):
    losses = np.random.default_rng(0).normal(size=2 * store.SMALL_CHUNKS + 5)
    for step, loss in enumerate(losses):
        assert append(runs[0], step, loss=loss) == 1
    assert _read(database, runs[0])[1]["lm_loss"].tobytes() == losses.tobytes()
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Chunk)) <= store.SMALL_CHUNKS


def test_every_step_is_recorded_once_however_many_trainers_send_it_at_once(database, append, runs):
    """Two trainers send every step of each run twice and in different batches; one of an earlier
    attempt sends forged ones.
    """
    refused = []

    def send(run_id, attempt_number, size, loss):
        for first in range(0, 24, size):
            steps = np.arange(first, first + size)
            try:
                append(run_id, steps, loss + 0.1 * steps, attempt_number)
            except (StaleAttemptError, ConflictError) as error:
                refused.append(error)

    senders = [
        (run_id, *more) for run_id in runs for more in ((2, 1, 1.0), (2, 3, 1.0), (1, 2, 9.0))
    ]
    threads = [threading.Thread(target=send, args=sender) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(error) for error in refused} == {StaleAttemptError}
    assert len(refused) == 12 * len(runs)
    with database.read() as session:
        assert set(session.scalars(select(Chunk.attempt_number))) == {2}
        assert session.scalar(select(func.sum(Chunk.count))) == 24 * len(runs)
        assert session.scalar(
            select(func.count()).select_from(Attempt).where(Attempt.attempt_number == 2)
        ) == len(runs)
    for run_id in runs:
        steps, columns = _read(database, run_id)
        assert steps == [*range(24)]
        assert columns["lm_loss"].tobytes() == (1.0 + 0.1 * np.arange(24)).tobytes()


@pytest.mark.parametrize("odd", ['r"\\', "r,{NULL}", "r'--", "NULL", ""])
def test_a_run_id_of_any_characters_is_only_unknown(append, odd):
    with pytest.raises(NotFoundError):
        append(odd, 0)
