"""A cached verdict holds only while everything that decided it is the same: each argument of the
judge, and each fact of a worker.
"""

import copy
import inspect
import json
import time

import pytest

from parity.judging.noise.noise_table import COLUMNS
from parity.judging.verdict.verdict import judge
from server.database.tables import Job, Worker, new_id
from server.jobs import ledger
from server.jobs.conclude import conclude
from server.jobs.judge_input import case_of
from tests.server.conftest import TRAINER

both = pytest.mark.both_databases
FAMILY = "lab"


def _rows(first, last):
    for number in range(first, last):
        cells = {
            "family": FAMILY,
            "group": f"g{number}",
            "unit": "nats",
            "runs": "5",
            "mean_loss": "2.0",
            "sd": f"{0.001 * (1 + 0.07 * number)}",
        }
        cells |= {"rounding": "nearest", "varies": "replicate", "source": "lab", "licence": "CC0"}
        yield ",".join(cells.get(column, "") for column in COLUMNS)


def _import(api, first, last):
    table = "\n".join([",".join(COLUMNS), *_rows(first, last), ""])
    answer = api.post("/api/v1/noise-tables", json={"table": table})
    assert answer.status_code < 300, answer.text


@pytest.fixture
def promoted(api, judged):
    """The runs of a baseline that jobs name."""
    job_id, _ = judged({"nvfp4": 0.0}, verdict=False)
    answer = api.post("/api/v1/baselines", json={"name": "fp8", "job": job_id, "reason": "r"})
    assert answer.status_code == 201, answer.text


@pytest.fixture
def asked(api, database, judged, promoted, register):
    """A request, and the concluded job that answers it: it names a baseline and a family, and its
    runs trained on the one live worker.
    """
    register()
    _import(api, 0, 4)
    done, request = judged({"nvfp4": 0.0}, verdict=False, rerun=3)
    request["job"]["family"] = FAMILY
    request["baseline"] = {"name": "fp8"}
    answer = api.post("/api/v1/jobs", json=request)
    assert answer.status_code == 202, answer.text
    with database.write() as session:
        job, source = session.get_one(Job, answer.json()["id"]), session.get_one(Job, done)
        for run, trained in zip(
            (run for run in job.runs if run.state == "queued"), source.arms[1].runs, strict=True
        ):
            run.state, run.reused_from, run.attempt_number, run.steps_done = (
                "finished",
                trained.id,
                1,
                trained.steps_done,
            )
            run.manifest, run.finished_at = trained.manifest, time.time()
        job.device_class, job.threads = "cpu", 1
    conclude(database, answer.json()["id"])
    assert _found(api, request) == answer.json()["id"]
    return answer.json()["id"], request


def _found(api, request):
    """The job that answers a gate from the cache, or None."""
    answer = api.post("/api/v1/jobs:gate", json={**request, "lookup": True})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    return document["job"]["id"] if document["found"] == "concluded" else None


def _spec(**changes):
    def change(api, request, judged):
        request["job"] |= changes

    return change


def _arm(role, **changes):
    def change(api, request, judged):
        arm = request["job"]["baseline"] if role == "baseline" else request["job"]["candidates"][0]
        arm |= changes

    return change


def _policy(api, request, judged):
    request["policy"]["margin"] = "2%"


def _steps(api, request, judged):
    request["job"]["schedule"]["steps"] += 10


def _controls(api, request, judged):
    reruns, _ = judged({"nvfp4": 0.0}, verdict=False, rerun=1)
    answer = api.post(
        "/api/v1/baselines/fp8/versions/1/controls",
        json={"runs_of": reruns, "reason": "two reruns"},
    )
    assert answer.status_code == 200, answer.text


def _groups(api, request, judged):
    _import(api, 4, 10)


# What the judge is told before anything is trained. A job that names a baseline has its recipe and
# length, so these ask without one.
BEFORE = {
    "baseline": _arm("baseline", recipe="fp8_delayed"),
    "candidates": _arm("candidate", recipe="mxfp8"),
    "policy": _policy,
    "planned_steps": _steps,
    "layer_policy": _spec(layer_policy="all_linears"),
    "baseline_name": _arm("baseline", name="ours"),
    "controls": _controls,
    "families": _spec(family="any-decoder"),
    "noise_table": _groups,
    "short_reruns": _spec(short_reruns={"runs": 2}),
}
# The server gives the judge none of these, so that none can arrive later.
NEVER = {"assume_complete": False, "evaluations": {}, "shorter": ()}
# Recorded by a run while it trains; nothing can be added to a run that has ended.
WITH_THE_RUNS = {"layer_snr_db"}
# How many looks and candidates share the error says nothing about the runs.
EXEMPT = {"multiplicity"}
# What is compared follows from the specification alone, which is in the key
# (`JobSpec.comparisons`).
OF_THE_SPEC = {"compares", "against"}
ON_A_BASELINE = {"policy", "controls", "families", "noise_table"}


def test_every_argument_of_the_judge_is_accounted_for():
    assert set(inspect.signature(judge).parameters) == {
        *BEFORE,
        *NEVER,
        *WITH_THE_RUNS,
        *EXEMPT,
        *OF_THE_SPEC,
    }


@pytest.mark.parametrize("argument", BEFORE)
def test_what_the_judge_is_told_before_training_changes_the_key(
    api, asked, trained, judged, argument
):
    job_id, request = asked if argument in ON_A_BASELINE else trained
    assert _found(api, request) == job_id
    BEFORE[argument](api, request, judged)
    assert _found(api, request) != job_id


