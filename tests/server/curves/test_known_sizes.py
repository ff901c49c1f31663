"""The judge knows the size of a model that the service builds: of a small one no run-to-run noise
is assumed, and of a large one nobody is asked for it.
"""

import json
from typing import Any

import pytest

from parity.judging.curves.context import PARAMETERS
from server.curves import judged_curves
from server.database.tables import Job
from server.jobs.conclude import conclude

LARGE = {"d_model": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 8, "d_ff": 2048}


@pytest.fixture
def trained(database, recorded):
    """A function that gives a job of an engine, with equal arms, whose model has these sizes."""

    def make(engine: str, **model: Any) -> str:
        job_id: str = recorded({"mxfp8": 0.0})
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.engine = engine
            job.spec = {**job.spec, "engine": engine, "model": {**job.spec["model"], **model}}
        return job_id

    return make


@pytest.mark.parametrize("engine", ["maxtext", "transformer_engine"])
def test_of_a_small_model_no_noise_is_assumed(engine, trained, database):
    small, large = trained(engine), trained(engine, **LARGE)
    codes, steps = {}, {}
    for job_id in (small, large):
        conclude(database, job_id)
        with database.read() as session:
            (row,) = session.get_one(Job, job_id).verdicts
            verdict = json.loads(row.document)
        codes[job_id] = verdict["codes"]
        steps[job_id] = " ".join(verdict["advice"]["sentences"])
        said = " ".join(reason["sentence"] for reason in verdict["reasons"])
        assert "the size of the model is not stated" not in said
    assert codes[small][0] == "RUN_NOISE_UNKNOWN"
    assert codes[large] == ["WITHIN_MARGIN", "RUN_NOISE_ASSUMED"]
    assert steps[large] == ""


@pytest.mark.parametrize("engine", ["command", "external"])
def test_the_model_of_a_trainer_of_ones_own_is_not_known(engine, trained, database):
    job_id = trained(engine)
    with database.read() as session:
        runs = session.get_one(Job, job_id).runs
        assert all(PARAMETERS not in judged_curves.curve(session, run).context for run in runs)


def test_a_size_that_a_manifest_has_stands(trained, database):
    job_id = trained("maxtext")
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        run.manifest = {**run.manifest, PARAMETERS: "8000000000"}
    with database.read() as session:
        run = session.get_one(Job, job_id).runs[0]
        assert judged_curves.curve(session, run).context[PARAMETERS] == "8000000000"
