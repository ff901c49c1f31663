"""Goldens by name: written, checked, taken over, removed; whose they are, and what each refuses."""

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from parity.golden.golden_file import golden_text, parsed_golden
from parity.golden.sent_run import sent_run
from parity.judging.curves.curve import curve_from_arrays
from server.check.goldens import check_goldens
from server.database.tables import Golden
from server.web.access import api_tokens
from tests.parity.golden.curves import GOLDEN, HONEST, curve, losses

both = pytest.mark.both_databases
URL = "/api/v1/goldens"
RAMP = np.minimum(1.0, np.arange(100) / 60.0)
WORSE = HONEST * (1.0 + 0.01 * RAMP)


def body(loss: np.ndarray, **more: Any) -> dict[str, Any]:
    """A run with these losses, and what is stated of it."""
    of_run = {name: more.pop(name) for name in ("columns", "context", "label") if name in more}
    run = sent_run(curve(loss, **{"label": "new.csv", **of_run}))
    return {"run": run, **more}


def taking(loss: np.ndarray, reason: str = "a release", **more: Any) -> dict[str, Any]:
    return body(loss, reason=reason, **more)


@pytest.fixture
def take(api):
    """A function that takes losses as the next version of a name."""

    def make(loss, name="llama", status=201, **more):
        answer = api.post(f"{URL}/{name}/versions", json=taking(loss, **more))
        assert answer.status_code == status, answer.text
        return answer.json()

    return make


@pytest.fixture
def check(api):
    """A function that checks losses by goldens."""

    def make(loss, *names, status=200, **more):
        asked = {"goldens": [*(names or ("llama",))], **body(loss, **more)}
        answer = api.post(f"{URL}:check", json=asked)
        assert answer.status_code == status, answer.text
        return answer.json()

    return make


@both
def test_a_golden_is_written_checked_and_taken_over_with_its_history(api, take, check):
    first = take(GOLDEN, recipe="bf16", container="26.04", reason="first release")
    assert (first["written"], first["check"], first["refused"]) == (True, None, None)
    assert (first["golden"]["name"], first["golden"]["version"]) == ("llama", 1)
    said = check(HONEST, container="26.06")
    assert said["check"]["answer"] == "numerics only"
    assert said["check"]["exit_code"] == 0
    assert "container 26.04 -> 26.06" in said["check"]["compared"]
    assert [golden["version"] for golden in said["goldens"]] == [1]
    second = take(HONEST, container="26.06", reason="image 26.06", commit="abc1234")
    assert second["golden"]["version"] == 2
    assert second["golden"]["container"] == "26.06"
    newest = api.get(f"{URL}/llama").json()
    assert [(one["version"], one["answer"], one["reason"]) for one in newest["history"]] == [
        (2, "numerics only", "image 26.06"),
        (1, None, "first release"),
    ]
    assert newest["history"][0]["newest"]
    assert not newest["history"][1]["newest"]
    file = parsed_golden(newest["file"], "file")
    assert [entry.reason for entry in file.updates] == ["first release", "image 26.06"]
    assert file.updates[1].commit == "abc1234"
    assert golden_text(file) == newest["file"]
    assert api.get(f"{URL}/llama/versions/1").json()["container"] == "26.04"
    listed = api.get(URL, params={"name": "llama", "limit": 1}).json()
    assert [one["version"] for one in listed["items"]] == [2]
    rest = api.get(URL, params={"cursor": listed["next_cursor"]}).json()
    assert [one["version"] for one in rest["items"]] == [1]


@pytest.mark.parametrize(
    ("loss", "answer", "code"),
    [
        (GOLDEN, "identical", 0),
        (HONEST, "numerics only", 0),
        (WORSE, "worse", 1),
        (losses(seed=8), "data changed", 1),
        (HONEST[:60], "cannot tell", 3),
    ],
)
def test_the_server_answers_as_the_rule_does(take, check, loss, answer, code):
    take(GOLDEN, recipe="bf16")
    said = check(loss)["check"]
    assert (said["answer"], said["exit_code"]) == (answer, code)
    assert "another precision" in said["scope"]


