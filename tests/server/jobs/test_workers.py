"""What a job waits for, in words: every sentence, and each agrees with what a worker's claim
does.
"""

import time

import pytest

from parity.judging.policy import policy_from_mapping
from server.database.tables import Job, Worker
from server.jobs.submit import submit_job
from server.jobs.workers import can_take, why_waiting
from server.web.access import api_tokens
from training.spec import SPEC_VERSION, ArmSpec


@pytest.fixture
def waiting(database, make_job):
    """A function that gives a queued job's sentence, and whether a worker with this device takes
    it.
    """

    def ask(device=None, *, capability="cpu", bound=None, engine="emulated", devices=1):
        with database.write() as session:
            spec = make_job(
                engine=engine,
                devices=devices,
                baseline=ArmSpec(recipe="fp8_current"),
                candidates=(ArmSpec(recipe="nvfp4"),),
            )
            job_id = submit_job(session, spec, policy_from_mapping({"margin": "1%"})).id
        now = time.time()
        registered = [] if device is None else [_worker("w-one", capability, device, now)]
        with database.read() as session:
            job = session.get_one(Job, job_id)
            job.device_class = bound
            slots = sum(worker.slots for worker in registered if can_take(worker, job))
            return why_waiting(job, slots, registered), bool(slots)

    return ask


def _worker(name, capability, device, now):
    registered = {
        "device_class": "cpu:x",
        "threads_per_run": 1,
        "spec_version": SPEC_VERSION,
        **device,
    }
    return Worker(
        id=name,
        name=name,
        capability=capability,
        slots=1,
        device=registered,
        started_at=now,
        heartbeat_at=now,
    )


def _can(**recipes):
    return {
        "can_run": {
            f"emulated/{name}": {"ok": reason == "", "reason": reason}
            for name, reason in recipes.items()
        }
    }


@pytest.mark.parametrize(
    ("device", "more", "sentence"),
    [
        (
            None,
            {},
            "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu: none is registered. Start one",
        ),
        (
            {},
            {"capability": "sm90"},
            "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu: none is registered. Start one",
        ),
        (
            {},
            {"bound": "cpu:other"},
            (
                "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu of device class cpu:other, "
                "on which its first run began: none is registered."
            ),
        ),
        (
            _can(fp8_current="", nvfp4="too old a processor"),
            {},
            "Waiting for another worker: w-one cannot run this job (too old a processor).",
        ),
        (
            _can(fp8_current=""),
            {},
            (
                "Waiting for another worker: w-one cannot run this job (its version does not "
                "support recipe nvfp4"
            ),
        ),
        (
            None,
            {"devices": 2},
            (
                "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu with 2 devices for each "
                "run: none is registered."
            ),
        ),
        (
            {"devices": 1},
            {"devices": 2},
            (
                "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu with 2 devices for each "
                "run: a run has 1 on w-one."
            ),
        ),
        (
            {"devices": 4, "processes": 4},
            {"devices": 2},
            (
                "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu with 2 devices for each "
                "run: a run has 4 on w-one."
            ),
        ),
        (None, {"engine": "external"}, "Waiting for data of 2 of 2 runs (the first is r"),
    ],
)
def test_a_job_that_nobody_can_run_says_for_which_worker_it_waits(waiting, device, more, sentence):
    waits_for, taken = waiting(device, **more)
    assert waits_for.startswith(sentence), waits_for
    assert not taken


@pytest.mark.parametrize(
    "device", [{}, _can(fp8_current="", nvfp4=""), {"devices": 2, "processes": 1}]
)
def test_a_job_that_somebody_can_run_waits_for_a_slot(waiting, device):
    assert waiting(device) == (
        "Waiting for a free slot on a worker with PARITY_CAPABILITY=cpu or gpu.",
        True,
    )
    waits_for, _ = waiting({**device, "device_class": "cpu:other"}, bound="cpu:other")
    assert waits_for.endswith("cpu or gpu of device class cpu:other, on which its first run began.")


def test_a_job_whose_token_trains_as_much_as_it_may_says_so(database, make_job, recorded):
    with database.write() as session:
        token, _ = api_tokens.create_token(session, "ci", ["submit"], None, 4)
        session.flush()
        token_id = token.id
    training = recorded({"nvfp4": 0.0}, done=0, state="running")
    with database.write() as session:
        session.get_one(Job, training).submitted_by = token_id
        job = submit_job(session, make_job(), policy_from_mapping({"margin": "1%"}), token_id)
        session.flush()
        assert (
            why_waiting(job, 1, [])
            == "Waiting for earlier runs of token 'ci' to end: 4 are training, and its limit is 4."
        )
        assert why_waiting(job, 0, []).startswith(
            "Waiting for a worker with PARITY_CAPABILITY=cpu or gpu: none is registered"
        )
        session.get_one(Job, training).runs[0].state = "finished"
        assert why_waiting(job, 1, []).startswith("Waiting for a free slot")
