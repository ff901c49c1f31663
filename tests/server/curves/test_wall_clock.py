"""When and where runs trained, and what the judge makes of it: a speed ratio, or the reason why
there is none.
"""

import numpy as np
import pytest

from server.curves import judged_curves
from server.database.metrics import store
from server.database.tables import Attempt, Job, Worker
from server.jobs.conclude import decide

START = 1.7e9


def _attempt(session, run, attempt_number, started_at, worker_id=None, state="finished"):
    session.add(
        Attempt(
            run_id=run.id,
            attempt_number=attempt_number,
            state=state,
            worker_id=worker_id,
            started_at=started_at,
            ended_at=started_at + 100,
        )
    )


def _worker(session, number, machine):
    name = f"{machine}:{number}"
    session.add(
        Worker(
            id=f"w{number}",
            name=name,
            capability="cpu",
            slots=1,
            device={},
            started_at=START,
            heartbeat_at=START,
        )
    )


@pytest.fixture
def trained(database, recorded):
    """A job of native runs of which each candidate run begins so many seconds after the baseline
    runs.
    """

    def train(later, **manifest):
        job_id = recorded({"nvfp4": 0.0})
        with database.write() as session:
            _worker(session, 1, "alpha")
            for arm in session.get_one(Job, job_id).arms:
                for run in arm.runs:
                    run.manifest = {
                        **run.manifest,
                        "engine": "transformer_engine",
                        "device_class": "h100",
                        **manifest,
                    }
                    _attempt(
                        session, run, 1, START + (later if arm.role == "candidate" else 0.0), "w1"
                    )
        return job_id

    return train


def _document(database, job_id):
    with database.read() as session:
        ((document, _),) = decide(session, job_id).verdicts
    return document


def test_runs_side_by_side_get_a_ratio(database, trained):
    document = _document(database, trained(later=5.0))
    assert document["speed_reason"] is None
    assert document["throughput"]["ratio"]["value"] == pytest.approx(1.0)
    assert document["inputs"]["baseline"][0]["context"]["host"] == "alpha"


def test_runs_of_another_day_get_a_reason(database, trained):
    document = _document(database, trained(later=86_400.0))
    assert (document["throughput"], document["net_speedup"]) == (None, None)
    assert "different times" in document["speed_reason"]


def test_engine_emulated_has_no_speed(database, trained):
    document = _document(database, trained(later=5.0, engine="emulated"))
    assert document["throughput"] is None
    assert "emulated" in document["speed_reason"]


def test_a_reused_baseline_has_the_times_at_which_it_trained(database, trained, recorded):
    earlier, job_id = trained(later=0.0), recorded({"nvfp4": 0.0})
    with database.write() as session:
        sources = session.get_one(Job, earlier).arms[0].runs
        job = session.get_one(Job, job_id)
        for run, source in zip(job.arms[0].runs, sources, strict=True):
            run.reused_from = source.id
        for run in job.runs:
            run.manifest = dict(sources[0].manifest)
        for run in job.arms[1].runs:
            _attempt(session, run, 1, START + 7200)
    document = _document(database, job_id)
    assert document["throughput"] is None
    assert "different times" in document["speed_reason"]


def test_attempts_follow_each_other(database, recorded):
    """The second attempt takes over at step 100, a minute later, on another machine."""
    job_id = recorded({"nvfp4": 0.0}, steps=150)
    with database.write() as session:
        run = session.get_one(Job, job_id).arms[0].runs[0]
        for number, machine in ((1, "alpha"), (2, "beta")):
            _worker(session, number, machine)
            _attempt(
                session,
                run,
                number,
                START + 60 * (number - 1),
                f"w{number}",
                "crashed" if number == 1 else "finished",
            )
        at = np.arange(100, 150)
        store.append(
            session,
            run.id,
            "train",
            2,
            at,
            {"lm_loss": np.ones(50), "step_seconds": np.full(50, 0.04)},
        )
    with database.read() as session:
        run = session.get_one(Job, job_id).arms[0].runs[0]
        ended = judged_curves.curve(session, run).columns["unix_seconds"] - START
        assert judged_curves.curve(session, run).context["host"] == "alpha, beta"
    np.testing.assert_allclose(ended[:100], 0.04 * np.arange(1, 101), atol=1e-6)
    np.testing.assert_allclose(ended[100:], 60 + 0.04 * np.arange(1, 51), atol=1e-6)


def test_a_run_without_attempts_has_no_times(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.read() as session:
        curve = judged_curves.curve(session, session.get_one(Job, job_id).arms[0].runs[0])
    assert "unix_seconds" not in curve.columns
    assert "host" not in curve.context
