"""What a job cost: step times where they are recorded, else attempts; reused runs apart; a price
only where one is stated.
"""

import time

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Attempt, Job, Run
from server.documents.jobs import job_document
from server.jobs.cost import NO_TIMES, NO_TIMES_IN_FILES, NOT_YET, Price, cost_of, price_of
from server.jobs.submit import submit_job
from server.pages.job.strip import cost_fact
from server.settings import Settings

pytestmark = pytest.mark.both_databases
STEP_SECONDS = 0.04  # of the curves that `recorded` writes


def _cost(database, job_id, price=None):
    with database.read() as session:
        return cost_of(session, session.get_one(Job, job_id), price)


def test_step_times_are_summed_over_runs_and_devices(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=200)
    cost = _cost(database, job_id)
    assert (cost.trained_runs, cost.reused_runs, cost.reused_device_seconds, cost.missing) == (
        4,
        0,
        0.0,
        None,
    )
    assert cost.device_seconds == pytest.approx(4 * 200 * STEP_SECONDS)
    assert (cost.price, cost.currency) == (None, None)
    with database.write() as session:
        session.get_one(Job, job_id).devices = 8
    assert _cost(database, job_id).device_seconds == pytest.approx(8 * 4 * 200 * STEP_SECONDS)


def test_what_the_trainer_recorded_of_its_devices_counts_more(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=100, replicates=1)
    with database.write() as session:
        for run, devices in zip(
            session.query(Run).where(Run.job_id == job_id), ("2", "many"), strict=True
        ):
            run.manifest = {**run.manifest, "devices": devices}
    assert _cost(database, job_id).device_seconds == pytest.approx((2 + 1) * 100 * STEP_SECONDS)


def test_a_sparse_log_counts_the_steps_between(database, recorded):
    """The slow twin: every step on its own takes as long as the next one that is logged."""
    job_id = recorded({"nvfp4": 0.0}, steps=100, replicates=1)
    logged, times = [10, 20, 25, 60], [0.5, np.nan, 2.0, 1.0]
    with database.write() as session:
        run, other = session.query(Run).where(Run.job_id == job_id).order_by(Run.position)
        run.attempt_number = 2
        values = {"lm_loss": np.linspace(3, 2, 4), "step_seconds": np.array(times)}
        store.append(session, run.id, "train", 2, np.array(logged), values)
        other.reused_from = run.id
    known = {
        step: next(took for at, took in zip(logged, times, strict=True) if at >= step)
        for step in range(10, 61)
    }
    kept = [STEP_SECONDS] * 10  # before the first step of the second attempt
    expected = sum(kept) + sum(took for took in known.values() if np.isfinite(took))
    cost = _cost(database, job_id)
    assert cost.device_seconds == pytest.approx(expected)
    assert cost.reused_device_seconds == pytest.approx(expected)


def test_a_reused_run_stands_apart_and_costs_nothing_here(database, recorded):
    old, new = recorded({"nvfp4": 0.0}, steps=200), recorded({"nvfp4": 0.0}, steps=200)
    with database.write() as session:
        first = session.query(Run).where(Run.job_id == old).order_by(Run.position).first()
        session.get_one(Job, old).devices = 2
        session.query(Run).where(Run.job_id == new).order_by(
            Run.position
        ).first().reused_from = first.id
    cost = _cost(database, new, Price(device_hour=3600.0, currency="EUR"))
    assert (cost.trained_runs, cost.reused_runs) == (3, 1)
    assert cost.device_seconds == pytest.approx(3 * 200 * STEP_SECONDS)
    assert cost.reused_device_seconds == pytest.approx(2 * 200 * STEP_SECONDS)
    assert (cost.price, cost.currency) == (pytest.approx(cost.device_seconds), "EUR")


def test_without_step_times_attempts_count(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=100, done=0, replicates=1)
    assert _cost(database, job_id).missing == NO_TIMES
    now = time.time()
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            session.add(
                Attempt(
                    run_id=run.id,
                    attempt_number=1,
                    state="crashed",
                    started_at=now - 100,
                    ended_at=now - 70,
                )
            )
            session.add(
                Attempt(
                    run_id=run.id,
                    attempt_number=2,
                    state="finished",
                    started_at=now - 60,
                    ended_at=now - 50,
                )
            )
    cost = _cost(database, job_id)
    assert (cost.device_seconds, cost.missing) == (pytest.approx(80.0), None)