def test_a_run_that_is_not_fine_is_taken_only_by_its_name(api, take):
    take(GOLDEN, recipe="bf16")
    refused = take(WORSE, status=200)
    assert (refused["written"], refused["check"]["answer"]) == (False, "worse")
    assert "--accept 'worse'" in refused["refused"]
    assert refused["golden"]["version"] == 1
    assert take(WORSE, status=200, accept="better")["written"] is False
    taken = take(WORSE, accept="worse", reason="the new loss mask")
    assert (taken["golden"]["version"], taken["golden"]["accepted"]) == (2, True)
    assert take(WORSE, status=200)["written"] is False  # identical: no further version
    assert api.get(f"{URL}/llama").json()["version"] == 2


@pytest.mark.parametrize("more", [{"changed": "resume"}, {"fork": 90}])
def test_a_run_that_is_judged_behind_a_resume_alone_becomes_no_golden(take, more):
    """Its first steps could be anything, and nobody would have seen them."""
    take(GOLDEN, recipe="bf16")
    hidden = np.where(np.arange(100) < 85, HONEST * 1.02, HONEST)
    assert "whole run" in take(hidden, status=422, **more)["detail"]
    assert take(hidden, status=200)["check"]["answer"] == "set-up changed"
    assert take(HONEST, changed="code")["golden"]["version"] == 2


def test_gaps_are_summed_over_versions(take):
    """Ten drifts of a quarter of a percent are no numerics, whoever takes them."""
    take(GOLDEN, recipe="bf16")
    drift = GOLDEN
    answers = []
    for _ in range(3):
        drift = drift * (1.0 + 0.0018 * RAMP)
        answers.append(take(drift, status=200 if answers else 201))
    assert answers[0]["written"]
    assert "sum to" in answers[1]["refused"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"recipe": "nvfp4"}, "recipe has recipe nvfp4"),
        ({"context": {"recorded_recipe": "nvfp4"}}, "has recipe nvfp4"),
        ({"label": "nvfp4.csv"}, "that of another recipe"),
    ],
)
def test_another_recipe_is_refused_however_it_shows(take, check, more, words):
    take(GOLDEN, recipe="bf16")
    assert words in check(HONEST, status=422, **more)["detail"]
    assert words in take(HONEST, status=422, **more)["detail"]
    assert check(HONEST, recipe="bf16")["check"]["answer"] == "numerics only"


def test_a_first_golden_states_its_recipe(take):
    assert "neither a golden nor run" in take(GOLDEN, status=422)["detail"]
    assert "recipe is 'fp5'" in take(GOLDEN, status=422, recipe="fp5")["detail"]


@both
def test_a_removed_version_judges_nothing_and_none_is_taken_in_its_place(api, take, check):
    take(GOLDEN, recipe="bf16")
    take(HONEST, reason="image 26.06")
    removed = api.post(f"{URL}/llama/versions/2:remove", json={"reason": "a wrong image"})
    assert removed.status_code == 200
    assert removed.json()["remove_reason"] == "a wrong image"
    again = api.post(f"{URL}/llama/versions/2:remove", json={"reason": "again"})
    assert again.json()["removed_at"] == removed.json()["removed_at"]
    assert again.json()["remove_reason"] == "a wrong image"
    detail = check(HONEST, status=409)["detail"]
    assert "llama version 2 was removed" in detail
    assert "llama@1" in detail
    assert check(HONEST, "llama@1")["check"]["answer"] == "numerics only"
    third = take(HONEST, reason="the right image")
    assert third["golden"]["version"] == 3
    assert third["check"]["goldens"] == ["llama version 1"]
    assert check(HONEST)["check"]["answer"] == "identical"


