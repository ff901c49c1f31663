"""Live forecasts over the record: told once, never a pass or a fail, and what is stopped is the arm
that is beyond hope.
"""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server import deliveries
from server.database import events
from server.database.metrics import store
from server.database.states import begin_attempt
from server.database.tables import Attempt, Job, Run, WebhookDelivery
from server.jobs import forecasts as forecast
from server.jobs.conclude import conclude, decide, ready_to_conclude
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import submit_job
from training.spec import ArmSpec

pytestmark = pytest.mark.both_databases

ALL_FORECASTS = True
STEPS = 2000


@pytest.fixture
def live(database, make_job):
    """A function that submits a job whose runs are all training and returns its id; gaps by arm are
    given to `record`.
    """

    def start(**policy):
        spec = make_job(STEPS, candidates=(ArmSpec(recipe="nvfp4"), ArmSpec(recipe="mxfp8")))
        with database.write() as session:
            job = submit_job(session, spec, policy_from_mapping({"margin": "1.0%", **policy}))
            job.status = "running"
            for run in job.runs:
                run.state, run.attempt_number, run.started_at = "running", 1, time.time()
                begin_attempt(session, run.id, 1, None)
            return job.id

    return start


def _record(database, job_id, first, last, gaps):
    at = np.arange(first, last)
    batch = np.random.default_rng(first).normal(0, 0.1, len(at))
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            noise = np.random.default_rng([first, run.position]).normal(0, 0.01, len(at))
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {"lm_loss": 2.0 + batch + noise + gaps.get(run.arm.name, 0.0)},
            )


def _watch(database, job_id):
    return forecast.watch(database, job_id)


def _states(database, job_id):
    with database.read() as session:
        return {run.arm.name: (run.state, run.code) for run in session.get_one(Job, job_id).runs}


def test_what_a_newer_attempt_has_replaced_is_forgotten(database, live):
    job_id = live()
    _record(database, job_id, 0, 200, {})
    assert _watch(database, job_id) == []
    with database.write() as session:
        job = session.get_one(Job, job_id)
        run = next(run for run in job.runs if run.arm.name == "nvfp4")
        run.attempt_number = 2
    _watch(database, job_id)  # the new attempt has recorded nothing yet
    with database.write() as session:
        assert session.get_one(Job, job_id).early_stop["pairs"][run.id]["next_step"] == 200
        store.append(session, run.id, "train", 2, np.arange(50), {"lm_loss": np.full(50, 2.0)})
    _watch(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).early_stop["pairs"][run.id]["next_step"] == 50


def test_a_futile_pair_is_one_event_and_trains_on(database, live):
    job_id = live()
    for first in range(0, 600, 100):
        _record(database, job_id, first, first + 100, {"nvfp4": 0.3})
        futile = _watch(database, job_id)
        if futile:
            break
    assert futile == ["nvfp4"]
    assert _watch(database, job_id) == []
    with database.read() as session:
        emitted = [event for event in events.after(session, job_id, 0) if event.kind == "will_fail"]
    assert len(emitted) == 1
    assert emitted[0].payload["message"].startswith("Will fail")
    assert set(_states(database, job_id).values()) == {("running", None)}


def test_looking_often_or_once_finds_the_same(database, live):
    often, once = live(), live()
    for first in range(0, 600, 50):
        for job_id in (often, once):
            _record(database, job_id, first, first + 50, {"nvfp4": 0.3, "mxfp8": 0.01})
        _watch(database, often)
    _watch(database, once)
    with database.read() as session:
        jobs = [session.get_one(Job, job_id) for job_id in (often, once)]
        looks = [
            {arm.name: forecast.forecasts(job, arm.name) for arm in job.arms[1:]} for job in jobs
        ]
        assert looks[0] == looks[1]
        assert [pair.document() for pair in forecast.pairs_of(jobs[0], jobs[0].arms[1])] == [
            pair.document() for pair in forecast.pairs_of(jobs[1], jobs[1].arms[1])
        ]
    assert looks[0]["nvfp4"][-1].state == "will_fail"
    assert looks[0]["mxfp8"][-1].state in ("open", "on_course")
    assert [look.step for look in looks[0]["mxfp8"]] == list(range(199, 600, 50))