def test_an_open_run_counts_at_its_measured_speed(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=200, done=100, state="running", replicates=1)
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            run.steps_per_second = 5.0
    cost = _cost(database, job_id)
    assert (cost.device_seconds, cost.is_estimate) == (pytest.approx(2 * 100 / 5.0), True)
    assert cost_fact(cost).value == "about 0.011 device hours"


def test_an_open_external_run_gets_no_estimate_that_would_be_gone_at_its_end(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=200, done=100, state="running", replicates=1)
    with database.write() as session:
        session.get_one(Job, job_id).engine = "external"
        for run in session.query(Run).where(Run.job_id == job_id):
            run.steps_per_second = 5.0
    cost = _cost(database, job_id)
    assert (cost.device_seconds, cost.missing) == (None, NOT_YET)
    assert cost_fact(cost).value == "Not known yet"


def test_files_without_times_say_so(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=20, done=0, replicates=1)
    now = time.time()
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.engine = "external"
        for run in job.runs:
            store.append(
                session, run.id, "train", 1, np.arange(20), {"lm_loss": np.linspace(3, 2, 20)}
            )
            run.steps_done = 20
            session.add(
                Attempt(
                    run_id=run.id,
                    attempt_number=1,
                    state="finished",
                    started_at=now - 1,
                    ended_at=now,
                )
            )
    cost = _cost(database, job_id, Price(device_hour=2.0, currency=""))
    assert (cost.device_seconds, cost.price, cost.currency) == (None, None, None)
    assert cost.missing == NO_TIMES_IN_FILES
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).first()
        run.attempt_number = 2
        store.append(
            session,
            run.id,
            "train",
            2,
            np.arange(20),
            {"lm_loss": np.linspace(3, 2, 20), "step_seconds": np.ones(20)},
        )
    assert _cost(database, job_id).missing == f"{NO_TIMES_IN_FILES} of 1 of 2 runs"


def test_a_job_that_has_not_begun_has_cost_nothing(database, make_job):
    with database.write() as session:
        job_id = submit_job(session, make_job(40), policy_from_mapping({"margin": "1%"})).id
    cost = _cost(database, job_id)
    assert (cost.device_seconds, cost.trained_runs, cost.missing) == (0.0, 0, None)


def test_the_document_of_a_job_has_its_cost(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=100)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        stated = job_document(session, job, 5.0, Price(device_hour=9.0, currency="USD")).cost
        assert stated.price == pytest.approx(4 * 100 * STEP_SECONDS / 3600 * 9)
        assert job_document(session, job, 5.0).cost.price is None


def test_the_price_is_a_setting(monkeypatch):
    assert price_of(Settings()) is None
    monkeypatch.setenv("PARITY_DEVICE_HOUR_PRICE", "2.5")
    assert price_of(Settings()) == Price(device_hour=2.5, currency="")
    monkeypatch.setenv("PARITY_CURRENCY", "USD")
    assert price_of(Settings()) == Price(device_hour=2.5, currency="USD")
    for name, value in (
        ("PARITY_DEVICE_HOUR_PRICE", "0"),
        ("PARITY_DEVICE_HOUR_PRICE", "inf"),
        ("PARITY_CURRENCY", "dollars"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(ValueError, match=name.removeprefix("PARITY_").lower()):
                Settings()


def test_an_attempt_of_a_quarter_of_a_second_counts_that_and_a_clock_that_went_back_nothing(
    database, recorded
):
    job_id = recorded({"nvfp4": 0.0}, steps=100, done=0, replicates=1)
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            for number, (started_at, ended_at) in enumerate([(1000.0, 1000.25), (1010.0, 1005.0)]):
                attempt = Attempt(run_id=run.id, attempt_number=number + 1, state="crashed")
                attempt.started_at, attempt.ended_at = started_at, ended_at
                session.add(attempt)
    assert _cost(database, job_id).device_seconds == pytest.approx(2 * 0.25)