def test_a_name_keeps_its_recipe_when_all_of_its_versions_are_gone(api, take):
    take(GOLDEN, recipe="bf16")
    assert api.post(f"{URL}/llama/versions/1:remove", json={"reason": "old"}).status_code == 200
    assert "another name" in take(GOLDEN, status=422, recipe="nvfp4")["detail"]
    assert take(GOLDEN, recipe="bf16")["golden"]["version"] == 2
    assert take(GOLDEN, name="llama-nvfp4", recipe="nvfp4")["golden"]["version"] == 1


def test_the_pages_show_versions_reasons_and_removals_as_text(api, take):
    take(GOLDEN, recipe="bf16", container="26.04")
    take(HONEST, reason="<b>image</b> 26.06")
    for address in ("/baselines", "/goldens/llama"):
        page = api.get(address).text
        assert "&lt;b&gt;image&lt;/b&gt; 26.06" in page
        assert "numerics only" in page
        assert '<a href="/baselines" aria-current="page">' in page
    api.post(f"{URL}/llama/versions/2:remove", json={"reason": "a wrong image"})
    page = api.get("/goldens/llama").text
    assert "by this machine: a wrong image" in page
    assert "No run is checked against this version" in page
    assert "removed" in api.get("/baselines").text
    assert api.get("/goldens/nobody").status_code == 404


def test_several_goldens_are_reruns_of_one(take, check):
    for name in ("a", "b"):
        take(GOLDEN if name == "a" else HONEST, name=name, recipe="bf16")
    take(GOLDEN, name="other", recipe="nvfp4")
    assert check(HONEST, "a", "b")["check"]["goldens"] == ["a version 1", "b version 1"]
    assert "has recipe nvfp4" in check(HONEST, "a", "other", status=422)["detail"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("nobody", "golden 'nobody' does not exist"), ("llama@9", "no version 9, expected 1 to 1")],
)
def test_a_golden_that_is_not_there_is_said_to_be(take, check, name, words):
    take(GOLDEN, recipe="bf16")
    assert words in check(HONEST, name, status=404)["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": [1.0]}, "loss"),
        ({"columns": {"secret": [1.0] * 100}}, "run has secret"),
        ({"context": {"hostname": "x"}}, "run has hostname"),
        ({"recipe": "fp5"}, "recipe is 'fp5'"),
        ({"steps": [-1] * 100}, "step"),
    ],
)
def test_a_run_that_is_none_is_refused_by_its_place(api, take, change, words):
    take(GOLDEN, recipe="bf16")
    asked = {"goldens": ["llama"], **body(HONEST)}
    asked["run"] |= change
    answer = api.post(f"{URL}:check", json=asked)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_what_no_golden_can_have_is_refused(api, take):
    broken = np.where(np.arange(100) == 50, np.nan, GOLDEN)
    assert "the loss of step 51 is nan" in take(broken, status=422, recipe="bf16")["detail"]
    assert "expected 8 to 5,000" in take(GOLDEN[:7], status=422, recipe="bf16")["detail"]
    long = losses(rows=5_001)
    assert "--every" in take(long, status=422, recipe="bf16")["detail"]
    assert take(long, recipe="bf16", every=2)["golden"]["steps"] == 2_501
    name = api.post(f"{URL}/.hidden/versions", json=taking(GOLDEN, recipe="bf16"))
    assert name.status_code == 422


def test_a_nan_reaches_the_server_and_is_worse(take, check):
    take(GOLDEN, recipe="bf16")
    said = check(np.where(np.arange(100) == 50, np.nan, HONEST))["check"]
    assert (said["answer"], said["line"]) == ("worse", "losses")


def test_a_log_that_restarted_is_judged_behind_the_rows_that_it_repeats(api, take):
    take(GOLDEN, recipe="bf16")
    steps = [*range(1, 61), *range(51, 101)]
    log = curve_from_arrays(steps, [*np.round(GOLDEN[:60], 5), *np.round(HONEST[50:], 5)])
    asked = {"goldens": ["llama"], "run": sent_run(log), "changed": "resume"}
    said = api.post(f"{URL}:check", json=asked).json()["check"]
    assert (said["answer"], said["first_step"], said["steps"]) == ("numerics only", 51, 50)


