"""What people add to a job, on its page: forms for tags, notes, statements, sign-offs, runs and a
new job. Who may use a form is the rule of the API's own operation.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Form, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import TypeAdapter, ValidationError

from server.api.jobs import submit_run
from server.api.submit import submit_again
from server.documents.jobs import JobDocument
from server.errors import ForbiddenError, InvalidError
from server.jobs import notes, sign_offs, statements, tags
from server.jobs.added_runs import AddedRunRequest
from server.jobs.pinned_gates import check_statements
from server.pages.form_fields import parsed_number
from server.pages.rendering import pages_router
from server.web.access.authorization import check_rule
from server.web.access.principals import Principal
from server.web.access.rules import RULES
from server.web.context import Context, InContext
from server.web.requests.bodies import once
from server.web.requests.texts import FormText, clean_body
from server.wrong_values import sentence

router = pages_router()
_JOB = "/api/v1/jobs/{job_id}"
_TAG, _NOTE, _SIGN_OFF = f"PUT {_JOB}/tags", f"POST {_JOB}/notes", f"POST {_JOB}/sign-offs"
_STATE, _STATEMENT = f"POST {_JOB}/statements", TypeAdapter(statements.StatementRequest)
_REVOKE = f"POST {_JOB}/sign-offs/{{sign_off_id}}:revoke"
_AGAIN, _ADD_RUN = f"POST {_JOB}:again", f"POST {_JOB}:add-run"


def values(request: Request, context: Context, job: JobDocument) -> Mapping[str, Any]:
    """What the part of the job page about remarks needs: what the visitor may do, and which
    verdicts can be signed off.
    """
    operations = {
        "tag": _TAG,
        "note": _NOTE,
        "sign_off": _SIGN_OFF,
        "revoke": _REVOKE,
        "state": _STATE,
        "again": _AGAIN,
        "add_run": _ADD_RUN,
    }
    signed = {
        sign_off.candidate: sign_off for sign_off in job.sign_offs if sign_off.state == "valid"
    }
    undecided = [
        verdict
        for verdict in job.verdicts
        if verdict["verdict"] == "inconclusive" and verdict["candidate"]["name"] not in signed
    ]
    reasons = {
        verdict["candidate"]["name"]: sign_offs.why_not_signed(job.engine, verdict)  # type: ignore[arg-type]
        for verdict in undecided
    }
    return {
        "may": {
            name: _may(request, context, operation, job.id)
            for name, operation in operations.items()
        },
        "acceptable": [name for name, why in reasons.items() if why is None],
        "not_acceptable": {name: why for name, why in reasons.items() if why is not None},
        "accepted": signed,
    }


@router.post("/jobs/{job_id}/tags")
def set_tags(
    job_id: str,
    request: Request,
    context: InContext,
    words: Annotated[FormText, Form(alias="tags", max_length=2000)] = "",
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


@router.post("/jobs/{job_id}/statements")
def state(
    job_id: str,
    request: Request,
    context: InContext,
    what: Annotated[list[FormText] | None, Form(max_length=500)] = None,
    value: Annotated[list[FormText] | None, Form(max_length=500)] = None,
) -> Response:
    """State facts of external runs: the lists have a fact with its arm ("rounding nvfp4") and what
    is stated of it, empty for nothing.
    """
    sender = _check(request, context, _STATE, job_id)
    facts = {
        name: text.strip()
        for name, text in zip(what or (), value or (), strict=False)
        if text.strip()
    }
    statement = _statement(facts)
    if sender.repository is not None:
        check_statements(context.settings.gate_rules, sender.repository, statement)
    with context.database.write() as session:
        statements.record_statement(session, job_id, statement, sender.id)
    return _back(job_id)


def _statement(facts: Mapping[str, str]) -> statements.StatementRequest:
    """What a form states, by fact and arm."""
    sent: dict[str, Any] = {}
    for name, text in facts.items():
        fact, _, arm = name.partition(" ")
        if fact == "seeds":
            sent.setdefault(fact, {})[arm] = [
                parsed_number("seeds", part, int, "whole numbers, separated by commas")
                for part in text.split(",")
            ]
        elif arm:
            sent.setdefault(fact, {})[arm] = text
        else:
            if fact == "family":
                sent[fact] = text
            else:
                sent[fact] = parsed_number(fact, text.replace(",", ""), int, "a whole number")
    try:
        return _STATEMENT.validate_python(sent)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InvalidError(sentence(wrong, [" of ".join(map(str, wrong["loc"]))])) from None


@router.post("/jobs/{job_id}/again")
def again(
    job_id: str, request: Request, context: InContext, patch: FormText = "", key: FormText = ""
) -> Response:
    """Queue a new job from one that has ended, with a merge patch as JSON."""
    sender = _check(request, context, _AGAIN, job_id)
    try:
        parsed = clean_body(json.loads(patch, object_pairs_hook=once))
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidError(f"patch is {patch!r:.80}, expected a JSON object such as {{}}")
    made = submit_again(context, job_id, parsed, sender, key or None)
    return RedirectResponse(made.links["page"], 303)


@router.post("/jobs/{job_id}/add-run")
def add_run(job_id: str, request: Request, context: InContext, runs: FormText = "") -> Response:
    """Add a run to each arm of a job; `runs` is how many the job had when the page was drawn."""
    sender = _check(request, context, _ADD_RUN, job_id)
    submit_run(
        context,
        job_id,
        AddedRunRequest(runs=parsed_number("runs", runs, int, "a whole number")),
        sender,
    )
    return RedirectResponse(f"/jobs/{job_id}", 303)


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
def revoke(
    job_id: str, sign_off_id: str, request: Request, context: InContext, reason: FormText = ""
) -> Response:
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