def test_where_the_policy_says_stop_the_arm_ends_without_pass_or_fail(database, live):
    job_id = live(early_stop="stop")
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    assert _watch(database, job_id) == ["nvfp4"]
    states = _states(database, job_id)
    assert states["nvfp4"] == ("finished", "EARLY_STOP")
    assert states["mxfp8"] == states["fp8_current"] == ("running", None)
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            if run.arm.name == "nvfp4":
                assert session.get_one(Attempt, (run.id, 1)).code == "EARLY_STOP"
    _record(database, job_id, 600, STEPS, {})
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.state = "finished"
    with database.read() as session:
        outcome = decide(session, job_id)
    assert outcome.code == "EARLY_STOP"
    assert "Will fail" in outcome.message


def test_the_baseline_ends_with_its_last_candidate(database, live):
    job_id = live(early_stop="stop")
    _record(database, job_id, 0, 600, {"nvfp4": 0.3, "mxfp8": 0.3})
    assert sorted(_watch(database, job_id)) == ["mxfp8", "nvfp4"]
    assert set(_states(database, job_id).values()) == {("finished", "EARLY_STOP")}
    with database.read() as session:
        assert ready_to_conclude(session, job_id)
        verdicts = [document for document, _ in decide(session, job_id).verdicts]
    for document in verdicts:
        assert (document["verdict"], "AS_OF" in document["codes"]) == ("fail", True)


@pytest.mark.parametrize(
    "switch",
    [
        {"then": {"recipe": "bf16", "from_step": 1640, "gemms": "all"}},
        {"bf16_from_step": 1640},  # as earlier versions stored it
    ],
)
def test_a_candidate_that_will_switch_to_bf16_is_not_stopped_before(database, live, switch):
    job_id = live(early_stop="stop")
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = job.spec | {
            "candidates": [
                {**job.spec["candidates"][0], **switch},
                job.spec["candidates"][1],
            ]
        }
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    assert _watch(database, job_id) == ["nvfp4"]  # said, and not stopped
    assert _states(database, job_id)["nvfp4"] == ("running", None)


def test_the_baseline_trains_on_for_a_candidate_that_finished_before_it(database, live):
    job_id = live(early_stop="stop")
    at = np.arange(900, STEPS)
    with database.write() as session:
        other = next(run for run in session.get_one(Job, job_id).runs if run.arm.name == "mxfp8")
        store.append(session, other.id, "train", 1, at, {"lm_loss": np.full(len(at), 2.0)})
        other.state, other.finished_at = "finished", time.time()
    _record(database, job_id, 0, 900, {"nvfp4": 0.9})
    assert _watch(database, job_id) == ["nvfp4"]
    assert _states(database, job_id)["fp8_current"] == ("running", None)


def test_queued_replicates_of_a_stopped_arm_are_cancelled(database, live):
    job_id = live(early_stop="stop")
    with database.write() as session:
        spare = next(run for run in session.get_one(Job, job_id).runs if run.arm.name == "nvfp4")
        session.add(
            Run(
                **{
                    name: getattr(spare, name)
                    for name in (
                        "job_id",
                        "arm_id",
                        "seed",
                        "capability",
                        "planned_steps",
                        "created_at",
                    )
                },
                id="r000000000000-0000000000",
                position=9,
                replicate=1,
                state="queued",
            )
        )
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    _watch(database, job_id)
    with database.read() as session:
        assert session.get_one(Run, "r000000000000-0000000000").state == "cancelled"


def test_the_last_steps_are_looked_at_when_the_job_is_judged(database, live):
    job_id = live()
    _record(database, job_id, 0, STEPS, {"nvfp4": 0.3})
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.state = "finished"
    conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.status == "concluded"
        assert forecast.latest(job, "nvfp4").share == 1.0
        assert forecast.latest(job, "nvfp4").state == "will_fail"
        assert {event.kind for event in events.after(session, job_id, 0)} & {
            "will_fail",
            "futile",
            "forecast",
        } == set()


