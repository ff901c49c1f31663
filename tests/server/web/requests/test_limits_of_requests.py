"""Each limit of a request's fields and parameters, at its value: allowed there, refused beyond it.

The numbers are written here once more, so that one which changes by a slip is noticed. A field or a
parameter with a limit of its own that the tables lack fails the last two tests.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from server.api.step_bodies import StepsRequest
from server.app import create_app
from server.errors import InvalidError
from server.settings import Settings
from server.web.requests.body_sizes import check_body

EXACT = 2**53
KEYS = {"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
KEYS |= {"minItems", "maxItems", "minProperties", "maxProperties"}


@dataclass(frozen=True)
class Limit:
    """Values at a limit, which are allowed, and the nearest ones beyond it."""

    allowed: tuple[Any, ...]
    refused: tuple[Any, ...]


def numbers(least: float, most: float) -> Limit:
    """Numbers from `least` to `most`."""
    return Limit((least, most), (least - 1, most + 1))


def above(least: float, most: float) -> Limit:
    """Numbers above `least`, up to `most`."""
    return Limit((least + 1e-9, most), (least, most + 1))


def texts(least: int, most: int) -> Limit:
    """Texts of `least` to `most` characters."""
    shorter = ("x" * (least - 1),) if least else ()
    return Limit(("x" * least, "x" * most), (*shorter, "x" * (most + 1)))


def lists(least: int, most: int, item: object = "x") -> Limit:
    """Lists of `least` to `most` items."""
    shorter = ([item] * (least - 1),) if least else ()
    return Limit(([item] * least, [item] * most), (*shorter, [item] * (most + 1)))


def mappings(least: int, most: int, value: object = "x") -> Limit:
    """Objects of `least` to `most` keys."""

    def keyed(values: list[object]) -> dict[str, object]:
        return {f"k{at}": each for at, each in enumerate(values)}

    sizes = lists(least, most, value)
    return Limit(tuple(map(keyed, sizes.allowed)), tuple(map(keyed, sizes.refused)))


_ARM = {"recipe": "nvfp4"}
_RUN = {"steps": [1], "loss": [2.0]}
_POSITIVE = Limit((1e-9,), (0.0, -1.0, float("inf"), float("nan")))
_WISH = {"name": "a", "override": {}}
_OTHER = Limit(("x" * 64, "x" * 64 + "@" + "9" * 9), ("x" * 65, "x@" + "9" * 10, ""))
_GOLDEN_RUN_LIMITS = {
    "changed": texts(0, 20),
    "container": texts(1, 200),
    "data": texts(1, 200),
    "fork": numbers(0, EXACT),
    "hardware": texts(1, 200),
    "random": lists(0, 20),
    "random[]": texts(1, 200),
    "recipe": texts(0, 100),
}
BODIES = {
    "AttachRequest.after": numbers(0, EXACT),
    "AttachRequest.manifest": mappings(0, 100),
    "AttachRequest.manifest keys": texts(1, 64),
    "AttachRequest.manifest.*": texts(0, 1000),
    "AttachRequest.recipe": texts(0, 1000),
    "ArmSpec.overrides": lists(0, 256, {"recipe": "bf16"}),
    "BaselineChoice.name": texts(1, 64),
    "BaselineChoice.version": numbers(1, 2**31),
    "ControlsRequest.reason": texts(1, 1000),
    "EvaluationRequest.baseline": lists(0, 1000, _RUN),
    "EvaluationRequest.candidates": mappings(0, 1000, [_RUN]),
    "EvaluationRequest.candidates.*": lists(0, 1000, _RUN),
    "EvaluationRequest.controls": lists(0, 1000, _RUN),
    "EvaluationRequest.planned_steps": numbers(1, EXACT),
    "EvaluationsRequest.at": lists(0, 2000, 1),
    "EvaluationsRequest.at[]": numbers(0, EXACT),
    "EvaluationsRequest.baseline": lists(0, 1000, _RUN),
    "EvaluationsRequest.baseline_name": texts(1, 64),
    "EvaluationsRequest.branch": texts(0, 200),
    "EvaluationsRequest.candidates": mappings(0, 64, [_RUN]),
    "EvaluationsRequest.candidates.*": lists(0, 1000, _RUN),
    "EvaluationsRequest.cluster": texts(1, 200),
    "EvaluationsRequest.name": texts(1, 200),
    "EvaluationsRequest.planned_steps": numbers(1, EXACT),
    "EvaluationsRequest.tags": lists(0, 20),
    "EvaluationsRequest.target": _POSITIVE,
    "EvaluationsRequest.tokens_per_step": _POSITIVE,
    "ExpireRequest.reason": texts(1, 1000),
    "FinishRequest.attempt": numbers(1, EXACT),
    "FinishRequest.message": texts(0, 4000),
    "GateRequest.branch": texts(0, 200),
    "GateRequest.group": texts(0, 200),
    "GateRequest.max_age_days": numbers(0, 3650),
    "GateRequest.max_run_seconds": Limit((1e-9,), (0, -1.0, float("inf"), float("nan"))),
    "GateRequest.priority": numbers(-100, 100),
    "GateRequest.revision": texts(0, 200),
    "GateRequest.tags": lists(0, 20),
    **{
        f"{request}.{place}": limit
        for request in ("GoldenCheckRequest", "GoldenTakeRequest")
        for place, limit in _GOLDEN_RUN_LIMITS.items()
    },
    "GoldenCheckRequest.goldens": lists(1, 10),
    "GoldenCheckRequest.goldens[]": _OTHER,
    "GoldenRemoveRequest.reason": texts(1, 1000),
    "GoldenRun.columns": mappings(0, 3, [1.0]),
    "GoldenRun.context": mappings(0, 13),
    "GoldenRun.label": texts(0, 1000),
    "GoldenRun.recipe": texts(0, 100),
    "GoldenTakeRequest.accept": texts(0, 20),
    "GoldenTakeRequest.commit": texts(0, 100),
    "GoldenTakeRequest.every": numbers(1, EXACT),
    "GoldenTakeRequest.reason": texts(1, 500),
    "HealRequest.budget": above(0, 1e9),
    "HealRequest.candidate": texts(1, 200),
    "ImportRequest.family": texts(1, 200),
    "ImportRequest.table": texts(0, 8 * 2**20),
    "JobRequest.branch": texts(0, 200),
    "JobRequest.max_run_seconds": Limit((1e-9,), (0, -1.0, float("inf"), float("nan"))),
    "JobRequest.priority": numbers(-100, 100),
    "JobRequest.tags": lists(0, 20),
    "JobSpec.candidates": lists(0, 64, _ARM),
    "JobSpec.keep_checkpoints": lists(0, 8, 1),
    "NewQuestionRequest.reason": texts(10, 1000),
    "NoteRequest.text": texts(1, 4000),
    "Override.blocks": lists(0, 1000, 1),
    "Override.gemms": lists(0, 64, "fprop"),
    "Override.projections": lists(0, 64, "query"),
    "PromoteRequest.days": above(0, 3650),
    "PromoteRequest.name": texts(1, 64),
    "PromoteRequest.reason": texts(1, 1000),
    "RevokeRequest.reason": texts(10, 1000),
    "RotateRequest.days": above(0, 3650),
    "RotateRequest.overlap_hours": numbers(0, 90 * 24),
    "RunBody.columns": mappings(0, 1000, [1.0]),
    "RunBody.context": mappings(0, 1000),
    "RunBody.notes": lists(0, 1000),
    "RunBody.replicate": numbers(-EXACT, EXACT),
    "RunBody.seed": numbers(-EXACT, EXACT),
    "RunTimesBody.arm": texts(1, 64),
    "RunTimesBody.hardware": texts(0, 200),
    "RunTimesBody.run": texts(0, 1000),
    "RunTimesBody.seconds_to_target": _POSITIVE,
    "RunTimesBody.step_seconds": _POSITIVE,
    "RunRequest.arm": texts(1, 64),
    "RunRequest.baseline": texts(1, 64),
    "RunRequest.planned_steps": numbers(1, EXACT),
    "RunRequest.project": texts(1, 200),
    "RunRequest.recipe": texts(0, 100),
    "RunRequest.seed": numbers(0, EXACT),
    "SignOffRequest.candidate": texts(1, 200),
    "SignOffRequest.days": above(0, 90),
    "SignOffRequest.reason": texts(10, 1000),
    "StatementRequest.family": texts(1, 200),
    "StatementRequest.planned_steps": numbers(1, EXACT),
    "StatementRequest.recipe": mappings(0, 65),
    "StatementRequest.rounding": mappings(0, 65, "nearest"),
    "StatementRequest.seeds": mappings(0, 65, [1]),
    "StatementRequest.seeds.*": lists(1, 64, 1),
    "StatementRequest.seeds.*[]": numbers(0, EXACT),
    "StatementRequest.tokens_per_step": numbers(1, EXACT),
    "StepsRequest.columns": mappings(1, 64, [1.0]),
    "StepsRequest.columns keys": texts(1, 64),
    "StepsRequest.columns.*": lists(0, 100_000, 1.0),
    "StepsRequest.steps": lists(1, 100_000, 1),
    "StepsRequest.steps[]": numbers(0, EXACT),
    "TagsRequest.tags": lists(0, 20),
    "TokenRequest.days": above(0, 3650),
    "TokenRequest.max_running": numbers(1, 10_000),
    "TokenRequest.name": texts(1, 100),
    "TokenRequest.principal": texts(0, 100),
    "TokenRequest.repository": texts(1, 200),
    "TokenRequest.scopes": lists(1, 5, "submit"),
    "WhyRequest.budget": above(0, 1e9),
    "WhyRequest.candidate": texts(1, 200),
    "WhyRequest.fork_steps": numbers(1, 10**9),
    "WhyRequest.step": numbers(1, 10**9),
}
# Ten million numbers each; `test_a_column_has_ten_million_numbers_…` looks at one.
COLUMNS = {
    f"{run}.{place}" for run in ("GoldenRun", "RunBody") for place in ("columns.*", "loss", "steps")
}

_FILTERS = {
    **dict.fromkeys(("baseline", "branch", "find", "model", "name", "parent_job"), texts(0, 200)),
    **dict.fromkeys(("recipe", "revision"), texts(0, 200)),
    **dict.fromkeys(("since", "until"), texts(0, 10)),
    "config_hash": Limit(("a" * 64,), ("a" * 63, "a" * 65)),
    "tag": lists(0, 20),
}
_RANGE = {"from": numbers(0, EXACT), "to": numbers(0, EXACT)}
_TREND = {
    **_FILTERS,
    "gate": texts(0, 200),
    "candidate": texts(0, 200),
    "limit": numbers(1, 200),
}
_NAME = {"name": texts(0, 64)}
_VERSION = {**_NAME, "version": numbers(1, 2**31)}
_GOLDEN = {"golden": texts(0, 64)}
_GOLDEN_VERSION = {**_GOLDEN, "version": numbers(1, 2**31)}
_KEY = {"idempotency-key": texts(0, 200)}
PARAMETERS = {
    "GET /api/v1/badges/{named:path}.json": {"named": texts(0, 200)},
    "GET /api/v1/baselines": {**_NAME, "limit": numbers(1, 500)},
    "GET /api/v1/baselines/{name}": _NAME,
    "GET /api/v1/baselines/{name}/versions/{version:int}": _VERSION,
    "GET /api/v1/baselines/{name}/versions/{version}/diff": {**_VERSION, "other": _OTHER},
    "GET /api/v1/goldens": {**_NAME, "limit": numbers(1, 500)},
    "GET /api/v1/goldens/{golden}": _GOLDEN,
    "GET /api/v1/goldens/{golden}/versions/{version:int}": _GOLDEN_VERSION,
    "GET /api/v1/jobs": {**_FILTERS, "cursor": texts(0, 1000), "limit": numbers(1, 500)},
    "GET /api/v1/jobs/{job_id}/events": {
        "last-event-id": numbers(0, EXACT),
        "after": numbers(0, EXACT),
    },
    "GET /api/v1/jobs/{job_id}/gap": {**_RANGE, "bins": numbers(1, 4000)},
    "GET /api/v1/jobs/{job_id}/gaps": {
        **_RANGE,
        "bins": numbers(1, 1000),
        "candidates": texts(0, 5000),
    },
    "GET /api/v1/jobs/{job_id}/overlay": {
        **_RANGE,
        "arms": texts(0, 5000),
        "name": texts(0, 200),
        "points": numbers(1, 20_000),
        "raw_values": numbers(0, 60_000),
        "replicate": numbers(0, EXACT),
        "seed": numbers(0, EXACT),
    },
    "GET /api/v1/jobs/{job_id}/verdict.svg": {"candidate": texts(0, 64)},
    "GET /api/v1/jobs/{job_id}/why/ablations": {
        "ablation": lists(0, 64),
        "candidate": texts(1, 200),
    },
    "GET /api/v1/jobs:compare": {"job": lists(1, 30)},
    "GET /api/v1/runs/{run_id}/artifacts/{attempt}/{name:path}": {"attempt": numbers(0, EXACT)},
    "GET /api/v1/runs/{run_id}/layers": {
        **_RANGE,
        "buckets": numbers(1, 2000),
        **dict.fromkeys(("minus", "operand", "statistic"), texts(0, 100)),
    },
    "GET /api/v1/runs/{run_id}/log": {"lines": numbers(1, 2000)},
    "GET /api/v1/runs/{run_id}/metrics": {
        **_RANGE,
        "names": texts(0, 20_000),
        "points": numbers(1, 100_000),
    },
    "GET /api/v1/runs/{run_id}/steps": {
        **_RANGE,
        "limit": numbers(1, 20_000),
        "names": texts(0, 20_000),
    },
    "GET /api/v1/trend": _TREND,
    "GET /api/v1/trend.csv": _TREND,
    "GET /baselines/{name}/{version}": {"other": texts(0, 100)},
    "GET /compare": {"job": lists(0, 100)},
    "GET /jobs": {
        **_FILTERS,
        "cursor": texts(0, 1000),
        "sort": texts(0, 20),
        "state": texts(0, 20),
    },
    "GET /jobs/{job_id}": {"candidate": texts(0, 100)},
    "GET /jobs/{job_id}/compare": {"first": texts(0, 100), "second": texts(0, 100)},
    "GET /jobs/{job_id}/parts/{part}": {"candidate": texts(0, 100)},
    "GET /noise-tables": {"family": texts(0, 200)},
    "GET /public": {"recipe": texts(0, 40), "scale": texts(0, 40)},
    "GET /trend": _TREND,
    "GET /trend.svg": _TREND,
    "POST /api/v1/baselines/{name}/versions/{version}/controls": _VERSION,
    "POST /api/v1/baselines/{name}/versions/{version}:expire": _VERSION,
    "POST /api/v1/goldens/{golden}/versions": _GOLDEN,
    "POST /api/v1/goldens/{golden}/versions/{version}:remove": _GOLDEN_VERSION,
    "POST /api/v1/jobs": _KEY,
    "POST /api/v1/jobs/{job_id}:again": _KEY,
    "POST /api/v1/jobs:evaluations": _KEY,
    "POST /api/v1/jobs:gate": _KEY,
    "POST /api/v1/runs": _KEY,
    "POST /api/v1/runs/{run_id}/layers": {"attempt": numbers(1, EXACT)},
    "POST /api/v1/runs/{run_id}/steps": {"attempt": numbers(1, EXACT), "names": texts(0, 5000)},
    "POST /api/v1/runs/{run_id}:attach": _KEY,
    "POST /jobs/{job_id}/statements": {"what": lists(0, 500), "value": lists(0, 500)},
    "POST /jobs/{job_id}/tags": {"tags": texts(0, 2000)},
}


@cache
def _routes() -> dict[str, APIRoute]:
    app = create_app(Settings())
    app.state.context.database.close()
    return {f"{min(route.methods)} {route.path}": route for route in _endpoints(app.router)}


def _endpoints(router: Any) -> Iterator[APIRoute]:
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif inner := getattr(route, "original_router", None):
            yield from _endpoints(inner)


def _parameters(dependant: Dependant) -> dict[str, Any]:
    """The fields of an endpoint's parameters and forms by name, those of what it depends on too."""
    parts = (dependant.path_params, dependant.query_params, dependant.header_params)
    fields = {field.alias: field for part in parts for field in part}
    texts_of_forms = (each for each in dependant.body_params if not _is_model(each))
    fields |= {field.alias: field for field in texts_of_forms}
    for inner in dependant.dependencies:
        fields |= _parameters(inner)
    return fields


