"""What people add to a job, on its page: forms for tags, notes and sign-offs. Who may use one is the rule of the API's own operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from parity.judging.sign_offs import why_not_acceptable
from server.documents.job import JobDocument
from server.errors import ForbiddenError, InvalidError
from server.pages.rendering import visitor
from server.remarks import notes, sign_offs, tags
from server.web.auth import Principal, check_rule
from server.web.context import Context, InContext
from server.web.rules import RULES
from server.web.texts import FormText

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
_JOB = "/api/v1/jobs/{job_id}"
_TAG, _NOTE, _SIGN_OFF = f"PUT {_JOB}/tags", f"POST {_JOB}/notes", f"POST {_JOB}/sign-offs"
_REVOKE = f"POST {_JOB}/sign-offs/{{sign_off_id}}:revoke"


def values(request: Request, context: Context, job: JobDocument) -> Mapping[str, Any]:
    """What the part of the job page about remarks needs: what the visitor may do, and which verdicts can be signed off."""
    may = {name: _may(request, context, operation, job.id) for name, operation in (("tag", _TAG), ("note", _NOTE), ("sign_off", _SIGN_OFF))}
    may["revoke"] = _may(request, context, _REVOKE, job.id)
    signed = {each.candidate for each in job.sign_offs if each.state == "valid"}
    undecided = [verdict for verdict in job.verdicts if verdict["verdict"] == "inconclusive" and verdict["candidate"]["name"] not in signed]
    reasons = {verdict["candidate"]["name"]: why_not_acceptable(verdict) for verdict in undecided}  # type: ignore[arg-type]
    return {
        "may": may,
        "acceptable": [name for name, why in reasons.items() if why is None],
        "not_acceptable": {name: why for name, why in reasons.items() if why is not None},
        "most_days": sign_offs.MOST_DAYS,
        "accepted": {each.candidate: each for each in job.sign_offs if each.state == "valid"},
    }


@router.post("/jobs/{job_id}/tags")
def set_tags(
    job_id: str, request: Request, context: InContext, words: Annotated[FormText, Form(alias="tags", max_length=2000)] = ""
) -> Response:
    """Set the tags of a job, separated by spaces or commas."""
    _check(request, context, _TAG, job_id)
    with context.database.write() as session:
        tags.set_tags(session, job_id, words.replace(",", " ").split())
    return _back(job_id)


@router.post("/jobs/{job_id}/notes")
def add_note(job_id: str, request: Request, context: InContext, text: FormText = "") -> Response:
    """Add a note."""
    sender = _check(request, context, _NOTE, job_id)
    with context.database.write() as session:
        notes.add_note(session, job_id, sender.id, text)
    return _back(job_id)


@router.post("/jobs/{job_id}/sign-offs")
def sign_off(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: FormText = "",
    reason: FormText = "",
    days: FormText = "",
) -> Response:
    """Accept an inconclusive verdict."""
    sender = _check(request, context, _SIGN_OFF, job_id)
    try:
        length = float(days)
    except ValueError:
        raise InvalidError(f"days is {days!r:.40}, expected a number such as 14") from None
    with context.database.write() as session:
        sign_offs.sign_off(session, job_id, candidate, sender.id, reason, length)
    return _back(job_id)


@router.post("/jobs/{job_id}/sign-offs/{sign_off_id}/revoke")
def revoke(job_id: str, sign_off_id: str, request: Request, context: InContext, reason: FormText = "") -> Response:
    """End a sign-off."""
    sender = _check(request, context, _REVOKE, job_id)
    with context.database.write() as session:
        sign_offs.revoke(session, job_id, sign_off_id, sender.id, reason)
    return _back(job_id)


def _check(request: Request, context: Context, operation: str, job_id: str) -> Principal:
    """The visitor, if the rule of an operation allows it; else ForbiddenError."""
    sender: Principal = request.state.visitor
    check_rule(context, RULES[operation], sender, {"job_id": job_id})
    return sender


def _may(request: Request, context: Context, operation: str, job_id: str) -> bool:
    try:
        _check(request, context, operation, job_id)
    except ForbiddenError:
        return False
    return True


def _back(job_id: str) -> Response:
    return RedirectResponse(f"/jobs/{job_id}#remarks-heading", 303)
