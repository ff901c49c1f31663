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
    """A request that cannot be served. `kind` is the stable last part of the problem's type URI."""

    status = 500
    kind = "internal"
    title = "Internal server error"
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


class ConflictError(ServiceError):
    """The request is valid but conflicts with the current state."""

    status = 409
    kind = "conflict"
    title = "Conflict with the current state"


class StaleAttemptError(ConflictError):
    """A trainer writes although its attempt has ended: by a newer attach, by the end of the run, or
    by a cancelled job.
    """

    kind = "stale-attempt"
    title = "This attempt has ended"


class LookError(ConflictError):
    """A further look at a question that was not registered, or that was registered differently."""

    kind = "look"
    title = "This look is not registered"


class SignOffError(ConflictError):
    """A verdict that nobody may sign off, or that is signed off already."""

    kind = "sign-off"
    title = "This verdict cannot be signed off"


class BadRequestError(ServiceError):
    """The request is ambiguous as HTTP."""

    status = 400
    kind = "bad-request"
    title = "Ambiguous request"


class InvalidError(ServiceError):
    """The request itself is invalid."""

    status = 422
    kind = "invalid"
    title = "Invalid request"

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


class TooLargeError(ServiceError):
    """The body is larger than the service reads."""

    status = 413
    kind = "too-large"
    title = "The request is too large"


class TooManyError(ServiceError):
    """The caller has used up its requests for this minute."""

    status = 429
    kind = "too-many"
    title = "Too many requests"


class ForbiddenError(ServiceError):
    """The caller may not do this."""

    status = 403
    kind = "forbidden"
    title = "Not allowed"


class DamagedError(ServiceError):
    """Recorded steps do not have the checksum that they were written with."""

    kind = "damaged"
    title = "The record is damaged"


class StoredFormError(ServiceError):
    """What is stored was written by another version, and this one cannot read it."""

    status = 503
    kind = "stored-form"
    title = "Stored by another version"


class UnavailableError(ServiceError):
    """A service that the server depends on is unreachable; a later retry may succeed."""

    status = 503
    kind = "unavailable"
    title = "Temporarily unavailable"


class BusyError(UnavailableError):
    """Too many requests wait for this process."""

    kind = "busy"
    title = "The server is busy"

    def __init__(self, detail: str, retry_seconds: int = ServiceError.retry_seconds) -> None:
        super().__init__(detail)
        self.retry_seconds = retry_seconds


class DiskFullError(UnavailableError):
    """The disk of the database, or of the server, is full."""

    kind = "disk-full"
    title = "The disk is full"
    retry_seconds = 30


class DatabaseAwayError(UnavailableError):
    """The database is unreachable, busy for too long, or read-only."""

    kind = "database-away"
    title = "The database is unreachable"


class DatabaseBusyError(UnavailableError):
    """Every connection of this process is in use."""

    kind = "database-busy"
    title = "The database is busy"


def kinds() -> dict[str, int]:
    """Every type of a problem with its HTTP status, by name."""
    bases: tuple[type[ServiceError], ...] = (ServiceError, ConflictError, UnavailableError)
    return dict(
        sorted(
            {
                error.kind: error.status
                for base in bases
                for error in (base, *base.__subclasses__())
            }.items()
        )
    )