@pytest.fixture
def trained(database, judged, register):
    """A request without a named baseline, and the job that answers it."""
    register()
    job_id, request = judged({"nvfp4": 0.0})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.device_class, job.threads = "cpu", 1
    return job_id, request


def test_the_server_gives_the_judge_nothing_that_could_arrive_unseen(database, trained):
    with database.read() as session:
        case = case_of(session, session.get_one(Job, trained[0]))
        assert {name: getattr(case, name) for name in NEVER} == NEVER


@both
@pytest.mark.parametrize("kind", ["train", "validation", "layers"])
def test_a_run_that_has_ended_takes_no_further_statistics(api, request_body, kind):
    body = copy.deepcopy(request_body)
    body["job"] |= {"engine": "external"}
    run = api.post("/api/v1/jobs", json=body).json()["arms"][0]["runs"][0]["id"]
    attempt_number = api.post(f"/api/v1/runs/{run}:attach", json={"manifest": {}}).json()["attempt"]

    def append(step, **more):
        columns = {"steps": [step], "columns": {"loss": [2.0]}}
        return api.post(
            f"/api/v1/runs/{run}/steps", params={"attempt": attempt_number, **more}, json=columns
        ).status_code

    assert append(0) == 200
    assert (
        api.post(
            f"/api/v1/runs/{run}:finish", json={"attempt": attempt_number, "outcome": "finished"}
        ).status_code
        == 200
    )
    assert append(1, kind=kind) in (409, 422)
    layers = {"steps": [0], "columns": {"fc1/x/snr_db": [2.0]}}
    sent = api.post(f"/api/v1/runs/{run}/layers", params={"attempt": attempt_number}, json=layers)
    assert sent.status_code == 409


def _set(device, path, value):
    *folders, name = path
    for folder in folders:
        device = device[folder]
    device[name] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("device_class",), "gpu"),
        (("threads_per_run",), 8),
        *((("trainer", name), "other") for name in (*TRAINER, "env.NVTE_X", "version.x")),
    ],
)
def test_each_fact_of_a_worker_that_can_change_a_curve_makes_a_verdict_stale(
    api, database, trained, path, value
):
    """The only live worker is another one. Any worker that can take a new job counts, whatever the
    earlier job was bound to.
    """
    job_id, request = trained
    with database.write() as session:
        row = session.query(Worker).one()
        device = json.loads(json.dumps(row.device))
        _set(device, path, value)
        row.heartbeat_at = 0.0
        now = time.time()
        session.add(
            Worker(
                id=new_id("w"),
                name="w2",
                capability="cpu",
                slots=1,
                device=device,
                started_at=now,
                heartbeat_at=now,
            )
        )
    assert _found(api, request) is None
    with database.write() as session:
        session.query(Worker).filter(Worker.name == "w2").update({"heartbeat_at": 0.0})
        session.query(Worker).filter(Worker.name == "w").update({"heartbeat_at": time.time()})
    assert _found(api, request) == job_id, "the worker that trained it is back"


def test_another_machine_with_the_same_trainer_beside_the_jobs_own_changes_nothing(
    api, database, trained
):
    job_id, request = trained
    with database.write() as session:
        row = session.query(Worker).one()
        other = Worker(
            id=new_id("w"),
            name="w2",
            capability="cpu",
            slots=1,
            device={**row.device, "device_class": "other"},
        )
        other.started_at = other.heartbeat_at = time.time()
        session.add(other)
    assert _found(api, request) == job_id
    with database.write() as session:
        session.query(Worker).filter(Worker.name == "w2").update(
            {"device": {**other.device, "trainer": {**TRAINER, "code_sha256": "b" * 64}}}
        )
    assert _found(api, request) is None, "it could train a new job, with another trainer"


@both
@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_reruns_that_arrive_later_make_a_pass_stale_and_leave_a_fail(
    api, database, judged, register, record_reruns, gap
):
    """Nothing is borrowed before the fourth job: until then later reruns are no evidence for this
    one.
    """
    register()
    job_id, request = judged({"nvfp4": gap})
    with database.write() as session:
        job = session.get_one(Job, job_id)
        ledger.register(session, job)
        assert [verdict.outcome for verdict in job.verdicts] == ["fail" if gap else "pass"]
        assert job.noise_table is None
    record_reruns(11, replicates=5)
    assert _found(api, request) == job_id, "one group is not usable"
    for rerun in range(12, 16):
        record_reruns(rerun, replicates=5)
    assert _found(api, request) is None
    answer = api.post("/api/v1/jobs:gate", json=request).json()
    if gap:
        assert (answer["found"], answer["job"]["id"]) == ("concluded", job_id)
        assert "groups of reruns" in answer["reason"]
    else:
        assert answer["found"] == "new"
        assert "groups of reruns" in answer["reason"]


@both
def test_a_pass_on_a_named_baseline_is_asked_again_once_its_controls_have_grown(
    api, database, asked, judged
):
    job_id, request = asked
    with database.read() as session:
        assert [verdict.outcome for verdict in session.get_one(Job, job_id).verdicts] == ["pass"]
    _controls(api, request, judged)
    answer = api.post("/api/v1/jobs:gate", json=request)
    assert (answer.status_code, answer.json()["found"]) == (202, "new")