@pytest.fixture
def people(application, api_settings, database):
    """A function that sends a request as one of several people, each with a token."""
    made = {}
    with database.write() as session:
        for name, scopes, repository in (
            ("ann", ["submit"], None),
            ("ben", ["submit"], None),
            ("eve", ["view"], None),
            ("approver", ["approve"], None),
            ("gate", ["submit"], "team/model"),
        ):
            made[name] = api_tokens.create_token(
                session, name, scopes, None, repository=repository
            )[1]
    app = application(api_settings.model_copy(update={"require_tokens": True}))
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def send(who, path, content):
            headers = {"Authorization": f"Bearer {made[who]}"} if who else {}
            return client.post(f"{URL}{path}", json=content, headers=headers)

        yield send


@both
def test_a_name_belongs_to_who_took_its_newest_version(people):
    assert people("ann", "/llama/versions", taking(GOLDEN, recipe="bf16")).status_code == 201
    refused = people("ben", "/llama/versions", taking(HONEST))
    assert refused.status_code == 403
    assert "taken by token 'ann'" in refused.json()["detail"]
    removal = {"reason": "mine now"}
    assert people("ben", "/llama/versions/1:remove", removal).status_code == 403
    assert people("ann", "/llama/versions", taking(HONEST)).status_code == 201
    # ben may neither take the name over once its versions are gone
    for version in (1, 2):
        assert people("ann", f"/llama/versions/{version}:remove", removal).status_code == 200
    assert people("ben", "/llama/versions", taking(WORSE, recipe="bf16")).status_code == 403
    overruled = people("approver", "/llama/versions", taking(WORSE, recipe="bf16"))
    assert overruled.status_code == 201
    assert overruled.json()["golden"]["taken_by"] == "approver"


def test_the_token_of_a_gate_checks_and_changes_nothing(people):
    """A pull request has it: the golden of its own check would be its own."""
    assert people("ann", "/llama/versions", taking(GOLDEN, recipe="bf16")).status_code == 201
    for path, content in (
        ("/llama/versions", taking(WORSE, accept="worse")),
        ("/another/versions", taking(WORSE, recipe="bf16")),
        ("/llama/versions/1:remove", {"reason": "in the way"}),
    ):
        refused = people("gate", path, content)
        assert refused.status_code == 403
        assert "gates of repository team/model" in refused.json()["detail"]
    asked = {"goldens": ["llama"], **body(WORSE)}
    assert people("gate", ":check", asked).json()["check"]["answer"] == "worse"


def test_reading_takes_scope_view_and_writing_more(people):
    asked = {"goldens": ["llama"], **body(HONEST)}
    assert people("ann", "/llama/versions", taking(GOLDEN, recipe="bf16")).status_code == 201
    assert people("eve", ":check", asked).status_code == 200
    assert people("eve", "/llama/versions", taking(HONEST)).status_code == 403
    assert people(None, ":check", asked).status_code == 401


@pytest.mark.parametrize(
    "change",
    [
        {"accepted": True},
        {"answer": "identical"},
        {"reason": "better words"},
        {"owner": "t-somebody"},
        {"text": "changed"},
    ],
)
def test_a_golden_that_was_changed_in_the_database_is_found_and_judges_nothing(
    take, check, database, change
):
    take(GOLDEN, recipe="bf16")
    take(HONEST)
    assert [found.damage for found in check_goldens(database)] == [(), ()]
    with database.write() as session:
        if change == {"text": "changed"}:
            row = session.scalars(select(Golden).where(Golden.version == 2)).one()
            change = {"text": row.text.replace("8.", "7.")}
        session.execute(update(Golden).where(Golden.version == 2).values(**change))
    assert "RECORD_DAMAGED" in check(HONEST, status=500)["detail"]
    assert check(HONEST, "llama@1")["check"]["answer"] == "numerics only"
    damage = [one.what for found in check_goldens(database) for one in found.damage]
    assert damage == ["golden llama version 2 is not as it was taken"]
