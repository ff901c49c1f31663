"""Named baselines: promoted, immutable, audited, expired; named by jobs, refused where they don't
fit, and measured by their reruns.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.database.metrics import store
from server.database.tables import Baseline, BaselineEvent, Chunk, Job, Run
from server.jobs.conclude import conclude
from server.jobs.fingerprint import equal_run, named_baseline_mismatch
from server.retention.keeper import delete_batch, plan
from server.web.access import api_tokens

both = pytest.mark.both_databases
URL = "/api/v1/baselines"
REASON = {"reason": "the release's FP8"}


@pytest.fixture
def promoted(api, judged):
    """A function that promotes a judged job's baseline as `fp8`: the job's id, the request that
    asks the same, the version's document.
    """

    def make(*, verdict=False, **more):
        job_id, request = judged({"nvfp4": 0.0}, verdict=verdict)
        answer = api.post(URL, json={"name": "fp8", "job": job_id, **REASON, **more})
        assert answer.status_code == 201, answer.text
        assert answer.headers["Location"] == f"{URL}/fp8/versions/{answer.json()['version']}"
        return job_id, request, answer.json()

    return make


def _submitted(api, request, status=202, **choice):
    answer = api.post("/api/v1/jobs", json={**request, "baseline": {"name": "fp8", **choice}})
    assert answer.status_code == status, answer.text
    return answer.json()


def _train_candidates(database, job_id, manifest, *, offset=0.0):
    """Give a job's queued runs curves like those of its baseline, as a worker would, and
    judge it.
    """
    generator = np.random.default_rng(11)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        steps, columns = store.read(session, job.runs[0].id, "train")
        for run in job.runs:
            if run.state == "queued":
                noise = generator.normal(0, 0.01, len(steps)) + generator.normal(0, 0.001) + offset
                store.append(
                    session,
                    run.id,
                    "train",
                    1,
                    steps,
                    {**columns, "lm_loss": columns["lm_loss"] + noise},
                )
                run.state, run.attempt_number, run.steps_done, run.manifest, run.finished_at = (
                    "finished",
                    1,
                    len(steps),
                    manifest,
                    time.time(),
                )
    conclude(database, job_id)


def test_a_version_says_what_it_is_and_never_changes(api, promoted, database):
    job_id, _, first = promoted()
    assert (first["name"], first["version"], first["newest"], first["runs"], first["controls"]) == (
        "fp8",
        1,
        True,
        2,
        0,
    )
    assert (first["recipe"], first["job"], first["expires_at"], first["expired"]) == (
        "fp8_current",
        job_id,
        None,
        False,
    )
    assert [(run["role"], run["replicate"]) for run in first["members"]] == [
        ("member", 0),
        ("member", 1),
    ]
    assert 0 <= first["members"][0]["age_seconds"] < 600
    assert first["spec"]["schedule.steps"] == "1500"
    assert first["manifest"]["data_digest"] == "d"
    (entry,) = first["audit"]
    assert (entry["who"], entry["kind"], entry["reason"]) == (
        "this machine",
        "promoted",
        REASON["reason"],
    )
    assert job_id in entry["detail"]
    again = api.post(URL, json={"name": "fp8", "job": job_id, **REASON})
    assert (again.status_code, "already are fp8 version 1" in again.text) == (409, True)
    _, _, second = promoted(days=30)
    assert (second["version"], second["expired"]) == (2, False)
    kept = api.get(f"{URL}/fp8/versions/1").json()
    assert kept["newest"] is False
    for same in ("members", "spec", "manifest", "audit"):
        assert [_ageless(one) for one in kept[same]] == [_ageless(one) for one in first[same]]
    assert api.get(f"{URL}/fp8").json()["version"] == 2


def _ageless(one):
    return (
        {key: value for key, value in one.items() if key != "age_seconds"}
        if isinstance(one, dict)
        else one
    )


def test_the_list_has_a_page_after_the_other(api, promoted):
    promoted()
    promoted()
    api.post(URL, json={"name": "other", "job": promoted()[0], **REASON})
    first = api.get(URL, params={"limit": 3}).json()
    second = api.get(URL, params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [
        (one["name"], one["version"], one["newest"]) for one in first["items"] + second["items"]
    ] == [
        ("other", 1, True),
        ("fp8", 3, True),
        ("fp8", 2, False),
        ("fp8", 1, False),
    ]
    assert second["next_cursor"] is None
    assert len(api.get(URL, params={"name": "fp8"}).json()["items"]) == 3
    assert api.get(URL, params={"cursor": "x"}).status_code == 422


def test_what_can_not_be_promoted_or_named_is_refused(api, judged):
    job_id, request = judged({"nvfp4": 0.0}, verdict=False)
    for body, status, words in (
        ({"name": "-x"}, 422, "name"),
        ({"reason": " "}, 422, "reason"),
        ({"days": 0}, 422, "days"),
        ({"arm": "bf16"}, 404, "has no arm 'bf16', expected one of fp8_current, nvfp4"),
        ({"job": "j000000000000-0000000000"}, 404, "does not exist"),
        ({"versoin": 1}, 422, "versoin"),
    ):
        answer = api.post(URL, json={"name": "fp8", "job": job_id, **REASON, **body})
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    for choice, words in (
        ({"version": 1, "name": None}, "without baseline.name"),
        ({"reuse": False}, "leave one of the two out"),
        ({"name": "no such name"}, "name"),
        ({"version": 0}, "version"),
        ({"verison": 1}, "verison"),
    ):
        assert words in json.dumps(_submitted(api, request, status=422, **choice))
    assert "baseline 'fp8' does not exist" in _submitted(api, request, status=404)["detail"]


def test_only_sound_runs_are_promoted(api, database, recorded):
    broken = {
        "has recorded 1400 of its 1500 steps": recorded({"nvfp4": 0.0}, done=1400),
        "is running, not finished": recorded({"nvfp4": 0.0}, done=1400, state="running"),
        "ended with DIVERGED": recorded({"nvfp4": 0.0}),
        "non-finite": recorded({"nvfp4": 0.0}),
    }
    with database.write() as session:
        diverged, spiked = (
            session.get_one(Job, broken[why]).runs[0]
            for why in ("ended with DIVERGED", "non-finite")
        )
        diverged.code = "DIVERGED"
        steps, columns = store.read(session, spiked.id, "train")
        columns["lm_loss"][700] = np.nan
        store.append(session, spiked.id, "train", 1, steps, columns)
    for why, job_id in broken.items():
        answer = api.post(URL, json={"name": "fp8", "job": job_id, **REASON})
        assert (answer.status_code, why in answer.json()["detail"]) == (409, True), answer.text
    assert api.get(URL).json()["items"] == []


def test_the_newest_sound_run_of_a_baseline_arm_serves(database, recorded):
    old, new = (recorded({"nvfp4": 0.0}) for _ in range(2))
    with database.write() as session:
        for age, job_id in enumerate((new, old)):
            for run in session.get_one(Job, job_id).runs:
                run.fingerprint, run.finished_at = "f", time.time() - age
                if run.replicate:
                    run.code = "EARLY_STOP"
        ids = {job_id: session.get_one(Job, job_id).runs[0].id for job_id in (old, new)}
        for change, serves in (
            ({}, new),
            ({"code": "DIVERGED"}, old),
            ({"state": "failed"}, old),
            ({"reused_from": ids[old]}, old),
        ):
            run = session.get_one(Run, ids[new])
            for name, value in (
                {"code": None, "state": "finished", "reused_from": None} | change
            ).items():
                setattr(run, name, value)
            session.flush()
            assert equal_run(session, "f").id == ids[serves]
        session.get_one(Run, ids[old]).code = "METRICS_GAP"
        session.flush()
        assert equal_run(session, "f") is None


def test_no_curve_on_data_that_are_known_by_name_alone_serves_unasked(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        run = session.get_one(Job, job_id).runs[0]
        run.fingerprint = "f"
        run.manifest = {**(run.manifest or {}), "data_digest": "0" * 64}
        session.flush()
        assert equal_run(session, "f") is run
        run.manifest = {**run.manifest, "data_digest": f"named:{'0' * 64}"}
        session.flush()
        assert equal_run(session, "f") is None


def test_a_job_may_name_a_baseline_on_such_data(api, promoted, database, register):
    register()
    first, request, _ = promoted()
    with database.write() as session:
        for run in session.get_one(Job, first).runs:
            run.manifest = {**run.manifest, "data_digest": "named:d"}
    request["job"]["name"] = "later"
    job = _submitted(api, request)
    assert {run["reused"]["job"] for run in job["arms"][0]["runs"]} == {first}
    with database.read() as session:
        mine = session.get_one(Job, job["id"])
        assert named_baseline_mismatch(mine, mine.runs[0].manifest) is None


@both
def test_a_job_takes_the_curves_of_the_baseline_that_it_names(api, promoted, database, register):
    register()
    first, request, version = promoted()
    request["job"]["name"] = "later"
    job = _submitted(api, request)
    assert job["baseline"] == {
        "name": "fp8",
        "version": 1,
        "controls": 0,
        "promoted_by": "this machine",
    }
    baseline, candidate = job["arms"]
    assert [run["state"] for run in baseline["runs"] + candidate["runs"]] == ["finished"] * 2 + [
        "queued"
    ] * 2
    assert [run["reused"]["run"] for run in baseline["runs"]] == [
        run["run"] for run in version["members"]
    ]
    assert {run["reused"]["job"] for run in baseline["runs"]} == {first}
    assert 0 <= baseline["runs"][0]["reused"]["age_seconds"] < 600
    assert candidate["runs"][0]["reused"] is None
    ours, theirs = (
        api.get(f"/api/v1/runs/{run}/steps?names=lm_loss,grad_norm").json()
        for run in (baseline["runs"][1]["id"], version["members"][1]["run"])
    )
    assert ours["columns"] == theirs["columns"]
    assert (
        api.get(f"/api/v1/runs/{baseline['runs'][0]['id']}").json()["covered"]["recorded"] == 1500
    )
    _train_candidates(database, job["id"], version["manifest"])
    (verdict,) = api.get(f"/api/v1/jobs/{job['id']}/verdict").json()["verdicts"]
    assert verdict["verdict"] == "pass", verdict["reasons"]
    (note,) = verdict["inputs"]["baseline"][0]["notes"]
    assert f"trained as run {version['members'][0]['run']} of job {first}" in note
    assert api.get(f"{URL}/fp8").json()["named_by"] == [job["id"]]


def test_controls_give_later_candidates_a_measured_run_noise(
    api, promoted, database, register, judged
):
    register()
    _, request, version = promoted()
    reruns, _ = judged({"nvfp4": 0.0}, verdict=False, rerun=1)
    before = api.get(f"{URL}/fp8").json()["noise"]
    assert (before["source"], before["measured_df"]) == ("controls", 1)
    controls = f"{URL}/fp8/versions/1/controls"
    attached = api.post(controls, json={"runs_of": reruns, "reason": "two reruns"}).json()
    assert (attached["runs"], attached["controls"], attached["noise"]["measured_df"]) == (2, 2, 3)
    assert [entry["kind"] for entry in attached["audit"]] == ["promoted", "control"]
    nothing = api.post(controls, json={"runs_of": "r000000000000-0000000000", "reason": "?"})
    assert (nothing.status_code, "r000000000000-0000000000" in nothing.text) == (409, True)
    copies, _ = judged({"nvfp4": 0.0}, verdict=False)
    assert (
        "not an independent rerun"
        in api.post(controls, json={"runs_of": copies, "reason": "the same"}).text
    )
    again = api.post(controls, json={"runs_of": reruns, "reason": "again"})
    assert (again.status_code, "already belongs to the baseline" in again.text) == (409, True)
    request["job"]["baseline"]["replicates"] = request["job"]["candidates"][0]["replicates"] = 1
    job = _submitted(api, request)
    assert job["baseline"]["controls"] == 3  # the version's other member too
    _train_candidates(database, job["id"], version["manifest"])
    (verdict,) = api.get(f"/api/v1/jobs/{job['id']}/verdict").json()["verdicts"]
    assert verdict["tau"]["baseline"]["source"] == "controls"
    assert verdict["tau"]["baseline"]["measured_df"] == verdict["tau"]["controls_used"] == 3
    alone = api.post("/api/v1/jobs", json=request).json()
    with database.write() as session:
        for run in session.get_one(Job, alone["id"]).runs[:1]:
            steps, columns = store.read(session, version["members"][0]["run"], "train")
            store.append(session, run.id, "train", 1, steps, columns)
            run.state, run.attempt_number, run.steps_done, run.manifest = (
                "finished",
                1,
                1500,
                version["manifest"],
            )
    _train_candidates(database, alone["id"], version["manifest"])
    (assumed,) = api.get(f"/api/v1/jobs/{alone['id']}/verdict").json()["verdicts"]
    assert assumed["tau"]["baseline"]["source"] == "prior"
    assert verdict["tau"]["baseline"]["df"] > assumed["tau"]["baseline"]["df"]
    assert verdict["gap"]["mean"] == assumed["gap"]["mean"]


def test_the_evidence_of_a_named_baseline_verifies(
    api, promoted, database, register, judged, tmp_path
):
    from parity.judging.bundles.verification import verify

    register()
    _, request, version = promoted()
    api.post(
        f"{URL}/fp8/versions/1/controls",
        json={"runs_of": judged({"nvfp4": 0.0}, verdict=False, rerun=1)[0], **REASON},
    )
    job = _submitted(api, request)
    _train_candidates(database, job["id"], version["manifest"])
    later, _ = judged({"nvfp4": 0.0}, verdict=False, rerun=2)
    assert (
        api.post(f"{URL}/fp8/versions/1/controls", json={"runs_of": later, **REASON}).json()[
            "controls"
        ]
        == 4
    )  # too late for that verdict
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(api.get(f"/api/v1/jobs/{job['id']}/evidence.zip").content)
    assert verify(str(bundle)).differences == ()


def test_another_specification_or_trainer_is_refused_before_anything_is_queued(
    api, promoted, register
):
    _, request, _ = promoted()
    job = request["job"]
    for change, words in (
        (
            {"schedule": {**job["schedule"], "steps": 1400}},
            "schedule.steps is 1400 in this job, 1500 there",
        ),
        ({"seed": 1}, "seed is 1 in this job, 0 there"),
        (
            {"baseline": {"recipe": "bf16", "replicates": 2}},
            "recipe is bf16 in this job, fp8_current there",
        ),
        (
            {"baseline": {"recipe": "fp8_current", "replicates": 3}},
            "has replicates 0, 1, but this job's baseline needs replicate 2",
        ),
    ):
        refused = _submitted(api, {**request, "job": {**job, **change}}, status=409)
        assert words in refused["detail"], refused
    # no worker is known: it waits, and the candidate's worker is asked when it begins
    _submitted(api, request)
    register(**{"version.jax": "0.12"})
    assert (
        "version.jax is 0.12 on w, was 0.10.2; promote a new version"
        in _submitted(api, request, status=409)["detail"]
    )
    assert api.get(f"{URL}/fp8").json()["workers"] == [
        "the trainer changed: version.jax is 0.12 on w, was 0.10.2"
    ]
    assert len(api.get("/api/v1/jobs").json()["items"]) == 2


def test_an_expired_version_is_not_named_any_more(api, promoted, register, database):
    register()
    _, request, _ = promoted()
    ended = api.post(f"{URL}/fp8/versions/1:expire", json={"reason": "wrong data"}).json()
    assert (ended["expired"], [entry["kind"] for entry in ended["audit"]]) == (
        True,
        ["promoted", "expired"],
    )
    assert (
        api.post(f"{URL}/fp8/versions/1:expire", json={"reason": "again"}).json()["audit"]
        == ended["audit"]
    )
    assert "fp8 version 1 expired on 20" in _submitted(api, request, status=409)["detail"]
    assert (
        "baseline 'fp8 version 7' does not exist"
        in _submitted(api, request, status=404, version=7)["detail"]
    )
    promoted(days=30)
    assert _submitted(api, request)["baseline"]["version"] == 2
    with database.write() as session:
        session.scalars(select(Baseline).where(Baseline.version == 2)).one().expires_at -= (
            31 * 86_400
        )
    assert "fp8 version 2 expired" in _submitted(api, request, status=409)["detail"]


@both
def test_two_who_promote_at_once_get_two_versions(api, judged):
    ids = [judged({"nvfp4": 0.0}, verdict=False)[0] for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(
                lambda job_id: api.post(URL, json={"name": "fp8", "job": job_id, **REASON}), ids
            )
        )
    assert sorted(answer.json()["version"] for answer in answers) == [1, 2, 3, 4]


def test_retention_keeps_what_is_named_and_what_is_reused(
    api, settings, database, promoted, recorded, register
):
    register()
    _, request, version = promoted()
    job = _submitted(api, request)
    reruns = recorded({"nvfp4": 0.0})
    # an A/A job: its candidate is the baseline's recipe under another name
    with database.write() as session:
        row = session.get_one(Job, reruns)
        row.spec = {
            **row.spec,
            "candidates": [{"recipe": "fp8_current", "name": "nvfp4", "replicates": 2}],
        }
        control = next(run for run in row.runs if run.arm.role == "candidate")
        control.manifest = version["manifest"]
    attached = api.post(f"{URL}/fp8/versions/1/controls", json={"runs_of": control.id, **REASON})
    assert attached.status_code == 200, attached.text
    with database.write() as session:
        for row in session.scalars(select(Job)):
            row.status, row.finished_at = "cancelled", time.time() - 40 * 86_400
    for batch in plan(settings.model_copy(update={"retention_days": 30.0}), database):
        delete_batch(database, batch)
    with database.read() as session:
        kept = {
            run.id
            for run in session.scalars(select(Run))
            if session.scalars(select(Chunk).where(Chunk.run_id == run.id)).first()
        }
        assert control.id in kept
        assert {run["run"] for run in version["members"]} <= kept
        other = {
            run.id for run in session.get_one(Job, reruns).runs if run.arm.role == "candidate"
        } - {control.id}
        assert not other & kept  # a candidate without a verdict that nobody named
        assert len(store.read(session, job["arms"][0]["runs"][0]["id"], "train")[0]) == 1500


def test_what_differs_between_versions_and_jobs_is_listed(api, promoted, judged, database):
    _, request, _ = promoted()
    other, _ = judged({"nvfp4": 0.0}, verdict=False, steps=1400)
    with database.write() as session:
        for run in session.get_one(Job, other).runs:
            run.manifest = {**run.manifest, "version.jax": "0.12", "env.XLA_FLAGS": "--x"}
    api.post(URL, json={"name": "fp8", "job": other, **REASON})
    for named in ("fp8@2", "fp8", other):
        difference = api.get(f"{URL}/fp8/versions/1/diff", params={"other": named}).json()
        assert difference["told"]
        assert difference["specification"] == [
            {"key": "schedule.steps", "baseline": "1500", "other": "1400"}
        ]
        assert difference["environment"] == [
            {"key": "env.XLA_FLAGS", "baseline": None, "other": "--x"},
            {"key": "version.jax", "baseline": "0.10.2", "other": "0.12"},
        ]
    queued = api.post("/api/v1/jobs", json=request).json()["id"]
    assert api.get(f"{URL}/fp8/versions/1/diff", params={"other": queued}).json()["told"] is False
    assert api.get(f"{URL}/fp8/versions/1/diff", params={"other": "fp8@x"}).status_code == 422


def test_a_gate_on_a_named_baseline_is_another_question(api, promoted, register):
    register()
    job_id, request, _ = promoted(verdict=True)
    assert api.post("/api/v1/jobs:gate", json=request).json()["job"]["id"] == job_id
    named = {**request, "baseline": {"name": "fp8"}}
    answer = api.post("/api/v1/jobs:gate", json=named).json()
    assert (answer["found"], answer["job"]["baseline"]["version"]) == ("new", 1)
    assert api.post("/api/v1/jobs:gate", json=named).json()["job"]["id"] == answer["job"]["id"]
    fresh = api.post("/api/v1/jobs:gate", json={**request, "fresh": True}).json()
    assert (fresh["found"], fresh["job"]["reuse"]) == ("new", False)


def test_a_users_own_trainer_is_refused_where_it_differs(api, database, promoted, settings):
    """Engine external: the baseline of one job serves the next, and its candidate's trainer is
    asked what it runs on.
    """
    body = {
        "job": {
            "name": "mine",
            "engine": "external",
            "schedule": {"steps": 400, "warmup_steps": 1},
            "baseline": {"recipe": "fp8_current"},
            "candidates": [{"recipe": "nvfp4"}],
        },
        "policy": {"margin": "1.0%"},
    }
    first = api.post("/api/v1/jobs", json=body).json()
    run = first["arms"][0]["runs"][0]["id"]
    manifest = {"version.torch": "2.9", "code": "abc"}
    attempt_number = api.post(f"/api/v1/runs/{run}:attach", json={"manifest": manifest}).json()[
        "attempt"
    ]
    steps = list(range(1, 401))
    losses = (2.0 + np.exp(-np.array(steps) / 50)).tolist()
    sent = api.post(
        f"/api/v1/runs/{run}/steps",
        params={"attempt": attempt_number},
        json={"steps": steps, "columns": {"loss": losses}},
    )
    assert sent.status_code == 200, sent.text
    api.post(f"/api/v1/runs/{run}:finish", json={"attempt": attempt_number, "outcome": "finished"})
    assert api.post(URL, json={"name": "torch", "job": first["id"], **REASON}).status_code == 201
    later = api.post("/api/v1/jobs", json={**body, "baseline": {"name": "torch"}}).json()
    assert later["arms"][0]["runs"][0]["reused"]["run"] == run
    assert "1 of 2 runs" in later["waiting"]
    candidate = later["arms"][1]["runs"][0]["id"]
    refused = api.post(
        f"/api/v1/runs/{candidate}:attach", json={"manifest": {**manifest, "version.torch": "2.10"}}
    )
    assert (refused.status_code, "version.torch is 2.10 here, 2.9 there" in refused.text) == (
        409,
        True,
    )
    assert (
        api.post(f"/api/v1/runs/{candidate}:attach", json={"manifest": manifest}).status_code == 200
    )


def test_reading_takes_view_and_promoting_submit(settings, database, judged, application):
    job_id, _ = judged({"nvfp4": 0.0}, verdict=False)
    with database.write() as session:
        tokens = {
            scope: api_tokens.create_token(session, scope, [scope], None)[1]
            for scope in ("view", "submit", "worker")
        }
    body = {"name": "fp8", "job": job_id, **REASON}
    with TestClient(
        application(settings.model_copy(update={"require_tokens": True})),
        base_url="http://127.0.0.1",
    ) as client:

        def send(method, path, scope, **more):
            return client.request(
                method, path, headers={"Authorization": f"Bearer {tokens[scope]}"}, **more
            )

        assert client.get(URL).status_code == 401
        assert send("POST", URL, "view", json=body).status_code == 403
        assert send("GET", URL, "worker").status_code == 403
        made = send("POST", URL, "submit", json=body)
        assert (made.status_code, made.json()["promoted_by"]) == (201, "submit")
        assert send("GET", f"{URL}/fp8", "view").status_code == 200
        assert send("POST", f"{URL}/fp8/versions/1:expire", "view", json=REASON).status_code == 403
    with database.read() as session:
        assert [event.kind for event in session.scalars(select(BaselineEvent))] == ["promoted"]


def test_a_job_of_a_launcher_has_a_commit_as_its_baseline_and_no_named_one(api, promoted):
    promoted()
    job: dict[str, Any] = {
        "name": "mine",
        "engine": "command",
        "command": {"launcher": "loop"},
        "schedule": {"steps": 400, "warmup_steps": 0},
    }
    job |= {"baseline": {"recipe": "fp8_current", "revision": "a" * 40, "name": "base"}}
    job |= {"candidates": [{"recipe": "fp8_current", "revision": "b" * 40, "name": "head"}]}
    refused = api.post(
        "/api/v1/jobs", json={"job": job, "policy": {"margin": "1.0%"}, "baseline": {"name": "fp8"}}
    )
    assert (
        refused.status_code,
        "baseline.name is fp8, expected none under engine command" in refused.json()["detail"],
    ) == (422, True)