def _is_model(field: Any) -> bool:
    return hasattr(field.field_info.annotation, "__dataclass_fields__")


@cache
def _bodies() -> dict[str, TypeAdapter[Any]]:
    """What bodies are read with, by the name of the request; those of requests in requests too."""
    fields = [each for route in _routes().values() for each in route.dependant.body_params]
    rest: list[Any] = [each.field_info.annotation for each in fields if _is_model(each)]
    rest.append(StepsRequest)
    found: dict[str, TypeAdapter[Any]] = {}
    while rest:
        kind = rest.pop()
        if getattr(kind, "__dataclass_fields__", None) and kind.__name__ not in found:
            found[kind.__name__] = TypeAdapter(kind)
            rest += get_type_hints(kind).values()
        else:
            rest += get_args(kind)
    return found


def _own_limits(place: str, schema: dict[str, Any]) -> Iterator[str]:
    """The places of a schema, from `place` on, that have a limit of their own."""
    if KEYS & schema.keys() or re.search(r"\{\d", schema.get("pattern", "")):
        yield place
    for kind in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(kind, ()):
            yield from _own_limits(place, each)
    for name, each in schema.get("properties", {}).items():
        yield from _own_limits(f"{place}.{name}", each)
    for pattern, each in schema.get("patternProperties", {}).items():
        yield from _own_limits(f"{place} keys", {"pattern": pattern})
        yield from _own_limits(f"{place}.*", each)
    for end, inner in (("[]", schema.get("items")), (".*", schema.get("additionalProperties"))):
        if isinstance(inner, dict):
            yield from _own_limits(place + end, inner)


