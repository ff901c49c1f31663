"""An analysis by a real worker: it names or tests the planted unit, and one that is killed goes on
with the results on record.
"""

import threading
import time
from dataclasses import asdict

import pytest

from parity_lab.answer_lines import answer_lines
from parity_lab.server.analyses import WhyRequest, submit_analysis
from parity_lab.server.documents import analysis_document
from parity_lab.server.forks import results_of
from parity_lab.server.tables import Analysis, AnalysisResult
from server.database.tables import Job, Run
from server.jobs.conclude import conclude
from training.overrides import Override
from training.spec import ArmSpec
from workers import lease, supervisor
from workers.slots import Slot

STEPS, STEP = 40, 24
PLANTED = Override(recipe="mxfp4", blocks=(0,), projections=("down",))
UNITS = ["0.down.fprop", "0.down.dgrad", "0.down.wgrad"]
QUESTION = WhyRequest(fork_steps=4, anyway=True)


@pytest.fixture
def worker(make_worker):
    return make_worker()


@pytest.fixture
def train(settings, database, worker):
    """A function that claims and trains the next run; returns its id and state. `stopping` ends the
    attempt.
    """

    def train_next(stopping=None):
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        supervisor.train(settings, database, claim, Slot(), stopping or threading.Event())
        with database.read() as session:
            run = session.get_one(Run, claim.run_id)
            return run.id, run.state, run.code, run.message

    return train_next


@pytest.fixture
def explained(database, submit, train):
    """A judged job whose candidate has another format in one layer, with a checkpoint of two
    runs.
    """
    job = submit(
        steps=STEPS,
        baseline=ArmSpec(recipe="bf16", replicates=2),
        candidates=(ArmSpec(recipe="bf16", name="planted", overrides=(PLANTED,), replicates=2),),
        keep_checkpoints=(STEP,),
    )
    assert [train()[1] for _ in range(4)] == ["finished"] * 4
    conclude(database, job)
    return job


def submitted(database, job):
    with database.write() as session:
        return submit_analysis(session, job, QUESTION)[0].id


def test_an_analysis_measures_the_planted_units_and_resumes_with_equal_results(
    database, explained, train
):
    """Its record is honest: trained again, all of the first pair and the windows of the second have
    the bits on record.
    """
    whole = submitted(database, explained)
    assert train()[1:] == ("finished", None, None)
    conclude(database, whole)
    with database.read() as session:
        job, results = session.get_one(Job, whole), results_of(session, whole)
        assert (job.status, job.verdicts, job.runs[0].kind) == ("concluded", [], "why")
        answer = session.get_one(Analysis, whole).answer
    assert answer["complete"]
    replay = answer["replay"]
    assert (replay["outcome"], replay["code"]) == ("reproduced", None)
    assert {
        (replay_row["arm"], replay_row["first"], replay_row["compared"], replay_row["state"])
        for replay_row in replay["replays"]
    } == {
        (arm, *span, "bit-equal")
        for arm in ("baseline", "candidate")
        for span in ((0, STEPS), (0, 32), (STEP, STEPS - STEP))
    }
    assert sorted(answer["tested"][0]["gemms"]) == sorted(UNITS)
    assert [part["name"] for part in answer["instant"]["gemms"]] == UNITS
    errors = {gradient["name"]: gradient["error"]["value"] for gradient in answer["gradients"]}
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


@pytest.fixture
def misreported(database, submit, train):
    """A function that makes such a job whose candidate was trained with another schedule than is on
    record; the baseline was not.
    """

    def make(**schedule):
        job = submit(
            steps=STEPS,
            baseline=ArmSpec(recipe="bf16"),
            candidates=(ArmSpec(recipe="bf16", name="planted", overrides=(PLANTED,)),),
            keep_checkpoints=(STEP,),
        )
        assert train()[1] == "finished"
        with database.write() as session:
            row = session.get_one(Job, job)
            honest, digest = (
                row.spec,
                next(run.manifest["spec_sha256"] for run in row.runs if run.manifest),
            )
            row.spec = {**honest, "schedule": {**honest["schedule"], **schedule}}
        assert train()[1] == "finished"
        with database.write() as session:
            row = session.get_one(Job, job)
            row.spec = honest
            (run,) = row.arms[1].runs
            assert run.state == "finished"
            run.manifest = {**run.manifest, "spec_sha256": digest}
        conclude(database, job)
        return job

    return make


@pytest.mark.parametrize("cause", [{"learning_rate": 5e-3}, {"weight_decay": 1.0}])
def test_a_cause_beside_the_precision_names_nothing(database, misreported, train, cause):
    """The recorded rates show the first cause; of the other the record says nothing, and only
    training it again does.
    """
    made = submitted(database, misreported(**cause))
    assert train()[1:] == ("finished", None, None)
    conclude(database, made)
    with database.read() as session:
        job = session.get_one(Job, made)
        assert (job.status, job.code) == ("concluded", "NOT_IN_PRECISION")
        assert not any(key.startswith("fork/") for key in results_of(session, made))
        document = analysis_document(session, made)
    answer = document.answer
    assert (answer["complete"], answer["named"], answer["effect"]) == (True, [], None)
    assert answer["replay"]["outcome"] == "differs"
    lines = "\n".join(answer_lines(asdict(document.plan), answer))
    assert "not in the precision" in lines
    if "learning_rate" in cause:
        assert answer["steps_spent"] == 0
        assert document.plan.differences[0].key == "learning rate at step 0"
    else:
        departed = answer["replay"]["replays"][-1]
        assert (departed["arm"], departed["state"], departed["departs"]) == (
            "candidate",
            "differs",
            1,
        )
        assert abs(departed["by"]) > 0
