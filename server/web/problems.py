"""Errors as application/problem+json (RFC 9457), one format for all of them."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from parity.canonical_json import fields_of
from parity.frozen import frozen
from server import full_disk, outages
from server.errors import (
    DatabaseAwayError,
    DatabaseBusyError,
    DiskFullError,
    FieldProblem,
    InvalidError,
    ServiceError,
    kinds,
)
from server.logs import cut
from server.web.limits import MOST_FINDINGS
from server.web.requests.body_sizes import describe_limits
from server.web.requests.entity_tags import NotModifiedError
from server.web.requests.texts import escaped
from server.wrong_values import sentence
from training.rules import SpecError

_log = logging.getLogger(__name__)
_TYPE = "urn:parity:problem:"
_HELP = '</docs/codes/#refused-requests>; rel="help"'
MEDIA_TYPE = "application/problem+json"
HANDLED = (
    ServiceError,
    RequestValidationError,
    HTTPException,
    OperationalError,
    PoolTimeoutError,
    DataError,
)
_MEANINGS = {
    400: "The body cannot be parsed",
    401: "A valid token is required",
    403: "This token or page is not allowed to do this",
    404: "Not found",
    409: "The request conflicts with the current state, or the attempt has ended",
    413: "The body is too large",
    422: "The request is invalid",
    429: "Too many requests in this minute",
    503: (
        "The database or the broker is unreachable, a disk is full, or too many requests wait for "
        "the same"
    ),
}


def _types() -> Iterator[str]:
    """Every problem type, with its status."""
    statuses: dict[str, object] = {kind: error.status for kind, error in kinds().items()}
    types = statuses | {"http-STATUS": "errors of the web framework, such as 405"}
    yield from (f"`{_TYPE}{kind}` ({status})" for kind, status in sorted(types.items()))


@frozen
class Problem:
    """An error (RFC 9457). `type` never changes its meaning, `detail` is a sentence for people.

    `errors` has at most 100 problems of the body; `more_errors` counts the rest.
    """

    type: Annotated[str, Field(description=f"One of {', '.join(_types())}.")]
    title: str
    status: int
    detail: str
    instance: str
    request_id: str | None
    errors: list[FieldProblem] | None = None
    more_errors: int | None = None


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of errors with these statuses."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: schema}}
        for status in statuses
    }


def describe(openapi: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with our error format in place of the framework's, which is never sent.

    Optional parameters are not described as nullable, because a URL and a header contain only text.
    """
    schemas = openapi["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = TypeAdapter(Problem).json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs") | {"Problem": problem}
    for operations in openapi["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                kinds = [
                    kind
                    for kind in parameter["schema"].pop("anyOf", ())
                    if kind != {"type": "null"}
                ]
                if kinds:
                    parameter["schema"] |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return describe_limits(openapi)


def install(app: FastAPI) -> None:
    """Make every error of the application a problem+json document."""
    for kind in HANDLED:
        app.add_exception_handler(kind, _handle)
    app.add_exception_handler(NotModifiedError, _not_modified)


