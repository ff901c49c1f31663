"""Engine external over REST: a trainer that nobody here started."""

import threading
import time

import numpy as np
import pytest
from fastapi.testclient import TestClient

from server.database import events
from server.database.tables import Attempt, Job, Run
from server.jobs import conclude
from server.jobs.listening import renew
from server.jobs.stale_runs import mark_or_fail_stale
from server.web.access import api_tokens

pytestmark = pytest.mark.both_databases

STEPS = 1500
MANIFEST = {"version.torch": "2.9", "device_class": "h100"}


def _submit(api, steps=STEPS):
    job = {
        "name": "mine",
        "engine": "external",
        "baseline": {"recipe": "fp8_current", "replicates": 2},
        "candidates": [{"recipe": "nvfp4", "replicates": 2}],
        "schedule": {"steps": steps, "warmup_steps": 2},
    }
    answer = api.post("/api/v1/jobs", json={"job": job, "policy": {"margin": "1.0%"}})
    assert answer.status_code == 202, answer.text
    return answer.json()


@pytest.fixture
def run(api):
    """A run that awaits its trainer."""
    return _submit(api)["arms"][0]["runs"][0]["id"]


def _attach(api, run, **changes):
    return api.post(f"/api/v1/runs/{run}:attach", json={"manifest": MANIFEST} | changes)


def _append(api, run, attempt_number, steps, loss, **more):
    return api.post(
        f"/api/v1/runs/{run}/steps",
        params={"attempt": attempt_number},
        json={"steps": steps, "columns": {"loss": loss, **more}},
    )


def _finish(api, run, attempt_number, outcome="finished", **more):
    return api.post(
        f"/api/v1/runs/{run}:finish", json={"attempt": attempt_number, "outcome": outcome, **more}
    )


def _age(database, run, seconds):
    """Let time pass for a run, while the service listens."""
    with database.write() as session:
        renew(session, 3600.0)
        session.get_one(Run, run).lease_expires_at -= seconds


def test_a_job_that_the_user_trains_is_judged(api, database, ended):
    job = _submit(api)
    assert {run["state"] for arm in job["arms"] for run in arm["runs"]} == {"awaiting_data"}
    assert "Waiting for data of 4 of 4 runs" in job["waiting"]
    generator = np.random.default_rng(0)
    batch = generator.normal(0, 0.1, STEPS)
    for arm in job["arms"]:
        for described in arm["runs"]:
            run = described["id"]
            attempt_number = _attach(api, run, recipe=arm["recipe"]).json()["attempt"]
            gap = 0.1 if arm["name"] == "nvfp4" else 0.0
            loss = (
                1.4
                + 1.5 * np.exp(-np.arange(STEPS) / 100)
                + batch
                + gap
                + generator.normal(0, 0.01, STEPS)
            )
            table = np.stack([np.arange(STEPS), loss, np.full(STEPS, 0.7)])
            for first in (700, 0):
                part = table[:, first : first + (800 if first else 700)]
                answer = api.post(
                    f"/api/v1/runs/{run}/steps",
                    params={"attempt": attempt_number, "names": "step,loss,grad_norm"},
                    content=part.tobytes(),
                    headers={"Content-Type": "application/octet-stream"},
                )
                assert answer.status_code == 200, answer.text
            assert answer.json()["covered"] | {"gaps": []} == {
                "recorded": STEPS,
                "first_step": 0,
                "last_step": STEPS - 1,
                "stride": 1,
                "missing": 0,
                "gaps": [],
            }
            assert _finish(api, run, attempt_number).json()["state"] == "finished"
    document = ended(api, job["id"])
    assert document["status"] == "concluded"
    (verdict,) = document["verdicts"]
    assert verdict["verdict"] == "fail"
    assert verdict["gap"]["mean"] == pytest.approx(0.1, abs=0.01)
    assert verdict["context_differs"] == []
    assert api.get(f"/api/v1/jobs/{job['id']}/evidence.zip").status_code == 200
    with database.read() as session:
        assert [event.kind for event in events.after(session, job["id"], 0)].count("verdict") == 1


