"""An analysis by a real worker: it names or tests the planted unit, and one that is killed goes on with the results on record."""

import threading
import time

import pytest

from parity_lab.server.analyses import WhyRequest, results_of, submit_analysis
from parity_lab.server.tables import Analysis, AnalysisResult
from server.database.tables import Job, Run
from server.jobs.conclude import conclude
from training.spec import Arm
from training.switches import Override
from workers import lease, supervisor
from workers.training_process import Slot

STEPS, STEP = 40, 24
PLANTED = Override(recipe="mxfp4", blocks=(0,), projections=("down",))
UNITS = ["0.down.fprop", "0.down.dgrad", "0.down.wgrad"]
QUESTION = WhyRequest(fork_steps=4, anyway=True)


@pytest.fixture
def worker(make_worker):
    return make_worker()


@pytest.fixture
def train(settings, database, worker):
    """A function that claims and trains the next run; returns its id and state. `stopping` ends the attempt."""

    def train_next(stopping=None):
        with database.write() as session:
            held = lease.claim(session, worker, settings.lease_seconds)
        supervisor.train(settings, database, held, Slot(), stopping or threading.Event())
        with database.read() as session:
            run = session.get_one(Run, held.run_id)
            return run.id, run.state, run.code, run.message

    return train_next


@pytest.fixture
def explained(database, submit, train):
    """A judged job whose candidate has another format in one layer, with a checkpoint of two runs."""
    job = submit(
        steps=STEPS,
        baseline=Arm(recipe="fp8_current", replicates=2),
        candidates=(Arm(recipe="fp8_current", name="planted", overrides=(PLANTED,), replicates=2),),
        keep_checkpoints=(STEP,),
    )
    assert [train()[1] for _ in range(4)] == ["finished"] * 4
    conclude(database, job)
    return job


def submitted(database, job):
    with database.write() as session:
        return submit_analysis(session, job, QUESTION).id


def test_an_analysis_measures_the_planted_units_and_resumes_with_equal_results(database, explained, train):
    whole = submitted(database, explained)
    assert train()[1:] == ("finished", None, None)
    conclude(database, whole)
    with database.read() as session:
        job, results = session.get_one(Job, whole), results_of(session, whole)
        assert (job.status, job.verdicts, job.runs[0].kind) == ("concluded", [], "why")
        answer = session.get_one(Analysis, whole).answer
    assert answer["complete"]
    assert sorted(answer["tested"][0]["gemms"]) == sorted(UNITS)
    assert [part["name"] for part in answer["instant"]["gemms"]] == UNITS
    errors = {each["name"]: each["error"]["value"] for each in answer["gradients"]}
    assert all(errors[unit] > 0 for unit in UNITS)

    again = submitted(database, explained)
    stopping = threading.Event()
    thread = threading.Thread(target=train, args=(stopping,))
    thread.start()
    deadline = time.monotonic() + 120
    while not stopping.is_set():  # stop it when it has some results
        assert time.monotonic() < deadline
        with database.read() as session:
            if len(results_of(session, again)) > 3:
                stopping.set()
        time.sleep(0.05)
    thread.join()
    with database.read() as session:
        run = session.get_one(Job, again).runs[0]
        assert (run.state, run.attempt_number) == ("queued", 1)
        before = results_of(session, again)
        assert 3 < len(before) < len(results)
    assert train()[1] == "finished"
    with database.read() as session:
        assert results_of(session, again) == results
        assert session.query(AnalysisResult).count() == 2 * len(results)
