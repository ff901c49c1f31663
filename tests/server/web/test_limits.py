"""What one request may cost: bodies, lists, numbers and answers have limits, which the description
of the API states.
"""

import inspect
import json
import threading

import numpy as np
import pytest
from fastapi.routing import APIRoute

from server.errors import InvalidError
from server.logs import cut
from server.web import limits, problems, retry_times
from server.web.access.rules import operations
from server.web.limits import LARGEST, MOST_FINDINGS, MOST_ITEMS, MOST_KEYS
from server.web.requests.bodies import BodyRoute
from server.web.requests.body_sizes import check_body


def _parts(openapi):
    """Every schema of a request with where it is: parameters, and bodies with all that they refer
    to.
    """
    rest = []
    for name, operation in operations(openapi).items():
        rest += [
            (f"{name} {each['name']}", each["schema"]) for each in operation.get("parameters", ())
        ]
        rest += [
            (name, content["schema"])
            for content in operation.get("requestBody", {}).get("content", {}).values()
        ]
    seen = set()
    while rest:
        place, schema = rest.pop()
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema, place = openapi["components"]["schemas"][name], name
        if (place, id(schema)) in seen:
            continue
        seen.add((place, id(schema)))
        yield place, schema
        for kind in ("anyOf", "oneOf", "allOf", "prefixItems"):
            rest += [(place, each) for each in schema.get(kind, ())]
        rest += [(f"{place}.{name}", each) for name, each in schema.get("properties", {}).items()]
        rest += [(f"{place}[]", schema["items"])] if "items" in schema else []
        if isinstance(schema.get("additionalProperties"), dict):
            rest.append((f"{place}.*", schema["additionalProperties"]))


def test_every_whole_number_of_a_request_has_a_largest_and_every_list_a_longest_value(api):
    parts = list(_parts(api.get("/api/v1/openapi.json").json()))
    whole = {
        place: schema
        for place, schema in parts
        if schema.get("type") == "integer" and "enum" not in schema
    }
    lists = {place: schema for place, schema in parts if schema.get("type") == "array"}
    assert len(whole) > 50
    assert len(lists) > 20
    assert [
        place for place, schema in whole.items() if schema.get("maximum", np.inf) > LARGEST
    ] == []
    assert [place for place, schema in lists.items() if "maxItems" not in schema] == []
    assert lists["JobSpec.candidates"]["maxItems"] == 64


@pytest.mark.both_databases
@pytest.mark.parametrize("number", [2**53 + 1, 2**63, -(2**63) - 1, 10**400])
@pytest.mark.parametrize(
    "pointer",
    ["/job/seed", "/job/schedule/steps", "/baseline/version", "/priority", "/policy/looks"],
)
def test_a_whole_number_that_no_database_can_hold_is_refused(api, request_body, number, pointer):
    body = request_body | {"baseline": {"name": "a", "version": 1}}
    at, (*path, last) = body, pointer[1:].split("/")
    for name in path:
        at = at.setdefault(name, {})
    at[last] = number
    answer = api.post("/api/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/baselines/a/versions/{}",
        "/api/v1/runs/r1/artifacts/{}/x",
        "/api/v1/runs/r1/steps?from={}",
    ],
)
def test_so_is_one_in_an_address(api, path):
    assert api.get(path.format(2**63)).status_code == 422
    assert api.get(path.format(1)).status_code == 404


def test_a_version_that_is_none_yet_is_an_honest_question(api, request_body):
    answer = api.post("/api/v1/jobs", json=request_body | {"baseline": {"name": "a", "version": 3}})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"a": [{}] * (MOST_ITEMS + 1)}, "/a"),
        ({"a": {"b": dict.fromkeys(map(str, range(MOST_KEYS + 1)))}}, "/a/b"),
        ({"a/b": {"~": 2**53 + 1}}, "/a~1b/~0"),
        ({"a": [[1], [1, 2, -(2**53) - 1]]}, "/a/1"),
        ({"a": [None, 2**60]}, "/a/1"),
        ({"x" * 1000: 2**60}, cut("/" + "x" * 1000)),
    ],
)
def test_a_part_of_a_body_that_is_too_large_is_named(body, pointer):
    with pytest.raises(InvalidError) as caught:
        check_body(body, {})
    assert [problem.pointer for problem in caught.value.errors] == [pointer]


def test_honest_bodies_are_not_limited():
    check_body(
        {
            "steps": list(range(200_000)),
            "loss": [2.5, "nan", 1e300] * 50_000,
            "runs": [{"seed": 2**53}] * MOST_ITEMS,
            "off": True,
        },
        {},
    )


@pytest.mark.parametrize("wrong", [{"recipe": "q"}, 3, {"recipe": "nvfp4", "x": 1}])
def test_a_refused_list_costs_no_more_than_its_length(api, request_body, wrong):
    """A list is counted before its items are looked at, and 40,000 wrong items are not 40,000
    findings.
    """
    request_body["job"]["candidates"] = [wrong] * 40_000
    answer = api.post("/api/v1/jobs:plan", json=request_body)
    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/job/candidates"]
    assert len(answer.content) < 2000


