"""The forks of a search by a real worker: the loss of every assignment is on record."""

import threading

import pytest

from parity.judging.policy import policy_from_mapping
from parity_lab.server import searches
from parity_lab.server.analyses import results_of
from parity_lab.server.record import submit_search
from parity_lab.server.searches import Wish
from parity_lab.server.tables import Search
from server.database.tables import Job
from server.jobs.conclude import conclude
from server.jobs.submit import submit_job
from training.spec import Arm
from workers import lease, supervisor
from workers.training_process import Slot

STEPS, STEP = 40, 24


@pytest.fixture
def worker(make_worker):
    return make_worker()


def test_the_forks_of_a_search_are_trained_from_the_baselines_checkpoints(
    settings, database, worker, make_job, monkeypatch
):
    def train():
        with database.write() as session:
            held = lease.claim(session, worker, settings.lease_seconds)
        supervisor.train(settings, database, held, Slot(), threading.Event())

    arms = {"baseline": Arm(recipe="bf16"), "candidates": (Arm(recipe="nvfp4"),)}
    spec = make_job(steps=STEPS, keep_checkpoints=(STEP,), **arms)
    # too few steps for a verdict, in a margin that confirmations could pass
    with database.write() as session:
        base = submit_job(session, spec, policy_from_mapping({"margin": "40%"})).id
    with database.read() as session:
        runs = len(session.get_one(Job, base).runs)
    for _ in range(runs):
        train()
    conclude(database, base)
    # So few steps have no gap to rely on, without which there is no search.
    monkeypatch.setattr(searches, "late_loss", lambda _session, run: 3.0 + run.arm.position)
    with database.write() as session:
        search = submit_search(session, base, Wish(fork_steps=4, pairs=4))
        own = search.id
        assert search.state == "running", search.message
    train()
    with database.read() as session:
        step = session.get_one(Search, own).steps[0]
        job = session.get_one(Job, step.job_id)
        assert [(run.kind, run.state, run.code) for run in job.runs] == [("why", "finished", None)]
        results = results_of(session, job.id)
        replays = [results.pop(key) for key in list(results) if key.startswith("replay/")]
        # the record of both arms is bit-equal
        assert {(each["departs"], each["missing"]) for each in replays} == {(None, None)}
        assert len(replays) == 4  # of both arms, from step 0 and from the checkpoint
        assert len(results) == len(step.evaluations)
        assert all(0.0 < value < 20.0 for value in results.values())
        assert len(set(results.values())) > len(results) // 2  # assignments and draws differ