def respond(
    request: Request, error: ServiceError, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The response for an error."""
    body: dict[str, Any] = {
        "type": _TYPE + error.kind,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": cut(request.url.path),
        "request_id": getattr(request.state, "request_id", None),
    }
    shown = error.errors[:MOST_FINDINGS]
    if shown:
        body["errors"] = [fields_of(finding) for finding in shown]
    if more := error.more_errors + len(error.errors) - len(shown):
        body["more_errors"] = more
    allowance = getattr(request.state, "allowance", None)
    seconds = 60 if allowance is None else allowance.seconds
    error_headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.status in (429, 503):
        error_headers["Retry-After"] = str(seconds if error.status == 429 else error.retry_seconds)
    return JSONResponse(
        body,
        error.status,
        {"Link": _HELP, **(headers or {}), **error_headers},
        media_type=MEDIA_TYPE,
    )


def unexpected(request: Request, error: Exception) -> JSONResponse:
    """The response for an unexpected error: logged under the request id, without details in the
    response.
    """
    if full_disk.is_full(error):
        _log.error("a request failed: %s", error)
        return respond(
            request,
            DiskFullError(
                "the disk of the server is full, and this request was not completed; an operator "
                "has to free space on it, then retry"
            ),
        )
    _log.error("a request failed", exc_info=error)
    return respond(
        request,
        ServiceError(
            "the server failed unexpectedly; its log has the details under this request id"
        ),
    )


async def _handle(request: Request, error: Exception) -> Response:
    headers: dict[str, str] = {}
    match error:
        case ServiceError():
            problem = error
        case RequestValidationError():
            problem = _invalid(error)
        case HTTPException():
            headers = dict(error.headers or {})
            if error.status_code == 405 and (methods := _methods(request)):
                headers["Allow"] = ", ".join(methods)
            problem = ServiceError(f"{request.method} {cut(request.url.path)}: {error.detail}")
            problem.status, problem.kind, problem.title = (
                error.status_code,
                f"http-{error.status_code}",
                str(error.detail),
            )
        case outages.DatabaseFullError():
            _log.error("the database failed during a request: %s", outages.reason(error))
            problem = DiskFullError(
                f"{outages.cause(error)}, and nothing of this request was saved; an operator has "
                "to free space on it, then retry"
            )
        case OperationalError():  # a retry is safe, because an idempotency key prevents duplicates
            _log.error("the database failed during a request: %s", outages.reason(error))
            problem = DatabaseAwayError(
                f"{outages.cause(error)} at the moment, and nothing of this request was saved; "
                "retry it in a few seconds"
            )
        # PostgreSQL refuses some values that SQLite takes, such as numbers that are too large for a
        # column
        case DataError():
            _log.warning("the database cannot store a value of a request: %s", error.orig)
            problem = InvalidError(
                "the request has a value that the database cannot store, such as a number that is "
                "too large; change it"
            )
        case _:
            _log.error("no database connection was free: %s", error)
            problem = DatabaseBusyError(
                "the server is busy: all of its database connections are in use, and nothing of "
                "this request was saved; retry it in a few seconds"
            )
    return respond(request, problem, headers)


async def _not_modified(_request: Request, error: Exception) -> Response:
    return Response(status_code=304, headers=getattr(error, "headers", {}))


def _invalid(error: RequestValidationError) -> InvalidError:
    findings = error.errors()
    problems = [_field_problem(finding) for finding in findings[:MOST_FINDINGS]]
    detail = "; ".join(
        f"{_where(finding)}{problem.detail}"
        for finding, problem in zip(findings[:3], problems, strict=False)
    )
    more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
    return InvalidError(detail + more, problems, more_errors=len(findings) - len(problems))


def _where(finding: Mapping[str, Any]) -> str:
    """Which part of the body is meant, in words, before the sentence about it: "candidate 2: ";
    empty where the sentence says so itself.
    """
    place = [str(part) for part in finding["loc"] if part not in ("body", "job")]
    above = place[:-1]
    if _cause(finding) is not None:
        above = place if _is_arm(place) else []
    if above[:1] == ["candidates"] and above[1:] and above[1].isdecimal():
        above = [f"candidate {int(above[1]) + 1}", *above[2:]]
    return f"{'.'.join(above)}: " if above else ""


def _cause(finding: Mapping[str, Any]) -> SpecError | None:
    """The error of the specification's own rules behind a finding of pydantic."""
    cause = (finding.get("ctx") or {}).get("error")
    if not isinstance(cause, SpecError):
        return None
    return cause


def _is_arm(place: Sequence[str]) -> bool:
    return place[-1:] == ["baseline"] or place[-2:-1] == ["candidates"]


def _field_problem(finding: Mapping[str, Any]) -> FieldProblem:
    """One pydantic error as a JSON Pointer and a sentence with the value."""
    place = [str(part) for part in finding["loc"] if part != "body"]
    if (cause := _cause(finding)) is not None:
        # The error names its own field, below the object that pydantic was building; that of an arm
        # as `arm.recipe`.
        detail = str(cause).removeprefix("arm.") if _is_arm(place) else str(cause)
        if " " in cause.field:
            field_path = []
        else:
            field_path = cause.field.removeprefix("arm." if _is_arm(place) else "").split(".")
        place += [part for part in field_path if part not in place]
    else:
        detail = sentence(finding, place)
    return FieldProblem(pointer="".join("/" + escaped(part) for part in place), detail=detail)


def _methods(request: Request) -> list[str]:
    """The methods of all routes at a path; the framework names the first route's only."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    fitting = [template for template in paths if compile_path(template)[0].match(request.url.path)]
    # `/jobs/{job_id}` also matches `/jobs/x:cancel`; the longer template is the intended one.
    if not fitting:
        return []
    return sorted(method.upper() for method in paths[max(fitting, key=len)])