def test_a_problem_lists_some_findings_and_counts_the_rest(api, request_body):
    request_body["job"]["candidates"] = [{"recipe": "nvfp4", "a": 1, "b": 2, "c": 3}] * 64
    problem = api.post("/api/v1/jobs:plan", json=request_body).json()
    assert (len(problem["errors"]), problem["more_errors"]) == (
        MOST_FINDINGS,
        3 * 64 - MOST_FINDINGS,
    )
    request_body["job"]["candidates"] = request_body["job"]["candidates"][:20]
    problem = api.post("/api/v1/jobs:plan", json=request_body).json()
    assert (len(problem["errors"]), "more_errors" in problem) == (60, False)


def test_a_wrong_column_is_one_finding(api):
    run = {"steps": list(range(5000)), "loss": ["low"] * 5000}
    problem = api.post(
        "/api/v1/evaluations",
        json={"baseline": [run], "candidates": {"x": [run]}, "policy": {"margin": "1%"}},
    ).json()
    assert problem["status"] == 422
    assert len(problem["errors"]) + problem.get("more_errors", 0) < 20


def test_a_body_without_curves_may_not_be_as_large_as_one_with_them(api, request_body):
    large = json.dumps(request_body | {"x": "y" * limits.BODY_BYTES})
    answer = api.post(
        "/api/v1/jobs:plan", content=large, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, f"{limits.BODY_BYTES:,} bytes" in answer.json()["detail"]) == (
        413,
        True,
    )
    run = {"steps": list(range(80_000)), "loss": [2.0 + 1e-9 * step for step in range(80_000)]}
    evaluation = {"baseline": [run], "candidates": {"nvfp4": [run]}, "policy": {"margin": "1%"}}
    assert len(json.dumps(evaluation)) > 2 * limits.BODY_BYTES
    assert api.post("/api/v1/evaluations", json=evaluation).status_code == 200


def test_a_word_of_any_length_is_refused_with_a_short_answer(api, request_body):
    request_body["job"]["engine"] = "emulatet" * 50_000
    answer = api.post("/api/v1/jobs", json=request_body)
    assert (answer.status_code, len(answer.content) < 2000) == (422, True)
    request_body["job"]["engine"] = "emulatet"
    assert "did you mean emulated?" in api.post("/api/v1/jobs", json=request_body).json()["detail"]


@pytest.mark.parametrize("kind", ["int_type", "literal_error", "string_type"])
def test_a_value_of_any_size_is_shown_by_its_beginning(kind):
    """Written out, this one has three thousand million characters."""
    huge = [[1] * 1_000_000] * 1000
    finding = {
        "type": kind,
        "loc": ("body", "steps"),
        "input": huge,
        "msg": "wrong",
        "ctx": {"expected": "'a' or 'b'"},
    }
    assert len(problems._field_problem(finding).detail) < 200


def test_a_long_address_is_cut_in_the_answer_and_in_the_log(api, caplog):
    with caplog.at_level("INFO", logger="server.web.middleware"):
        answer = api.get("/api/v1/jobs/" + "x" * 20_000)
    assert answer.status_code == 404
    assert len(answer.json()["instance"]) == 301
    (line,) = [record for record in caplog.records if record.name == "server.web.middleware"]
    assert (len(line.path), len(line.job)) == (301, 301)


def _endpoints(router):
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif inner := getattr(route, "original_router", None):
            yield from _endpoints(inner)


def test_bodies_are_parsed_where_endpoints_run_and_never_in_the_event_loop(
    api, request_body, monkeypatch
):
    """The event loop answers everybody: one thread that parses 16 MiB may not be that of the
    loop.
    """
    with_body = [
        route for route in _endpoints(api.app.router) if route.body_field and "/api/" in route.path
    ]
    assert len(with_body) > 15
    assert [
        route.path
        for route in with_body
        if not isinstance(route, BodyRoute) or inspect.iscoroutinefunction(route.endpoint)
    ] == []
    threads = []
    monkeypatch.setattr(
        "server.web.requests.bodies.check_body",
        lambda *_: threads.append(threading.current_thread().name),
    )
    api.post("/api/v1/jobs:plan", json=request_body)
    assert len(threads) == 1
    assert "AnyIO worker thread" in threads[0]


@pytest.mark.parametrize("content", ["{", "\ufeff{}", '{"a": ' + "9" * 5000 + "}", "[" * 200_000])
def test_what_is_no_json_is_refused(api, content):
    answer = api.post(
        "/api/v1/jobs", content=content.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)


def test_refused_clients_try_again_one_after_another():
    """A server refuses 300 at once, and no second has more than its share of those that try
    again.
    """
    times = retry_times.RetryTimes()
    seconds = [times.seconds(now=1000.0) for _ in range(300)]
    counts = np.bincount(seconds)
    assert seconds == sorted(seconds)
    assert counts[:2].sum() == 0
    assert counts.max() <= retry_times.RETRIES_A_SECOND + 1
    assert times.seconds(now=1100.0) == 2


def test_nobody_waits_longer_than_the_longest_and_those_who_do_are_spread():
    times = retry_times.RetryTimes()
    seconds = [times.seconds(now=1000.0 + at / 500) for at in range(3000)]
    late = np.bincount(seconds[1500:])
    assert max(seconds) <= retry_times.LONGEST_RETRY_SECONDS
    assert min(seconds[1500:]) >= retry_times.LONGEST_RETRY_SECONDS // 2
    assert late.max() < 1500 / 5