def test_ending_the_last_run_does_not_wait_for_the_judge(api, ended, monkeypatch):
    job, judged, go = _submit(api, 10), [], threading.Event()
    decide = conclude.decide

    def slow(session, job_id):
        judged.append(job_id)
        assert go.wait(60)
        return decide(session, job_id)

    monkeypatch.setattr(conclude, "decide", slow)
    for described in [run for arm in job["arms"] for run in arm["runs"]]:
        attempt_number = _attach(api, described["id"]).json()["attempt"]
        _append(api, described["id"], attempt_number, list(range(10)), [1.0] * 10)
        answers = [_finish(api, described["id"], attempt_number) for _ in range(3)]
        assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [
            (200, "finished")
        ] * 3
    assert api.get(f"/api/v1/jobs/{job['id']}").json()["status"] == "running"
    go.set()
    assert ended(api, job["id"])["status"] == "concluded"
    assert judged == [job["id"]]


def test_what_came_is_told_with_its_gaps(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    _append(api, run, attempt_number, [0, 10, 20], [3.0, 2.0, 1.0])
    answer = _append(api, run, attempt_number, [50, 60], [1.0, 1.0]).json()
    assert answer["new_steps"] == 2
    assert answer["covered"]["gaps"] == [{"first_step": 30, "last_step": 40, "missing": 2}]
    again = _append(api, run, attempt_number, [60, 40, 30, 50], [1.0, 4.0, 3.0, 1.0]).json()
    assert (again["new_steps"], again["covered"]["missing"], again["covered"]["recorded"]) == (
        2,
        0,
        7,
    )
    assert api.get(f"/api/v1/runs/{run}").json()["covered"] == again["covered"]


def test_other_numbers_are_a_conflict_and_the_same_are_none(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    for _ in range(2):
        assert _append(api, run, attempt_number, [0, 1], [1.0, "nan"]).status_code == 200
    assert _append(api, run, attempt_number, [1], [None]).status_code == 200  # absent, and so NaN
    answer = _append(api, run, attempt_number, [1, 2], [2.0, 2.0])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:parity:problem:conflict")
    assert "step 1" in answer.json()["detail"]
    assert api.get(f"/api/v1/runs/{run}").json()["covered"]["recorded"] == 2


def test_a_newer_attach_fences_the_older_trainer(api, database, run):
    first, second = (_attach(api, run).json()["attempt"] for _ in range(2))
    assert (first, second) == (1, 2)
    for answer in (_append(api, run, 1, [0], [1.0]), _finish(api, run, 1)):
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "urn:parity:problem:stale-attempt",
        )
    assert _append(api, run, 2, [0], [1.0]).status_code == 200
    assert _append(api, run, 3, [0], [1.0]).status_code == 422
    with database.read() as session:
        assert [
            (one.attempt_number, one.state)
            for one in session.query(Attempt).order_by(Attempt.attempt_number)
        ] == [
            (1, "lost"),
            (2, "running"),
        ]


def test_a_trainer_that_breaks_off_is_awaited_and_goes_on(api, database, run):
    _append(api, run, _attach(api, run).json()["attempt"], list(range(10)), [1.0] * 10)
    broken = _finish(api, run, 1, "broke_off", message="OutOfMemoryError: 80 GiB").json()
    assert (broken["state"], broken["code"], broken["message"]) == (
        "awaiting_data",
        "TRAINER_BROKE_OFF",
        "OutOfMemoryError: 80 GiB",
    )
    assert _append(api, run, 1, [10], [1.0]).status_code == 409
    attempt_number = _attach(api, run, after=1).json()["attempt"]
    covered = _append(api, run, attempt_number, [6, 7], [2.0, 2.0]).json()["covered"]
    assert (covered["recorded"], covered["last_step"]) == (8, 7)
    assert _attach(api, run, after=1).status_code == 409
    assert api.get(f"/api/v1/runs/{run}").json()["attempt"] == 2


def test_finishing_twice_changes_nothing_and_ends_the_writing(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    assert _finish(api, run, attempt_number).status_code == 422  # nothing was recorded
    _append(api, run, attempt_number, [0], [1.0])
    assert [_finish(api, run, attempt_number).status_code for _ in range(2)] == [200, 200]
    for answer in (
        _append(api, run, attempt_number, [1], [1.0]),
        _finish(api, run, attempt_number, "failed"),
        _attach(api, run),
    ):
        assert answer.status_code == 409
        assert "ended (finished)" in answer.json()["detail"]


def test_another_recipe_another_engine_and_a_cancelled_job_take_no_trainer(api, run, recorded):
    answer = _attach(api, run, recipe="nvfp4")
    assert answer.status_code == 422
    assert "fp8_current" in answer.json()["detail"]
    assert _append(api, run, 1, [0], [1.0]).status_code == 422  # not attached
    emulated = api.get(f"/api/v1/jobs/{recorded({'nvfp4': 0.0}, done=0, state='running')}").json()[
        "arms"
    ][0]["runs"][0]["id"]
    assert "engine emulated" in _attach(api, emulated).json()["detail"]
    assert _attach(api, "r-none").status_code == 404
    attempt_number = _attach(api, run).json()["attempt"]
    api.post(f"/api/v1/jobs/{api.get(f'/api/v1/runs/{run}').json()['job']}:cancel")
    assert "cancelled" in _append(api, run, attempt_number, [0], [1.0]).json()["detail"]


def test_arms_with_other_versions_are_confounded(api, ended):
    job = _submit(api, 10)
    for arm in job["arms"]:
        for described in arm["runs"]:
            manifest = MANIFEST | ({"version.torch": "2.8"} if arm["name"] == "nvfp4" else {})
            attempt_number = _attach(api, described["id"], manifest=manifest).json()["attempt"]
            _append(api, described["id"], attempt_number, list(range(10)), [1.0] * 10)
            _finish(api, described["id"], attempt_number)
    (verdict,) = ended(api, job["id"])["verdicts"]
    assert verdict["verdict"] == "inconclusive"
    assert "CONFOUNDED" in verdict["codes"]
    assert verdict["context_differs"] == ["version.torch: 2.8 | 2.9"]


def test_a_resumed_run_with_other_versions_says_both(api, run):
    _append(api, run, _attach(api, run).json()["attempt"], [0], [1.0])
    for _ in range(2):
        answer = _attach(api, run, manifest=MANIFEST | {"version.torch": "3.0"})
    assert answer.json()["manifest"] == {
        "device_class": "h100",
        "engine": "external",
        "version.torch": "2.9, later 3.0",
    }


def test_silence_is_stale_first_and_a_failure_in_the_end(api, database, settings, run):
    attempt_number = _attach(api, run).json()["attempt"]
    _age(database, run, 3600)
    assert mark_or_fail_stale(settings, database) == []
    stale = api.get(f"/api/v1/runs/{run}").json()
    assert (stale["state"], stale["code"]) == ("running", "STALE")
    assert _append(api, run, attempt_number, [0], [1.0]).json()["code"] is None
    _age(database, run, settings.external_silence_seconds)
    assert mark_or_fail_stale(settings, database) == [run]
    failed = api.get(f"/api/v1/runs/{run}").json()
    assert (failed["state"], failed["code"]) == ("failed", "SILENT")
    assert "24 hours" in failed["message"]
    assert mark_or_fail_stale(settings, database) == []


def test_a_run_that_broke_off_is_not_awaited_for_ever(api, database, settings, run):
    attempt_number = _attach(api, run).json()["attempt"]
    _finish(api, run, attempt_number, "broke_off", message="killed")
    _age(database, run, settings.external_silence_seconds)
    assert mark_or_fail_stale(settings, database) == [run]
    assert "TRAINER_BROKE_OFF: killed" in api.get(f"/api/v1/runs/{run}").json()["message"]


_BYTES = [
    ("loss,step", b"\0" * 16, "`step` and then"),
    ("step", b"\0" * 16, "`step` and then"),
    ("step,loss", b"\0" * 15, "15 bytes"),
    ("step,loss", b"", "0 bytes"),
    ("step,lo ss", b"\0" * 16, "'lo ss'"),
    ("step,loss", np.array([-1.0, 0.0]).tobytes(), "whole numbers"),
    ("step,loss", np.array([np.nan, 0.0]).tobytes(), "whole numbers"),
    ("step,grad_norm", b"\0" * 16, "no loss"),
    ("step,loss", b"\0" * 16 * 100_001, "100,000"),
]
_BODIES = [
    {"steps": [], "columns": {"loss": []}},
    {"steps": [0], "columns": {"loss": [1.0, 2.0]}},
    {"steps": [0], "columns": {"loss": [[None]]}},
    {"steps": [-1], "columns": {"loss": [1.0]}},
    {"steps": [0.5], "columns": {"loss": [1.0]}},
    {"steps": [2**60], "columns": {"loss": [1.0]}},
    {"steps": [0], "columns": {"": [1.0]}},
    {"steps": [0], "columns": {"loss": [1.0]}, "more": 1},
    {"steps": [0], "columns": {}},
    {"steps": [True], "columns": {"loss": [1.0]}},
    {"steps": ["1"], "columns": {"loss": [1.0]}},
    {"steps": [0, 1], "columns": {"loss": [1.0, False]}},
    {"steps": [0], "columns": {"loss": [1.0], "grad_norm": ["1"]}},
    [],
]


def test_a_bad_batch_is_refused_in_words(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    headers = {"Content-Type": "application/octet-stream"}
    for names, content, words in _BYTES:
        answer = api.post(
            f"/api/v1/runs/{run}/steps",
            params={"attempt": attempt_number, "names": names},
            content=content,
            headers=headers,
        )
        assert answer.status_code == 422
        assert words in answer.json()["detail"]
    for body in _BODIES:
        answer = api.post(
            f"/api/v1/runs/{run}/steps", params={"attempt": attempt_number}, json=body
        )
        assert answer.status_code == 422
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert api.get(f"/api/v1/runs/{run}").json()["covered"]["recorded"] == 0


def test_nan_null_and_infinity_come_back(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    _append(api, run, attempt_number, [0, 1, 2, 3], [None, "nan", "inf", "-inf"])
    series = api.get(f"/api/v1/runs/{run}/metrics").json()["series"][0]
    assert [point["kind"] for point in series["nonfinite"]] == ["nan", "nan", "inf", "-inf"]
    job = api.get(f"/api/v1/runs/{run}").json()["job"]
    assert api.get(f"/api/v1/jobs/{job}").json()["arms"][0]["runs"][0]["loss"] == "-inf"


def test_trainers_need_a_token_that_may_write(settings, database, application):
    with TestClient(
        application(settings.model_copy(update={"require_tokens": True, "max_body_bytes": 5000}))
    ) as closed:
        tokens = {}
        with database.write() as session:
            owner, text = api_tokens.create_token(session, "submit", ["submit"], None)
            tokens["submit"] = {"Authorization": f"Bearer {text}"}
            for name, scope, principal in (
                ("view", "view", owner.id),
                ("worker", "worker", owner.id),
                ("stranger", "worker", None),
            ):
                _, text = api_tokens.create_token(
                    session, name, [scope], None, principal_id=principal
                )
                tokens[name] = {"Authorization": f"Bearer {text}"}
        closed.headers |= tokens["submit"]
        run = _submit(closed)["arms"][0]["runs"][0]["id"]
        path, body = f"/api/v1/runs/{run}:attach", {"manifest": {}}
        statuses = {
            scope: closed.post(path, json=body, headers=headers).status_code
            for scope, headers in tokens.items()
        }
        assert statuses == {"view": 403, "submit": 200, "worker": 200, "stranger": 403}
        large = closed.post(f"/api/v1/runs/{run}/steps", params={"attempt": 2}, content=b" " * 6000)
        assert (large.status_code, large.headers["Content-Type"]) == (
            413,
            "application/problem+json",
        )


def test_a_run_is_ended_with_its_reason(api, database, run):
    attempt_number = _attach(api, run).json()["attempt"]
    answer = _finish(
        api, run, attempt_number, "failed", message="the data ran out of s3://me:hunter2@corpus"
    ).json()
    assert (answer["code"], answer["message"]) == (
        "TRAINER_FAILED",
        "the data ran out of s3://me:***@corpus",
    )
    with database.read() as session:
        row = session.get_one(Run, run)
        assert row.finished_at == pytest.approx(time.time(), abs=60)
        assert session.get_one(Job, row.job_id).status == "running"
        assert (
            session.get_one(Attempt, (run, attempt_number)).message
            == "the data ran out of s3://me:***@corpus"
        )


def test_a_trainer_states_how_it_rounds_unless_its_recipe_says_otherwise(api, database):
    baseline, candidate = (arm["runs"][0]["id"] for arm in _submit(api)["arms"])
    assert _attach(api, baseline, rounding="nearest").status_code == 200
    with database.read() as session:
        assert session.get_one(Run, baseline).rounding == "nearest"
    refused = _attach(api, candidate, rounding="nearest")
    assert refused.status_code == 422
    assert "rounds stochastically" in refused.json()["detail"]
    assert _attach(api, candidate, rounding="neerest").status_code == 422


def test_a_run_has_at_most_a_thousand_columns_over_all_of_its_batches(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    names = [f"layer/{number:04}" for number in range(1100)]
    refused = None
    for step, first in enumerate(range(0, len(names), 60)):
        answer = _append(
            api,
            run,
            attempt_number,
            [step],
            [1.0],
            **{name: [1.0] for name in names[first : first + 60]},
        )
        refused = refused or (answer if answer.status_code != 200 else None)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (
        422,
        "/columns/layer/0960",
    )
    assert all(part in refused.json()["detail"] for part in (run, "1,000"))
    # What it has may go on, and be read: 16 batches of 60, and the loss.
    assert (
        _append(
            api, run, attempt_number, [90], [1.0], **{name: [1.0] for name in names[:60]}
        ).status_code
        == 200
    )
    series = api.get(f"/api/v1/runs/{run}/metrics", params={"names": ",".join(names[:900])}).json()[
        "series"
    ]
    assert len(series) == 900


def test_columns_of_several_hundred_names_are_an_honest_run(api, run):
    attempt_number = _attach(api, run).json()["attempt"]
    for first in range(0, 300, 60):
        more = {f"layer/{number}": [1.0, 2.0] for number in range(first, first + 60)}
        assert (
            _append(api, run, attempt_number, [first, first + 1], [1.0, 1.0], **more).status_code
            == 200
        )
    assert len(api.get(f"/api/v1/runs/{run}/steps").json()["columns"]) == 301


def test_the_manifest_of_a_run_that_is_attached_again_and_again_stays_small(api, run):
    """A trainer that names its machine, and is preempted often."""
    _append(api, run, _attach(api, run).json()["attempt"], [0], [1.0])
    for number in range(30):
        answer = _attach(api, run, manifest=MANIFEST | {"node": f"n{number}"})
    assert answer.status_code == 200
    assert answer.json()["manifest"]["node"].split(", later ") == [
        "n0",
        "n1",
        "n2",
        "n3",
        "…",
        "n26",
        "n27",
        "n28",
        "n29",
    ]


def test_a_manifest_that_grows_without_end_is_refused(api, run):
    _append(api, run, _attach(api, run).json()["attempt"], [0], [1.0])
    statuses = []
    for number in range(6):
        manifest = {f"fact{number}-{index}": "x" * 990 for index in range(90)}
        answer = _attach(api, run, manifest=manifest)
        statuses.append(answer.status_code)
        assert len(answer.content) < 300_000
    assert statuses == [200, 200, 409, 409, 409, 409]
    assert "262,144" in answer.json()["detail"]


def test_the_answer_to_a_batch_is_as_short_as_the_batch(api, run):
    attempt_number = _attach(
        api, run, manifest={f"fact{index}": "x" * 1000 for index in range(100)}
    ).json()["attempt"]
    answer = _append(api, run, attempt_number, [0], [1.0])
    assert len(answer.content) < 1000
    assert answer.json()["new_steps"] == 1
    assert len(api.get(f"/api/v1/runs/{run}").json()["manifest"]) == 101


@pytest.mark.parametrize(
    "columns",
    [
        {"loss": [None] * 5000},
        {"loss": [1.0], **{f"n{index}": ["x"] * 5000 for index in range(60)}},
    ],
)
def test_a_batch_of_wrong_values_is_refused_with_a_few_findings(api, run, columns):
    attempt_number = _attach(api, run).json()["attempt"]
    answer = api.post(
        f"/api/v1/runs/{run}/steps",
        params={"attempt": attempt_number},
        json={"steps": ["x"] * 5000, "columns": columns},
    )
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) <= 100
    assert len(answer.content) < 20_000