def test_a_change_of_state_is_one_event_and_the_first_alarm_a_delivery(database, live):
    job_id = live()
    with database.write() as session:
        deliveries.register(session, {"h1": ["job.will_fail", "job.futile"]})
    for first in range(0, 800, 50):
        _record(database, job_id, first, first + 50, {"nvfp4": 0.3})
        _watch(database, job_id)
    with database.read() as session:
        changes = [
            event
            for event in events.after(session, job_id, 0)
            if event.kind in ("forecast", "futile", "will_fail")
        ]
        assert [event.payload["state"] for event in changes if event.payload["arm"] == "nvfp4"][
            -1
        ] == "will_fail"
        states = [event.payload["state"] for event in changes if event.payload["arm"] == "mxfp8"]
        assert all(first != second for first, second in itertools.pairwise(states))
        kinds = [row.kind for row in session.query(WebhookDelivery)]
    assert kinds.count("job.will_fail") == 1
    assert len(kinds) <= 2


def test_replicates_are_forecast_together_and_share_a_baseline(database, make_job):
    spec = make_job(STEPS, candidates=(ArmSpec(recipe="mxfp8", replicates=2),))
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1.0%"}))
        job.status, job_id = "running", job.id
        for run in job.runs:
            run.state, run.attempt_number = "running", 1
            at = np.arange(1000 if run.replicate == 0 else 400)
            loss = 2.0 + 0.01 * np.random.default_rng(run.position).normal(size=len(at))
            store.append(session, run.id, "train", 1, at, {"lm_loss": loss})
    _watch(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert len(forecast.pairs_of(job, job.arms[1])) == 2
        assert [look.share for look in forecast.forecasts(job, "mxfp8")] == pytest.approx(
            np.arange(0.1, 0.351, 0.025)
        )
        assert len(json.dumps(job.early_stop)) < 12_000


def test_an_attempt_that_resumes_repeats_neither_looks_nor_events(database, live):
    resumed, straight = live(), live()
    for job_id in (resumed, straight):
        _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    assert _watch(database, resumed) == ["nvfp4"]
    with database.write() as session:
        for run in session.get_one(Job, resumed).runs:
            begin_attempt(session, run.id, 2, None)
            run.attempt_number = 2
            at = np.arange(600, 700)
            store.append(
                session,
                run.id,
                "train",
                2,
                at,
                {"lm_loss": np.full(100, 2.3 if run.arm.name == "nvfp4" else 2.0)},
            )
        for run in session.get_one(Job, straight).runs:
            at = np.arange(600, 700)
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {"lm_loss": np.full(100, 2.3 if run.arm.name == "nvfp4" else 2.0)},
            )
    assert _watch(database, resumed) == []
    _watch(database, straight)
    with database.read() as session:
        jobs = [session.get_one(Job, job_id) for job_id in (resumed, straight)]
        assert forecast.forecasts(jobs[0], "nvfp4") == forecast.forecasts(jobs[1], "nvfp4")
        changes = [
            event
            for event in events.after(session, resumed, 0)
            if event.kind == "will_fail" and event.payload["arm"] == "nvfp4"
        ]
        assert len(changes) == 1


class Held:
    """The forecast waits for `go` at its first call; `calls` counts all calls."""

    def __init__(self, monkeypatch):
        self.calls, self.entered, self.go = 0, threading.Event(), threading.Event()
        self._forecast = forecast._new_forecasts
        monkeypatch.setattr(forecast, "_new_forecasts", self._wait)

    def _wait(self, *arguments):
        self.calls += 1
        if self.calls == 1:
            self.entered.set()
            assert self.go.wait(60)
        return self._forecast(*arguments)

    @contextmanager
    def during(self, look, database, job_id):
        """The block runs while another thread looks at the job and waits; gives the future of what
        that look returns.
        """
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look, database, job_id)
            try:
                assert self.entered.wait(60)
                yield looking
            finally:
                self.go.set()