def is_refused_at(place: str, value: object) -> bool:
    """Whether a body with this value at the place is refused for it, whatever else it lacks."""
    model, field, rest = re.fullmatch(r"(\w+)\.(\w+)(.*)", place).groups()
    for part in reversed(re.findall(r"\[\]|\.\*| keys", rest)):
        if part == " keys":
            value = {value: "x" if field == "manifest" else [1.0]}
        else:
            value = [value] if part == "[]" else {"x": value}
    with pytest.raises(ValidationError) as refused:
        _bodies()[model].validate_python({field: value, "no field": None})
    return any(each["loc"][0] == field for each in refused.value.errors(include_input=False))


def check_field(place: str) -> None:
    """Fails unless a field is allowed at its limit and refused beyond it."""
    limit = BODIES[place]
    assert [is_refused_at(place, value) for value in limit.allowed] == [False] * len(limit.allowed)
    assert [is_refused_at(place, value) for value in limit.refused] == [True] * len(limit.refused)


@pytest.mark.parametrize("place", BODIES)
def test_a_field_of_a_body_is_allowed_at_its_limit_and_refused_beyond_it(place: str) -> None:
    check_field(place)


def check_route(route: str) -> None:
    """Fails unless each parameter is allowed at its limit and refused beyond it."""
    fields = _parameters(_routes()[route].dependant)
    for name, limit in PARAMETERS[route].items():
        field = fields[name]
        wrong = [bool(_errors_of(field, value)) for value in (*limit.allowed, *limit.refused)]
        assert wrong == [False] * len(limit.allowed) + [True] * len(limit.refused), name


