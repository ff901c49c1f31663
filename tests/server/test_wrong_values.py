"""What a person reads about a refused value: never pydantic's own words, a regular expression, or a
JSON pointer.
"""

import re

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core._pydantic_core import list_all_errors

from server.settings import Settings
from server.wrong_values import _PATTERN_WORDS, reason, sentence
from tests.conftest import THOROUGH, some_of

POINTER = r"(^|[ ;:])/(?!api/)[a-z_]+(/|[ ;:]|$)"
FOREIGN = re.compile(
    r"Input|should |pattern|pydantic|valid "
    rf"(string|number|integer|dictionary)|{POINTER}|\[A-Z|\^|\{{\d"
)
VALUES = (5, 1e300, "x y\n!", "", [], ["x", 3], {}, {"a": {}}, True, None)


@pytest.mark.parametrize(
    "error",
    [each for each in list_all_errors() if each["type"] != "value_error"],
    ids=lambda error: error["type"],
)
def test_no_message_of_pydantic_passes(error):
    finding = {
        "type": error["type"],
        "loc": ("body", "days"),
        "msg": error["example_message_python"],
        "input": 140.0,
    }
    finding |= {"ctx": context} if (context := error.get("example_context")) else {}
    if error["type"] == "json_invalid":  # our own, from `web.requests.bodies`
        finding["msg"] = "not valid JSON"
    for words in (sentence(finding, ["days"]), reason(finding)):
        assert words
        assert not FOREIGN.search(words), words


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, 2.5, "days is 2.5; expected a whole number"),
        (list[str], 5, "days is 5; expected a list"),
        (dict[str, int], [], "days is []; expected a mapping"),
    ],
)
def test_the_value_and_what_was_expected_are_named(kind, value, words):
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert sentence(refused.value.errors()[0], ["days"]).startswith(words)


def _patterns(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        yield from schema.get("patternProperties", ())
        for part in schema.values():
            yield from _patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _patterns(part)


def test_every_pattern_has_words(application, api_settings):
    patterns = {
        *_patterns(application(api_settings).openapi()),
        *_patterns(Settings.model_json_schema()),
    }
    assert patterns <= set(_PATTERN_WORDS), patterns - set(_PATTERN_WORDS)
    assert set(_PATTERN_WORDS) <= patterns, set(_PATTERN_WORDS) - patterns


def test_no_answer_of_the_api_speaks_of_input_or_patterns(api):
    openapi = api.get("/api/v1/openapi.json").json()
    refused = 0
    for template, operations in openapi["paths"].items():
        path = re.sub(
            r"\{(job_id)\}",
            "j0000000000001-0000000001",
            re.sub(r"\{(run_id)\}", "r0000000000001-0000000001", template),
        )
        path = re.sub(r"\{\w+\}", "1", path)
        for method, operation in operations.items():
            if template.endswith("events"):
                continue  # a stream without an end
            queries = [
                each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"
            ]
            sent = [{"params": {name: value}} for name in queries for value in ("x y\n!", "-1")]
            if (
                schema := operation.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema")
            ):
                name = schema.get("$ref", "").rpartition("/")[2]
                fields = openapi["components"]["schemas"].get(name, {}).get("properties", {})
                sent += [
                    {"json": {field: value}}
                    for at, field in enumerate(fields)
                    for value in some_of(VALUES, 3, at)
                ]
                sent += [{"json": value} for value in VALUES]
            for each in sent:
                answer = api.request(method.upper(), path, **each)
                if answer.status_code == 422:
                    problem = answer.json()
                    refused += 1
                    for words in (
                        problem["detail"],
                        *(error["detail"] for error in problem.get("errors", ())),
                    ):
                        assert not FOREIGN.search(words), (method, path, each, words)
    assert refused > (300 if THOROUGH else 100)
