"""From the statistics by layer to the layers that advice names."""

import math

import numpy as np
import pytest

from server.curves import layer_snr
from server.database.metrics import store
from server.database.tables import Job
from server.jobs.conclude import decide

pytestmark = pytest.mark.both_databases


@pytest.fixture
def watched(database, recorded):
    """A job whose candidate fails, with two layers watched every 25 steps; returns its id."""
    job_id = recorded({"nvfp4": 0.2})
    at = np.arange(0, 1500, 25)
    noise = np.where(at < 1200, 40.0, 11.0)
    columns = {
        "0.up/x/snr_db": noise,
        "0.up/grad/snr_db": np.full(len(at), math.inf),
        "0.down/x/snr_db": np.full(len(at), 25.0),
        "0.down/grad/snr_db": np.full(len(at), math.nan),
        "0.down/x/amax": np.full(len(at), 3.0),
    }
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            if run.arm.name == "nvfp4":
                store.append(session, run.id, "layers", 1, at, columns)
    return job_id


def test_the_late_ratio_counts_and_what_is_not_quantized_is_left_out(database, watched):
    with database.read() as session:
        baseline, candidate = session.get_one(Job, watched).arms
        assert layer_snr.late_values(session, candidate) == {
            ("0.up", "x"): 11.0,
            ("0.down", "x"): 25.0,
        }
        assert layer_snr.late_values(session, baseline) == {}


def test_the_advice_after_a_fail_names_the_worst_layer(database, watched):
    with database.read() as session:
        outcome = decide(session, watched)
    ((document, text),) = outcome.verdicts
    assert document["verdict"] == "fail"
    assert "0.up" in text


@pytest.mark.parametrize(
    ("engine", "named"), [("emulated", False), ("external", True), ("command", True)]
)
def test_underflow_counts_where_a_users_trainer_reports_it(database, recorded, engine, named):
    """Of our own engines the signal to noise has it; a series that ended early counts as it was,
    where NaN is a step without a value.
    """
    job_id = recorded({"nvfp4": 0.2})
    at = np.arange(0, 1500, 25)
    columns = {
        "0.up/grad/underflow_share": np.where(at < 600, 0.3, np.nan),
        "0.up/grad/snr_db": np.full(len(at), 9.0),
        "0.up/grad/seen_share": np.full(len(at), 0.25),
    }
    with database.write() as session:
        session.get_one(Job, job_id).engine = engine
        for run in session.get_one(Job, job_id).runs:
            if run.arm.name == "nvfp4":
                store.append(session, run.id, "layers", 1, at, columns)
    with database.read() as session:
        _, candidate = session.get_one(Job, job_id).arms
        expected = {("0.up", "grad"): 9.0}
        expected |= {("0.up", "grad", "underflow_share"): 0.3} if named else {}
        assert layer_snr.late_values(session, candidate) == expected
