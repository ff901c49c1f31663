"""What no text can hold is refused with its field, wherever a request has a text, and nothing is
written.
"""

import copy
import json
import unicodedata

import pytest
from sqlalchemy import func, select

from parity.client.rest import Client, ClientError
from server.database.tables import Base
from server.web.access.rules import operations
from server.web.requests.texts import clean_body
from training.spec import ArmSpec

HALF = "\ud83d"
ODD = ("a\0b", f"a{HALF}b")
pytestmark = pytest.mark.both_databases


@pytest.fixture
def send(api):
    """A function that sends a document as JSON, which can spell what UTF-8 cannot."""

    def sent(method, path, document):
        return api.request(
            method, path, content=json.dumps(document), headers={"Content-Type": "application/json"}
        )

    return sent


@pytest.fixture
def written(database):
    """A function that counts the rows of all tables."""

    def count():
        with database.read() as session:
            return {
                table.name: session.scalar(select(func.count()).select_from(table))
                for table in Base.metadata.sorted_tables
            }

    return count


def _texts(document, place=()):
    """The place of each text of a document, keys of free mappings too."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(value, str):
            yield (*place, key)
        elif isinstance(value, dict | list):
            yield from _texts(value, (*place, key))


def _with(document, place, value):
    changed = copy.deepcopy(document)
    inner = changed
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return changed


@pytest.mark.parametrize("odd", ODD)
def test_every_operation_with_a_body_names_the_field(api, send, written, odd):
    before = written()
    bodies = {
        name: each for name, each in operations(api.app.openapi()).items() if "requestBody" in each
    }
    assert len(bodies) > 20
    for operation in bodies:
        method, template = operation.split(" ")
        path = template.format_map(_Path())
        answer = send(method, path, {"field": [1, {"of": odd}]})
        assert answer.status_code == 422, (operation, answer.text)
        # these read columns of numbers, whose names have a pattern
        if not path.endswith(("/steps", "/layers")):
            assert [each["pointer"] for each in answer.json()["errors"]] == ["/field/1/of"], (
                operation
            )
        assert send(method, path, {"field": {odd: 1}}).status_code == 422, operation
    assert written() == before


class _Path(dict):
    def __missing__(self, name):
        return "1"


@pytest.fixture
def bodies(api, make_job, judged, request_body):
    """Requests that are accepted as they are, one at a time: method, path and body by what they are
    about.
    """
    job_id, _ = judged({"mxfp8": 0.013})
    spec = make_job(
        40,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    ).document()
    mine = api.post("/api/v1/jobs", json={"job": spec, "policy": {"margin": "1%"}}).json()
    run = mine["arms"][0]["runs"][0]["id"]
    attempt_number = api.post(f"/api/v1/runs/{run}:attach", json={"manifest": {}}).json()["attempt"]
    whole = copy.deepcopy(request_body)
    whole["job"]["data"] = {"source": "text", "path": "/data/corpus"}
    whole["policy"] |= {"question": "the release", "may_differ": ["version.torch"]}
    whole |= {"tags": ["nightly"], "branch": "main"}
    of_job = f"/api/v1/jobs/{job_id}"
    curve = {
        "steps": [*range(40)],
        "loss": [2.0] * 40,
        "label": "a",
        "context": {"code": "abc"},
        "notes": ["a note"],
    }
    return {
        "job": ("POST", "/api/v1/jobs", whole),
        "gate": ("POST", "/api/v1/jobs:gate", {**whole, "revision": "abc", "group": "me/model#7"}),
        "note": ("POST", f"{of_job}/notes", {"text": "a note"}),
        "tags": ("PUT", f"{of_job}/tags", {"tags": ["nightly"]}),
        "sign-off": (
            "POST",
            f"{of_job}/sign-offs",
            {"candidate": "mxfp8", "reason": "release 2.1 goes out", "days": 3},
        ),
        "baseline": (
            "POST",
            "/api/v1/baselines",
            {"name": "fp8", "job": job_id, "reason": "the release", "arm": "fp8_current"},
        ),
        "token": ("POST", "/api/v1/tokens", {"name": "ci", "scopes": ["submit"]}),
        "message": (
            "POST",
            f"/api/v1/runs/{run}:finish",
            {"attempt": attempt_number, "outcome": "broke_off", "message": "no disk"},
        ),
        "manifest": (
            "POST",
            f"/api/v1/runs/{run}:attach",
            {"manifest": {"data": "/data/corpus"}, "recipe": "fp8_current"},
        ),
        "curves": (
            "POST",
            "/api/v1/evaluations",
            {
                "baseline": [curve],
                "candidates": {"nvfp4": [copy.deepcopy(curve)]},
                "policy": {"margin": "1%"},
            },
        ),
    }


def test_each_text_of_a_request_that_is_else_accepted_is_refused_by_name(bodies, send, written):
    for about, (method, path, body) in bodies.items():
        places = [*_texts(body)]
        before = written()
        for place in places:
            for odd in ODD:
                answer = send(method, path, _with(body, place, odd))
                assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
                    422,
                    "/" + "/".join(map(str, place)),
                ), about
        assert places, about
        assert written() == before, about
    for about, (method, path, body) in bodies.items():
        assert send(method, path, body).status_code < 300, about


def test_an_honest_request_may_have_any_other_text(send, request_body, bodies):
    body = {**request_body, "policy": {"margin": "1%", "question": "naïve 🙂 \u200d « ß »"}}
    answer = send("POST", "/api/v1/jobs", body)
    assert (answer.status_code, answer.json()["policy"]["question"]) == (
        202,
        "naïve 🙂 \u200d « ß »",
    )
    method, path, _ = bodies["manifest"]
    assert (
        send(method, path, {"manifest": {"data": "日本語 \x1b[0m"}}).json()["manifest"]["data"]
        == "日本語 \x1b[0m"
    )


def test_two_spellings_of_a_letter_are_one_but_in_the_name_of_a_file(send, request_body):
    decomposed = unicodedata.normalize("NFD", "é")
    body = {**request_body, "policy": {"margin": "1%", "question": decomposed}}
    body["job"]["data"] = {"source": "text", "path": f"/data/{decomposed}"}
    job = send("POST", "/api/v1/jobs", body).json()
    assert (job["policy"]["question"], job["spec"]["data"]["path"]) == ("é", f"/data/{decomposed}")


def test_a_mapping_has_no_key_in_two_spellings(bodies, send):
    method, path, _ = bodies["manifest"]
    answer = send(method, path, {"manifest": {"é": "1", unicodedata.normalize("NFD", "é"): "2"}})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/manifest/é")


def test_a_path_and_a_query_have_none_either(api):
    for path, pointer in (
        ("/api/v1/jobs/a%00b", "/path"),
        ("/api/v1/baselines?name=a%00b", "/query/name"),
        ("/jobs?a%00=b", "/query/a\0"),
    ):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert api.get("/api/v1/jobs?name=a%26b%20c&tag=x&tag=y").status_code == 200


def test_a_query_finds_a_name_in_either_spelling(api, send, request_body):
    assert send("POST", "/api/v1/jobs", {**request_body, "branch": "café"}).status_code == 202
    for spelled in ("NFC", "NFD"):
        found = api.get(
            "/api/v1/jobs", params={"branch": unicodedata.normalize(spelled, "café")}
        ).json()["items"]
        assert len(found) == 1


def test_the_client_shows_which_text_was_refused(served, database, judged):
    job_id, _ = judged({"nvfp4": 0.0})
    with (
        Client(served) as client,
        pytest.raises(ClientError, match="text has half of a surrogate pair") as refused,
    ):
        client.add_note(job_id, "a name of a file \udcff")
    assert refused.value.status == 422


@pytest.mark.parametrize("field", ["name", "days"])
def test_a_form_has_none_either(api, written, field):
    before = written()
    form = {"name": "ci", "scopes": "view", "days": "3"} | {field: "1\0"}
    assert api.post("/tokens", data=form).status_code == 422
    assert written() == before


def test_a_document_may_nest_deeper_than_calls():
    deep: list = ["a"]
    for _ in range(100_000):
        deep = [deep]
    assert clean_body(deep) is deep
