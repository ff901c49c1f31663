"""Authentication and authorization: bearer tokens for programs, cookie sessions for browsers, run
tokens for trainers.

Without tokens the server accepts requests on loopback only, where everyone who can connect is
trusted. `server.web.access.rules` says who may do what.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from server.database import run_tokens, tables
from server.database.lookups import find_job, find_run
from server.database.run_tokens import RunToken
from server.database.tables import Token
from server.errors import ForbiddenError, TooManyError, UnauthorizedError
from server.jobs.requesters import requesters_of
from server.web.access.api_tokens import authenticate
from server.web.access.browser_sessions import COOKIE, token_of_cookie
from server.web.access.principals import LOCAL, NOBODY, Principal, tokens_required
from server.web.access.rules import RULES, Rule
from server.web.context import Context, InContext
from server.web.threads import in_thread

# Only for OpenAPI, to mark the routes that need a token; `principal` reads the header itself.
Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="`parity_<id>_<secret>`")),
]
# Writing the time of the last use on every request would make each read a write.
_LAST_USE_SECONDS = 60.0


def principal(request: Request, context: InContext) -> Principal:
    """The sender of this request; UnauthorizedError if a token is required and the request has no
    valid one.
    """
    if not tokens_required(context.settings):
        request.state.sender = LOCAL.id
        return LOCAL
    sent = _sent_token(request, context)
    if sent is None:
        raise UnauthorizedError(
            "no valid token was sent; send `Authorization: Bearer <token>` (the command line reads "
            "PARITY_TOKEN). An admin creates tokens"
        )
    if isinstance(sent, Token) and time.time() - (sent.last_used_at or 0.0) > _LAST_USE_SECONDS:
        # A full disk or a slow writer must not block readers.
        with suppress(OperationalError), context.database.write() as session:
            session.get_one(Token, sent.id).last_used_at = time.time()
    sender = _principal_of(sent)
    request.state.sender = sender.id  # for the log also of what is refused
    allowance = request.state.allowance = context.limiter.count(
        sent.id if isinstance(sent, Token) else sender.id
    )
    if allowance is not None and allowance.left < 0:
        raise TooManyError(
            f"token {sender.name!r} has made its {context.settings.requests_per_minute} requests "
            "of this minute; retry in the next minute"
        )
    return sender


def is_still_known(request: Request, context: Context) -> bool:
    """Whether the sender's token is still valid; checked during long responses, which may outlive a
    token.
    """
    return not tokens_required(context.settings) or _sent_token(request, context) is not None


async def authorize(request: Request, context: InContext, _bearer: Bearer) -> Principal:
    """The sender of this request, if the rule of its operation allows it: a dependency of every
    route of the API.
    """
    rule = RULES[f"{request.method} {request.scope['route'].path_format}"]
    if rule.is_public:  # liveness waits for no thread
        return NOBODY
    return await in_thread(_authorized, request, context, rule)


def _authorized(request: Request, context: Context, rule: Rule) -> Principal:
    sender = principal(request, context)
    check_rule(context, rule, sender, request.path_params)
    return sender


def check_rule(context: Context, rule: Rule, sender: Principal, path: Mapping[str, Any]) -> None:
    """ForbiddenError unless a rule lets this sender through; `path` has the ids in the request's
    path.
    """
    if sender.run is not None:
        _check_run_token(rule, sender.run, path.get("run_id"))
        return
    _check_scope(rule, sender)
    if rule.gates_refused and sender.repository is not None and not sender.may("approve"):
        raise ForbiddenError(
            f"token {sender.name!r} is for the gates of repository {sender.repository}, whose "
            "verdicts would rest on this; use a token "
            "without a repository (python -m server.tokens create), or one with scope approve"
        )
    if rule.owner_only and not sender.may("admin"):
        _check_owner(context, rule, sender, path)
    if rule.another_person and sender.id != tables.LOCAL_ID:  # without tokens there is nobody else
        _check_another(context, sender, path)


def check_attempt(sender: Principal, attempt_number: int) -> None:
    """ForbiddenError if a run token is used for another attempt than its own."""
    if sender.run is not None and sender.run.attempt_number != attempt_number:
        raise ForbiddenError(
            f"attempt is {attempt_number}, expected {sender.run.attempt_number}: this token is "
            "that of one attempt only"
        )


Sender = Annotated[Principal, Depends(authorize)]


def _check_scope(rule: Rule, sender: Principal) -> None:
    if not any(sender.may(scope) for scope in rule.scopes):
        has = ", ".join(sorted(sender.scopes))
        raise ForbiddenError(
            f"token {sender.name!r} has scope {has}, expected {rule.words}; ask an admin for a "
            "token with that scope"
        )


def _check_owner(context: Context, rule: Rule, sender: Principal, path: Mapping[str, Any]) -> None:
    """ForbiddenError unless the sender's principal submitted the job in the path, or the job of the
    run in the path.
    """
    with context.database.read() as session:
        what, owner = _owned(session, path)
        if owner != sender.id:
            name = session.scalar(select(Token.name).where(Token.id == owner))
            who = f"token {name!r} submitted" if name else "no token submitted"
            if rule.trainer == "no":
                also = ""
            else:
                also = ", the token that the run's trainer got when it attached,"
            raise ForbiddenError(
                f"token {sender.name!r} may not change {what}, which {who}; expected that "
                f"token{also} or scope admin"
            )


def _owned(session: Session, path: Mapping[str, Any]) -> tuple[str, str | None]:
    """What the ids in a path name, and the principal that submitted it."""
    if "job_id" in path:
        job = find_job(session, path["job_id"])
    else:
        job = find_run(session, path["run_id"]).job
    return f"job {job.id}", job.submitted_by


def _check_another(context: Context, sender: Principal, path: Mapping[str, Any]) -> None:
    """ForbiddenError if the sender's principal submitted the job in the path, or asked for it in a
    gate.
    """
    with context.database.read() as session:
        job = find_job(session, path["job_id"])
        if sender.id in requesters_of(job):
            if job.submitted_by == sender.id:
                did = "submitted that job"
            else:
                did = "asked for that job in a gate"
            raise ForbiddenError(
                f"token {sender.name!r} may not sign off job {job.id}, because its principal "
                f"{did}; ask another person"
            )


def _check_run_token(rule: Rule, run: RunToken, run_id: str | None) -> None:
    if rule.trainer == "no" or run.run_id != run_id:
        raise ForbiddenError(
            f"this is the token of run {run.run_id}, which may only write that run; expected a "
            f"token with {rule.words.partition(',')[0]}"
        )
    if not run.is_live and rule.trainer != "any":
        raise UnauthorizedError(
            f"the token of attempt {run.attempt_number} of run {run.run_id} is no longer valid, "
            "because that attempt has ended"
        )


def _sent_token(request: Request, context: Context) -> Token | RunToken | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    cookie = request.cookies.get(COOKIE)
    with context.database.read() as session:
        if scheme.lower() == "bearer":
            return authenticate(session, text.strip()) or run_tokens.authenticate(
                session, text.strip()
            )
        if not cookie:
            return None
        return token_of_cookie(session, cookie)


def _principal_of(sent: Token | RunToken) -> Principal:
    if isinstance(sent, RunToken):
        name = f"{sent.run_id}-{sent.attempt_number}"
        return Principal(id=name, name=name, scopes=frozenset(), run=sent)
    return Principal(
        id=sent.principal, name=sent.name, scopes=frozenset(sent.scopes), repository=sent.repository
    )
