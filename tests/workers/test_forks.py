"""Forks by real workers: from the checkpoint that a parent kept, with the bits of the run from step 0, resumed like any run."""

import shutil
import threading

import pytest

from server.database import store
from server.database.tables import Job, Run
from server.jobs.conclude import conclude
from server.jobs.forks import ForkedArm, Forks, submit_forks
from training.overrides import Override
from training.spec import Arm
from workers import lease, supervisor
from workers.slots import Slot

STEPS, STEP, UNTIL = 30, 12, 20
TO_FP8 = Override(recipe="fp8_current", projections=("gate", "up", "down"), from_step=STEP)


@pytest.fixture
def train(settings, database, make_worker):
    """A function that claims and trains the next runs until none is left; returns their ids and states."""
    worker = make_worker()

    def train_all():
        trained = []
        while True:
            with database.write() as session:
                held = lease.claim(session, worker, settings.lease_seconds)
            if held is None:
                return trained
            supervisor.train(settings, database, held, Slot(), threading.Event())
            with database.read() as session:
                run = session.get_one(Run, held.run_id)
                trained.append((run.id, run.state, run.code))

    return train_all


def curve(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train", ["lm_loss"])
    return steps.tolist(), columns["lm_loss"].tolist()


def test_forks_start_from_what_their_parent_kept(database, settings, submit, train):
    """One arm is the fork's own specification, trained from step 0."""
    job_id = submit(
        steps=STEPS,
        baseline=Arm(recipe="nvfp4_no_sr", name="parent"),
        candidates=(Arm(recipe="nvfp4_no_sr", name="whole", overrides=(TO_FP8,)),),
        keep_checkpoints=(STEP,),
    )
    (parent, *_), (whole, *_) = train()
    with database.read() as session:
        assert session.get_one(Run, parent).kept_checkpoints == [STEP]
    assert [path.name for path in (settings.checkpoints / parent).iterdir()] == ["kept"]
    conclude(database, job_id)
    order = Forks(job=job_id, arm="parent", step=STEP, until=UNTIL, draws=1, arms=(ForkedArm(name="fp8", changes=(TO_FP8,)),))
    with database.write() as session:
        forks = submit_forks(session, order).id
        for run in session.get_one(Job, forks).runs:
            run.fork_draw = 0  # the parent's random numbers, so that the fork equals the run from step 0
    (unchanged, *end), (to_fp8, *same) = train()
    assert end == same == ["finished", None]
    steps = list(range(STEP, UNTIL))
    assert curve(database, unchanged) == (steps, curve(database, parent)[1][STEP:UNTIL])
    assert curve(database, to_fp8) == (steps, curve(database, whole)[1][STEP:UNTIL])
    conclude(database, forks)
    with database.read() as session:
        assert (session.get_one(Job, forks).status, session.get_one(Job, forks).verdicts) == ("concluded", [])
    # A parent whose checkpoint is gone.
    shutil.rmtree(settings.checkpoints / parent)
    with database.write() as session:
        submit_forks(session, order)
    assert [run[1:] for run in train()] == [("failed", "CHECKPOINT_NOT_FOUND")] * 2