def _emitted(database, job_id):
    with database.read() as session:
        return [
            (event.payload["arm"], event.payload["state"])
            for event in events.after(session, job_id, 0)
            if "state" in event.payload
        ]


@pytest.mark.parametrize("at_the_end", [False, True])
def test_while_a_long_forecast_is_computed_others_write(database, live, monkeypatch, at_the_end):
    job_id, held = live(), Held(monkeypatch)
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    look = partial(forecast.watch, at_the_end=at_the_end)
    with held.during(look, database, job_id) as looking, database.write() as session:
        job = session.get_one(Job, job_id, with_for_update=True)
        session.scalars(select(Run).where(Run.job_id == job_id).with_for_update()).all()
        job.branch = "written meanwhile"
    assert looking.result(60) == ([] if at_the_end else ["nvfp4"])
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.branch, forecast.latest(job, "nvfp4").state) == (
            "written meanwhile",
            "will_fail",
        )


def test_two_looks_at_once_emit_each_change_once(database, live, monkeypatch):
    job_id, held = live(early_stop="stop"), Held(monkeypatch)
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    with held.during(forecast.watch, database, job_id) as first:
        assert forecast.watch(database, job_id) == ["nvfp4"]
        emitted = _emitted(database, job_id)
    assert first.result(60) == []
    assert _emitted(database, job_id) == emitted
    assert emitted.count(("nvfp4", "will_fail")) == 1
    assert _states(database, job_id)["nvfp4"] == ("finished", "EARLY_STOP")


def test_a_forecast_from_steps_that_a_newer_attempt_replaces_is_made_again(
    database, live, monkeypatch
):
    job_id, held = live(early_stop="stop"), Held(monkeypatch)
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    with held.during(forecast.watch, database, job_id) as looking, database.write() as session:
        run = next(run for run in session.get_one(Job, job_id).runs if run.arm.name == "nvfp4")
        begin_attempt(session, run.id, 2, None)
        run.attempt_number = 2
        store.append(session, run.id, "train", 2, np.arange(50), {"lm_loss": np.full(50, 2.0)})
    assert looking.result(60) == []
    assert ("nvfp4", "will_fail") not in _emitted(database, job_id)
    assert _states(database, job_id)["nvfp4"] == ("running", None)
    with database.read() as session:
        assert session.get_one(Job, job_id).early_stop["pairs"][run.id]["next_step"] == 50


def test_a_job_that_ends_while_it_is_looked_at_stays_as_it_is(database, live, monkeypatch):
    job_id, held = live(early_stop="stop"), Held(monkeypatch)
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    with held.during(forecast.watch, database, job_id) as looking:
        with database.write() as session:
            cancel_job(session, job_id)
        emitted = _emitted(database, job_id)
    assert looking.result(60) == []
    assert _emitted(database, job_id) == emitted
    assert {state for state, _ in _states(database, job_id).values()} == {"cancelled"}


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [
        ([0], [0, 1], [(0, 0), (0, 1)]),
        ([0, 1], [0, 1], [(0, 0), (1, 1)]),
        ([1, 0], [0, 1], [(0, 0), (1, 1)]),
        ([0, 1], [1, 2, 3], [(1, 1), (0, 2), (1, 3)]),
    ],
)
def test_a_run_is_forecast_against_that_of_its_number_and_seed(baseline, candidate, expected):
    """Where the baseline has fewer, they take turns."""

    def arm(*numbers):
        runs = [SimpleNamespace(replicate=n, seed=seed, state="running") for seed, n in numbers]
        return SimpleNamespace(runs=runs, job=SimpleNamespace(planned_steps=STEPS))

    others = arm(*((seed, number) for seed in (7, 8) for number in baseline))
    found = forecast._partners(others, arm(*((7, number) for number in candidate)))
    assert {(other.seed, run.seed) for other, run in found} == {(7, 7)}
    assert [(other.replicate, run.replicate) for other, run in found] == expected
