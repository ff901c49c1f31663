"""A healing by a real worker: its forks are killed and go on, and each look is that of the arm that
is trained from step 0.
"""

import threading
import time

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from parity_lab.server.healed_runs import forks_of, joined
from parity_lab.server.healings import HealRequest, looks_of, submit_healing
from parity_lab.server.tables import Healing
from server.curves import judged_curves
from server.database.tables import Job, Run
from server.jobs.conclude import conclude
from server.jobs.submit import Order, submit_job
from training.later_recipe import LaterRecipe
from training.spec import ArmSpec
from workers import lease, supervisor
from workers.slots import Slot

STEPS, KEPT = 60, (24, 42)


@pytest.fixture
def train(settings, database, make_worker):
    """A function that claims and trains the next run, if there is one; returns its state.
    `stopping` ends the attempt.
    """
    worker = make_worker()
    often = settings.model_copy(update={"checkpoint_seconds": 0.01})

    def train_next(stopping=None):
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        if claim is None:
            return None
        supervisor.train(often, database, claim, Slot(), stopping or threading.Event())
        conclude(database, claim.job_id)
        with database.read() as session:
            run = session.get_one(Run, claim.run_id)
            return run.state, run.code, run.message

    return train_next


def stopped_after(database, run_id, steps, stopping):
    """Set `stopping` once the run has recorded so many steps."""
    deadline = time.monotonic() + 300
    while not stopping.is_set() and time.monotonic() < deadline:
        with database.read() as session:
            if session.get_one(Run, run_id).steps_done >= steps:
                stopping.set()
        time.sleep(0.02)


def test_a_healing_is_trained_killed_resumed_and_answered(
    database, owner_database, make_job, train
):
    later = tuple(
        ArmSpec(recipe="mxfp4", then=LaterRecipe(recipe="bf16", from_step=step)) for step in KEPT
    )
    spec = make_job(
        steps=STEPS,
        baseline=ArmSpec(recipe="bf16"),
        candidates=(ArmSpec(recipe="mxfp4"), *later),
        keep_checkpoints=KEPT,
    )
    with owner_database.write() as session:
        policy = policy_from_mapping({"margin": "0.0001 nats"})
        job = submit_job(session, spec, policy, order=Order(reuse=False)).id
    assert {train()[0] for _ in range(4)} == {"finished"}
    with database.write() as session:
        healing = submit_healing(session, job, HealRequest(candidate="mxfp4"))[0].id
        first = next(run for run in session.get_one(Job, healing).runs if run.state == "queued")
        first_id, switch = first.id, first.arm.then.from_step
    stopping = threading.Event()
    watching = threading.Thread(
        target=stopped_after, args=(database, first_id, switch + 1, stopping)
    )
    watching.start()
    train(stopping)
    watching.join()
    with database.read() as session:
        run = session.get_one(Run, first_id)
        assert (run.state, run.attempt_number) in (("queued", 1), ("finished", 1))
    while (ended := train()) is not None:
        assert ended == ("finished", None, None)
    with database.read() as session:
        row = session.get_one(Job, healing)
        assert (row.status, row.code, row.verdicts) == ("concluded", None, [])
        answer = session.get_one(Healing, healing).answer
        assert answer["complete"]
        looks = looks_of(session, healing)
        assert {look.step for look in looks} <= set(KEPT)
        origin = session.get_one(Job, job)
        for arm in row.arms[1:]:
            forks = [run for run in forks_of(arm) if run.state == "finished"]
            whole = next(other for other in origin.arms[2:] if other.then == arm.then)
            for fork in forks:
                parent = session.get_one(Run, fork.forked_from)
                before, after = judged_curves.curves(session, [parent, fork])
                curve = joined(before, after, arm.then.from_step)
                (full,) = judged_curves.curves(session, whole.runs)
                assert np.array_equal(curve.steps, full.steps)
                assert np.array_equal(curve.loss, full.loss)  # to the bit
                assert (curve.recipe, curve.rounding) == (full.recipe, full.rounding)
                assert curve.context == full.context
