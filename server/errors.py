"""Errors of a request: plain exceptions with an HTTP status. `server.web.problems` turns them into
problem+json.
"""

from __future__ import annotations

from collections.abc import Sequence

from parity.frozen import frozen


@frozen
class FieldProblem:
    """One problem of a request: a JSON Pointer into the body, and a sentence."""

    pointer: str
    detail: str


class ServiceError(Exception):
    """A request that cannot be served. `kind` is the stable last part of the problem's type URI,
    `remedy` what to do about it (Markdown, as docs/codes.md has it).
    """

    status = 500
    kind = "internal"
    title = "Internal server error"
    remedy = "an error in parity: report it with the `request_id`"
    retry_seconds = 2
    """When to try again; only status 503 says so."""

    def __init__(
        self, detail: str, errors: Sequence[FieldProblem] = (), more_errors: int = 0
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.more_errors = more_errors  # so many are not listed


class NotFoundError(ServiceError):
    """The requested object does not exist."""

    status = 404
    kind = "not-found"
    title = "Not found"
    remedy = "check the id"


class ConflictError(ServiceError):
    """The request is valid but conflicts with the current state."""

    status = 409
    kind = "conflict"
    title = "Conflict with the current state"
    remedy = (
        "the record has changed: read the run or job again. For steps: the same step is "
        "recorded with other numbers"
    )


class StaleAttemptError(ConflictError):
    """A trainer writes although its attempt has ended: by a newer attach, by the end of the run, or
    by a cancelled job.
    """

    kind = "stale-attempt"
    title = "This attempt has ended"
    remedy = "another attempt has replaced this one: stop the old process, or attach again"


class LookError(ConflictError):
    """A further look at a question that was not registered, or that was registered differently."""

    kind = "look"
    title = "This look is not registered"
    remedy = (
        "this analysis (look) is not registered: register more before the first one, or give "
        "the question a new name"
    )


class SignOffError(ConflictError):
    """A verdict that nobody may sign off, or that is signed off already."""

    kind = "sign-off"
    title = "This verdict cannot be signed off"
    remedy = "this verdict cannot be [signed off](gate.md), or is already: the detail says why"


class BadRequestError(ServiceError):
    """The request is ambiguous as HTTP."""

    status = 400
    kind = "bad-request"
    title = "Ambiguous request"
    remedy = "the request has two lengths (Content-Length and Transfer-Encoding): send one"


class InvalidError(ServiceError):
    """The request itself is invalid."""

    status = 422
    kind = "invalid"
    title = "Invalid request"
    remedy = "correct what `errors` lists; each entry points into the request"

    @classmethod
    def at(cls, pointer: str, problem: str, detail: str | None = None) -> InvalidError:
        """A problem of one place of the body (a JSON Pointer); `detail` is the sentence for the
        whole request, by default the problem's.
        """
        return cls(detail or problem, [FieldProblem(pointer=pointer, detail=problem)])


class UnauthorizedError(ServiceError):
    """A token is required, and the request has no valid one."""

    status = 401
    kind = "unauthorized"
    title = "A token is required"
    remedy = "send `Authorization: Bearer …` with a token that is not expired or revoked"


class TooLargeError(ServiceError):
    """The body is larger than the service reads."""

    status = 413
    kind = "too-large"
    title = "The request is too large"
    remedy = (
        "send smaller batches; the limit is `PARITY_MAX_BODY_BYTES`, and 1 MiB for requests "
        "without curves or tables"
    )


class TooManyError(ServiceError):
    """The caller has used up its requests for this minute."""

    status = 429
    kind = "too-many"
    title = "Too many requests"
    remedy = (
        "wait for the seconds in `Retry-After`: requests, exports, followed jobs or queued "
        "runs are at their limit"
    )


class ForbiddenError(ServiceError):
    """The caller may not do this."""

    status = 403
    kind = "forbidden"
    title = "Not allowed"
    remedy = (
        "use a token with the scope that the detail names, of the principal that submitted "
        "the job ([rights](rights.md))"
    )


class DamagedError(ServiceError):
    """Recorded steps do not have the checksum that they were written with."""

    kind = "damaged"
    title = "The record is damaged"
    remedy = (
        "recorded steps, or a recorded verdict, have changed: run `python -m server.check` on "
        "the server's machine"
    )


class StoredFormError(ServiceError):
    """What is stored was written by another version, and this one cannot read it."""

    status = 503
    kind = "stored-form"
    title = "Stored by another version"
    remedy = (
        "another version stored it: run that version, or `python -m server.check` on the "
        "server's machine"
    )


class UnavailableError(ServiceError):
    """A service that the server depends on is unreachable; a later retry may succeed."""

    status = 503
    kind = "unavailable"
    title = "Temporarily unavailable"
    remedy = "retry after the seconds in `Retry-After`; `/readyz` says what is away"


class BusyError(UnavailableError):
    """Too many requests wait for this process."""

    kind = "busy"
    title = "The server is busy"
    remedy = (
        "too many requests wait: retry after the seconds in `Retry-After`; if it lasts, start "
        "another API process"
    )

    def __init__(self, detail: str, retry_seconds: int = ServiceError.retry_seconds) -> None:
        super().__init__(detail)
        self.retry_seconds = retry_seconds


class DiskFullError(UnavailableError):
    """The disk of the database, or of the server, is full."""

    kind = "disk-full"
    title = "The disk is full"
    remedy = (
        "an operator frees space on the disk of the database or the server, as the detail "
        "says; then retry"
    )
    retry_seconds = 30


class DatabaseAwayError(UnavailableError):
    """The database is unreachable, busy for too long, or read-only."""

    kind = "database-away"
    title = "The database is unreachable"
    remedy = "retry after the seconds in `Retry-After`"


class DatabaseBusyError(UnavailableError):
    """Every connection of this process is in use."""

    kind = "database-busy"
    title = "The database is busy"
    remedy = (
        "all connections are in use: retry; if it lasts, raise `PARITY_DATABASE_CONNECTIONS` "
        "or start another API process"
    )


def kinds() -> dict[str, type[ServiceError]]:
    """The errors by the types of their problems, sorted by name."""
    bases: tuple[type[ServiceError], ...] = (ServiceError, ConflictError, UnavailableError)
    errors = (error for base in bases for error in (base, *base.__subclasses__()))
    by_kind = {error.kind: error for error in errors}
    return {kind: by_kind[kind] for kind in sorted(by_kind)}