def _errors_of(field: Any, value: object) -> Any:
    """What is wrong with a value of an address: a text, or a list of texts."""
    sent = value if isinstance(value, list) else str(value)
    return field.validate(sent, {}, loc=("query",))[1]


@pytest.mark.parametrize("route", PARAMETERS)
def test_a_parameter_is_allowed_at_its_limit_and_refused_beyond_it(route: str) -> None:
    check_route(route)


def test_a_column_has_ten_million_numbers_and_is_refused_with_one_more() -> None:
    schema = _bodies()["RunBody"].json_schema()
    run = {"steps": [0] * 10**7}
    check_body(run, schema)
    run["steps"].append(0)
    with pytest.raises(InvalidError, match="10,000,001"):
        check_body(run, schema)
    assert is_refused_at("RunBody.steps", run["steps"])
    columns = (
        schema["properties"]["loss"],
        schema["properties"]["columns"]["additionalProperties"],
    )
    assert [each["maxItems"] for each in columns] == [10**7] * 2


def test_every_field_with_a_limit_is_in_the_table() -> None:
    schemas = {name: adapter.json_schema() for name, adapter in _bodies().items()}
    found = {place for name, schema in schemas.items() for place in _own_limits(name, schema)}
    ids = {"ControlsRequest.runs_of"}  # its length is that of an id
    assert found - ids == BODIES.keys() | COLUMNS


def test_every_parameter_with_a_limit_is_in_the_table() -> None:
    found = {}
    for name, route in _routes().items():
        fields = _parameters(route.dependant)
        schemas = {alias: field._type_adapter.json_schema() for alias, field in fields.items()}
        if limited := {place for each in schemas.items() for place in _own_limits(*each)}:
            found[name] = limited
    assert found == {name: set(limits) for name, limits in PARAMETERS.items()}
