"""What a body and an answer may cost: each limit at its value, and one beyond it."""

import json
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from server.errors import InvalidError
from server.web.limits import BODY_BYTES, check_values
from server.web.requests.bodies import refused
from server.web.requests.body_sizes import check_body

TYPE = {"Content-Type": "application/json"}


def is_refused(call: Callable[..., object], *given: object) -> bool:
    try:
        call(*given)
    except InvalidError:
        return True
    return False


@pytest.mark.parametrize(
    ("columns", "values", "too_many"),
    [(1, 2_000_000, False), (1, 2_000_001, True), (20, 100_000, False), (21, 100_000, True)],
)
def test_an_answer_has_two_million_values(columns: int, values: int, too_many: bool) -> None:
    assert is_refused(check_values, columns, values) == too_many


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ({"a": 2**53}, {"a": 2**53 + 1}),
        ({"a": -(2**53)}, {"a": -(2**53) - 1}),
        ({"a": [1, -(2**53), 2**53]}, {"a": [1, 2**53 + 1]}),
        ({"a": [{}] * 1000}, {"a": [{}] * 1001}),
        ({"a": [[]] * 1000}, {"a": [[]] * 1001}),
        ({"a": [None, *[[]] * 999]}, {"a": [None, *[[]] * 1000]}),
        (dict.fromkeys(map(str, range(1000))), dict.fromkeys(map(str, range(1001)))),
    ],
)
def test_a_part_of_a_body_without_a_limit_of_its_own_has_a_general_one(body, more) -> None:
    assert (is_refused(check_body, body, {}), is_refused(check_body, more, {})) == (False, True)


@pytest.mark.parametrize("more", [0, 1])
def test_a_body_without_curves_has_a_mebibyte(api, request_body, more) -> None:
    """Blanks after the document are bytes of the body too."""
    assert BODY_BYTES == 2**20
    content = json.dumps(request_body).ljust(2**20 + more).encode()
    answer = api.post("/api/v1/jobs:plan", content=content, headers=TYPE)
    assert answer.status_code == (413 if more else 200)


@pytest.mark.parametrize("more", [0, 1])
def test_a_body_with_curves_has_as_many_bytes_as_are_set(
    settings, database, application, more
) -> None:
    small = settings.model_copy(update={"max_body_bytes": 4096})
    content = b"{}".ljust(4096 + more)
    with TestClient(application(small), base_url="http://127.0.0.1") as client:
        for path in ("evaluations", "jobs:plan"):  # no other body may be larger
            answer = client.post(f"/api/v1/{path}", content=content, headers=TYPE)
            assert answer.status_code == (413 if more else 422), path


@pytest.mark.parametrize(("number", "others"), [(100, None), (101, 1)])
def test_a_problem_lists_100_findings(api, request_body, number, others) -> None:
    """Each unknown key of 50 candidates is one."""
    arms = [{"recipe": "nvfp4", "x": 1, "y": 1} for _ in range(50)]
    arms[0] |= {f"z{at}": 1 for at in range(number - 100)}
    request_body["job"]["candidates"] = arms
    problem = api.post("/api/v1/jobs:plan", json=request_body).json()
    assert (len(problem["errors"]), problem.get("more_errors")) == (100, others)


@pytest.mark.parametrize(("number", "shown"), [(10_000, 10_000), (10_001, 1)])
def test_10_000_findings_are_looked_at_and_more_are_counted(number, shown) -> None:
    with pytest.raises(ValidationError) as wrong:
        TypeAdapter(list[int]).validate_python(["x"] * number)
    assert len(refused(wrong.value).errors()) == shown
