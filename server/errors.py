"""Refusals that a person reads: plain exceptions with an HTTP status; `app.py` turns them into problem+json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One thing wrong with a request: JSON Pointer into the body, and a sentence."""

    pointer: str
    detail: str


class ServiceError(Exception):
    """A request that can't be served: `kind` is the stable last part of the problem's type URI."""

    status = 500
    kind = "internal"
    title = "The service failed"

    def __init__(self, detail: str, errors: Sequence[FieldProblem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)


class NotFoundError(ServiceError):
    """The thing that was named does not exist."""

    status = 404
    kind = "not-found"
    title = "Not found"


class ConflictError(ServiceError):
    """The request is sound, but somebody or something was faster."""

    status = 409
    kind = "conflict"
    title = "The record says otherwise"


class StaleAttemptError(ConflictError):
    """A trainer writes whose attempt has ended: by a newer attach, by the end of the run, or by a cancelled job."""

    kind = "stale-attempt"
    title = "This attempt has ended"


class InvalidError(ServiceError):
    """The request alone proves that it can't be done."""

    status = 422
    kind = "invalid"
    title = "The request can't be done as it stands"


class UnauthorizedError(ServiceError):
    """The request has no valid token, and one is required."""

    status = 401
    kind = "unauthorized"
    title = "A token is required"


class TooLargeError(ServiceError):
    """The body is larger than the service reads."""

    status = 413
    kind = "too-large"
    title = "The request is too large"


class TooManyError(ServiceError):
    """More requests than this caller may make in a while."""

    status = 429
    kind = "too-many"
    title = "Too many requests"


class ForbiddenError(ServiceError):
    """The caller may not do this."""

    status = 403
    kind = "forbidden"
    title = "Not allowed"


class UnavailableError(ServiceError):
    """Something that the service needs is away; trying again later helps."""

    status = 503
    kind = "unavailable"
    title = "Not available right now"
