"""Who calls, with which token or session, and who may call which operation; and what the lab adds
to the web application.
"""

import ipaddress
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, cast, get_args

from anyio import move_on_after
from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import delete, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from parity.extensions import lab
from parity.frozen import frozen
from server.concurrency.cache import Cache
from server.database import hashed_secrets, run_tokens, tables
from server.database.lookups import find_job, find_run
from server.database.run_tokens import RunToken
from server.database.sessions import Database
from server.database.tables import BrowserSession, Job, Token
from server.errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyError,
    UnauthorizedError,
)
from server.jobs.judge_thread import Judge
from server.jobs.requesters import requesters_of
from server.queue import Doorbell
from server.readiness import Readiness
from server.settings import Settings
from server.web import limits
from server.web.limits import Limiter
from server.web.live import Broadcast, OpenStreams

# The parts of a running service that every route needs; `create_app` stores them in the
# application's state.


@frozen
class Context:
    """The parts of a running service."""

    settings: Settings
    database: Database
    judge: Judge
    doorbell: Doorbell
    broadcast: Broadcast
    limiter: Limiter
    readiness: Readiness
    cache: Cache = field(default_factory=Cache)
    streams: OpenStreams = field(default_factory=OpenStreams)


async def _context(request: Request) -> Context:  # FastAPI would call a plain function in a thread
    return cast(Context, request.app.state.context)


InContext = Annotated[Context, Depends(_context)]


# Who may call which operation of the API: one rule for each operation of the OpenAPI description,
# and no operation without one.
#
# `server.web.auth.authorize` enforces these rules, and docs/rights.md shows them as a table. A new
# route needs a line here: without one the application does not start.

Given = ParamSpec("Given")
Result = TypeVar("Result")
Scope = Literal["view", "submit", "worker", "approve", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@frozen
class Rule:
    """What an operation requires. Scope `admin` is always enough; `submit` and `approve` include
    `view`.

    `scopes`: the token must have one of them; empty: no token is needed. `of_owner`: the token must
    also belong to the principal that submitted the job in the path, or that of the run in the path;
    `by_another`: it must not, nor have asked for the job in a gate, with scope admin neither.
    `trainer`: that run's own token is enough instead, if its attempt is live; `any`: also if it has
    ended, for the caller to learn that from the response. `of_no_gate`: a token of a repository's
    gates is refused, unless it has scope approve or admin: a pull request has it, and its own
    verdict would rest on what it writes.
    """

    scopes: tuple[Scope, ...] = ()
    of_owner: bool = False
    by_another: bool = False
    trainer: Literal["no", "live", "any"] = "no"
    of_no_gate: bool = False

    @property
    def is_public(self) -> bool:
        """Whether no token is needed."""
        return not self.scopes

    @property
    def words(self) -> str:
        """What is needed, for an error."""
        return f"scope {' or '.join(self.scopes)}" + (
            "" if self.trainer == "no" else ", or the token of this run"
        )


_PUBLIC = Rule()
_READ = Rule(scopes=("view",))
_SUBMIT = Rule(scopes=("submit",))
_OWN_JOB = Rule(scopes=("submit",), of_owner=True)
_ATTACH = Rule(scopes=("submit", "worker"), of_owner=True, trainer="live")
_WRITE_RUN = Rule(scopes=("submit",), of_owner=True, trainer="any")
_NOTE = Rule(scopes=("submit", "approve"))
# `server.jobs.baselines` says whose a name is
_OWN_NAME = Rule(scopes=("submit", "approve"), of_no_gate=True)
_IMPORT = Rule(scopes=("submit",), of_no_gate=True)
_APPROVE = Rule(scopes=("approve",))
_APPROVE_ANOTHERS = Rule(scopes=("approve",), by_another=True)
_ADMIN = Rule(scopes=("admin",))

RULES: Mapping[str, Rule] = {
    "GET /healthz": _PUBLIC,
    "GET /readyz": _PUBLIC,
    "GET /metrics": _READ,
    "GET /api/v1/schemas/parity.json": _PUBLIC,
    "GET /api/v1/workers": _READ,
    "POST /api/v1/evaluations": _READ,
    # Jobs.
    "GET /api/v1/jobs": _READ,
    "POST /api/v1/jobs": _SUBMIT,
    "POST /api/v1/jobs:gate": _SUBMIT,
    "POST /api/v1/jobs:plan": _READ,
    "GET /api/v1/jobs:compare": _READ,
    "GET /api/v1/trend": _READ,
    "GET /api/v1/trend.csv": _READ,
    "GET /api/v1/jobs/{job_id}": _READ,
    "GET /api/v1/jobs/{job_id}/gate": _SUBMIT,
    "POST /api/v1/jobs/{job_id}:again": _SUBMIT,
    "POST /api/v1/jobs/{job_id}:add-run": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:cancel": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:conclude": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:rejudge": _READ,
    "GET /api/v1/jobs/{job_id}/runs": _READ,
    "GET /api/v1/jobs/{job_id}/events": _READ,
    "GET /api/v1/jobs/{job_id}/verdict": _READ,
    "GET /api/v1/jobs/{job_id}/verdict.svg": _READ,
    "GET /api/v1/jobs/{job_id}/evidence.zip": _READ,
    "GET /api/v1/jobs/{job_id}/gap": _READ,
    "GET /api/v1/jobs/{job_id}/gaps": _READ,
    "GET /api/v1/jobs/{job_id}/columns": _READ,
    "GET /api/v1/jobs/{job_id}/live": _READ,
    "GET /api/v1/jobs/{job_id}/overlay": _READ,
    # What people add to a job.
    "GET /api/v1/jobs/{job_id}/remarks": _READ,
    "PUT /api/v1/jobs/{job_id}/tags": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}/notes": _NOTE,
    "POST /api/v1/jobs/{job_id}/statements": _OWN_JOB,
    "POST /api/v1/jobs/{job_id}:new-question": _ADMIN,
    "POST /api/v1/jobs/{job_id}/sign-offs": _APPROVE_ANOTHERS,
    "POST /api/v1/jobs/{job_id}/sign-offs/{sign_off_id}:revoke": _APPROVE,
    "GET /api/v1/badges/{named}.json": _READ,
    # Runs.
    "GET /api/v1/runs/{run_id}": Rule(scopes=("view", "worker"), trainer="live"),
    "POST /api/v1/runs": _SUBMIT,
    "POST /api/v1/runs/{run_id}:attach": _ATTACH,
    "POST /api/v1/runs/{run_id}/steps": _WRITE_RUN,
    "POST /api/v1/runs/{run_id}:finish": _WRITE_RUN,
    "GET /api/v1/runs/{run_id}/steps": _READ,
    "GET /api/v1/runs/{run_id}/metrics": _READ,
    "GET /api/v1/runs/{run_id}/layers": _READ,
    "GET /api/v1/runs/{run_id}/log": _READ,
    "GET /api/v1/runs/{run_id}/artifacts/{attempt}/{name}": _READ,
    # What a team shares: baselines and noise tables. Each change keeps who made it and why.
    "GET /api/v1/baselines": _READ,
    "POST /api/v1/baselines": _OWN_NAME,
    "GET /api/v1/baselines/{name}": _READ,
    "GET /api/v1/baselines/{name}/versions/{version}": _READ,
    "GET /api/v1/baselines/{name}/versions/{version}/diff": _READ,
    "POST /api/v1/baselines/{name}/versions/{version}/controls": _OWN_NAME,
    "POST /api/v1/baselines/{name}/versions/{version}:expire": _OWN_NAME,
    "GET /api/v1/noise-tables": _READ,
    "POST /api/v1/noise-tables": _IMPORT,
    # Tokens.
    "GET /api/v1/tokens": _ADMIN,
    "POST /api/v1/tokens": _ADMIN,
    "POST /api/v1/tokens/{token_id}:rotate": _ADMIN,
    "POST /api/v1/tokens/{token_id}:revoke": _ADMIN,
    **{
        operation: {"read": _READ, "submit": _SUBMIT}[name]
        for operation, name in lab().rules.items()
    },
}


def operations(openapi: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The operations of an OpenAPI document, by `METHOD PATH`."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }


def check(routes: Sequence[BaseRoute | RouteContext]) -> None:
    """RuntimeError unless each operation of an application's routes has a rule and each rule an
    operation.
    """
    described = [
        each
        for each in iter_route_contexts(routes)
        if isinstance(each.original_route, APIRoute) and each.include_in_schema
    ]
    known = {f"{method} {each.path_format}" for each in described for method in each.methods or ()}
    if known != RULES.keys():
        without, unused = sorted(known - RULES.keys()), sorted(RULES.keys() - known)
        raise RuntimeError(
            f"server/web/auth.py must have one rule for each operation: {without} have none, "
            f"{unused} do not exist"
        )


def mark(openapi: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with `security` for the operations that need a token, and only for
    those.
    """
    for name, operation in operations(openapi).items():
        if RULES[name].is_public and isinstance(operation, dict):
            operation.pop("security", None)
    return openapi


# What the lab adds to the web application: routes, pages, and what a job's page says of it.


@frozen
class Additions:
    """What is added; nothing where the lab is taken away.

    `routes` are the routers of the API, `pages` those of pages. `about_job`: what the template of a
    job's page says of a job; None for nothing.
    """

    routes: Sequence[APIRouter] = ()
    pages: Sequence[APIRouter] = ()
    about_job: Callable[[Session, Job], Mapping[str, object] | None] = lambda _session, _job: None


def additions() -> Additions:
    """The additions of this installation."""
    web = lab().part("web")
    if web is None:
        return Additions()
    own: Additions = web.ADDITIONS
    return own


# Authentication and authorization: bearer tokens for programs, cookie sessions for browsers, run
# tokens for trainers.
#
# A token has the form `parity_<id>_<secret>` and belongs to a principal, which keeps its jobs when
# the token is rotated. Without tokens the server accepts requests on loopback only, where everyone
# who can connect is trusted. `server.web.auth` says who may do what.

COOKIE = "parity_session"
SESSION_SECONDS = 12 * 3600.0
# Only for OpenAPI, to mark the routes that need a token; `principal` reads the header itself.
Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="`parity_<id>_<secret>`")),
]
# Writing the time of the last use on every request would make each read a write.
_LAST_USE_SECONDS = 60.0
# For how long a rotated token stays valid next to the new one.
OVERLAP_HOURS, LONGEST_OVERLAP_HOURS = 24.0, 24.0 * 90
_MOST_DAYS = 3650.0


@frozen
class Principal:
    """A sender with scopes; `admin` includes all others, `submit` and `approve` include `view`. A
    trainer with a run token has none.

    `repository` is the one whose gates its token asks.
    """

    id: str
    name: str
    scopes: frozenset[str]
    run: RunToken | None = None
    repository: str | None = None

    def may(self, scope: Scope) -> bool:
        """Whether this principal has the scope, directly or through a wider one."""
        return (
            scope in self.scopes
            or "admin" in self.scopes
            or (scope == "view" and not self.scopes.isdisjoint(("submit", "approve")))
        )


NOBODY = Principal(id="", name="nobody", scopes=frozenset())
LOCAL = Principal(id=tables.LOCAL_ID, name=tables.LOCAL_NAME, scopes=frozenset(SCOPES))


def tokens_required(settings: Settings) -> bool:
    """Whether a request needs a token: always, except on a loopback address without
    `require_tokens`.
    """
    return settings.require_tokens or not is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # a dual-stack socket reports ::ffff:127.0.0.1
    inside = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (inside or address).is_loopback


def create_token(
    session: Session,
    name: str,
    scopes: Iterable[str],
    days: float | None,
    max_running: int | None = None,
    principal_id: str | None = None,
    repository: str | None = None,
) -> tuple[Token, str]:
    """A new token and its text, which cannot be retrieved again.

    `max_running` limits how many runs of its jobs train at once. `principal_id`: a further token of
    that principal, for its jobs; by default the token is a principal of its own. `repository`: its
    gates have the rules that the operator pinned for this one.
    """
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise InvalidError(f"scopes are {wanted}, expected some of {', '.join(SCOPES)}")
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise InvalidError(f"name is {name!r:.40}, expected 1 to 100 printable characters")
    if repository is not None and not (1 <= len(repository) <= 200 and repository.isprintable()):
        raise InvalidError(
            f"repository is {repository!r:.40}, expected 1 to 200 printable characters, such as "
            "team/model"
        )
    if days is not None and not 0 < days <= _MOST_DAYS:
        raise InvalidError(f"days is {days:g}, expected more than 0 and at most {_MOST_DAYS:g}")
    if max_running is not None and not 1 <= max_running <= 10_000:
        raise InvalidError(
            f"max_running is {max_running}, expected a whole number from 1 to 10000; leave it out "
            "for no limit"
        )
    of_principal = select(Token.id).where(Token.id == principal_id, Token.principal == principal_id)
    if principal_id is not None and session.scalar(of_principal) is None:
        raise InvalidError(
            f"principal is {principal_id!r:.80}; expected an id that `python -m server.tokens "
            "list` prints"
        )
    if principal_id is not None and max_running is not None:
        raise InvalidError(
            f"max_running is {max_running}, but it counts for all tokens of principal "
            f"{principal_id}; leave it out here"
        )
    now, secret, token_id = time.time(), hashed_secrets.new_secret(), tables.new_id("t")
    token = Token(
        id=token_id,
        principal=principal_id or token_id,
        name=name,
        digest=hashed_secrets.digest(secret),
        scopes=wanted,
        max_running=max_running,
        repository=repository,
        created_at=now,
        expires_at=None if days is None else now + 86_400 * days,
    )
    session.add(token)
    return token, f"parity_{token.id}_{secret}"


def rotate_token(
    session: Session, token_id: str, overlap_hours: float, days: float | None = None
) -> tuple[Token, str]:
    """A new token with another secret for the same principal, and its text; the old one is valid
    for the overlap, 0: it ends at once.

    The new one lives as long as the old one was made for, or `days`.
    """
    if not 0 <= overlap_hours <= LONGEST_OVERLAP_HOURS:
        raise InvalidError(
            f"overlap_hours is {overlap_hours:g}, expected 0 to {LONGEST_OVERLAP_HOURS:g}"
        )
    old, now = _find(session, token_id, lock=True), time.time()
    if not is_live(old):
        raise ConflictError(
            f"token {token_id} is revoked or has expired, so it cannot be rotated; create one with "
            f"principal {old.principal}"
        )
    same = (
        Token.principal == old.principal,
        Token.name == old.name,
        Token.created_at > old.created_at,
        Token.revoked_at.is_(None),
    )
    if newer := session.scalar(select(Token.id).where(*same).order_by(Token.created_at.desc())):
        raise ConflictError(
            f"token {token_id} was rotated to {newer} already; rotate that one, or revoke it first"
        )
    lifetime = None
    if old.expires_at is not None:  # as a difference of times, 3650 days may be a hair more
        lifetime = min((old.expires_at - old.created_at) / 86_400, _MOST_DAYS)
    new, text = create_token(
        session,
        old.name,
        old.scopes,
        days or lifetime,
        principal_id=old.principal,
        repository=old.repository,
    )
    new.max_running = old.max_running
    if overlap_hours:
        old.expires_at = min(old.expires_at or math.inf, now + 3600 * overlap_hours)
    else:
        revoke_token(session, token_id)
    return new, text


def revoke_token(session: Session, token_id: str) -> Token:
    """Revoke a token and end the browser sessions that it opened; revoking twice changes
    nothing.
    """
    token = _find(session, token_id)
    token.revoked_at = token.revoked_at or time.time()
    session.execute(delete(BrowserSession).where(BrowserSession.token_id == token_id))
    return token


def authenticate(session: Session, text: str) -> Token | None:
    """The valid token with this text, or None."""
    kind, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    token = (
        session.get(Token, token_id) if kind == "parity" and tables.is_id("t", token_id) else None
    )
    right = hashed_secrets.matches(secret, token.digest if token else None)
    if token is not None and right and is_live(token):
        return token
    return None


def open_session(session: Session, token: Token) -> str:
    """Log a browser in; returns the value of its cookie."""
    now, cookie = time.time(), hashed_secrets.new_secret()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now))
    session.add(
        BrowserSession(
            digest=hashed_secrets.digest(cookie),
            token_id=token.id,
            expires_at=now + SESSION_SECONDS,
        )
    )
    return cookie


def close_session(session: Session, cookie: str) -> None:
    """Log a browser out."""
    session.execute(
        delete(BrowserSession).where(BrowserSession.digest == hashed_secrets.digest(cookie))
    )


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


async def in_thread(
    work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
) -> Result:
    """What a function returns that runs in a thread. BusyError if none was free in time; what has
    begun is never broken off.
    """
    with move_on_after(limits.THREAD_SECONDS):
        return await run_in_threadpool(work, *given, **named)
    raise BusyError(
        f"the request waited {limits.THREAD_SECONDS:g} s for its turn; retry in a few seconds"
    )


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
    if rule.of_no_gate and sender.repository is not None and not sender.may("approve"):
        raise ForbiddenError(
            f"token {sender.name!r} is for the gates of repository {sender.repository}, whose "
            "verdicts would rest on this; use a token "
            "without a repository (python -m server.tokens create), or one with scope approve"
        )
    if rule.of_owner and not sender.may("admin"):
        _check_owner(context, rule, sender, path)
    if rule.by_another and sender.id != tables.LOCAL_ID:  # without tokens there is nobody else
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
        return _of_cookie(session, cookie)


def _principal_of(sent: Token | RunToken) -> Principal:
    if isinstance(sent, RunToken):
        name = f"{sent.run_id}-{sent.attempt_number}"
        return Principal(id=name, name=name, scopes=frozenset(), run=sent)
    return Principal(
        id=sent.principal, name=sent.name, scopes=frozenset(sent.scopes), repository=sent.repository
    )


def _of_cookie(session: Session, cookie: str) -> Token | None:
    token = session.scalars(
        select(Token)
        .join(BrowserSession, BrowserSession.token_id == Token.id)
        .where(
            BrowserSession.digest == hashed_secrets.digest(cookie),
            BrowserSession.expires_at > time.time(),
        )
    ).first()
    if token is not None and is_live(token):
        return token
    return None


def is_live(token: Token) -> bool:
    """Whether a token is neither revoked nor expired."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > time.time())


def _find(session: Session, token_id: str, *, lock: bool = False) -> Token:
    if tables.is_id("t", token_id):
        token = session.get(Token, token_id, with_for_update=lock or None)
    else:
        token = None
    if token is None:
        raise NotFoundError(
            f"token {token_id!r} does not exist; `python -m server.tokens list` prints all"
        )
    return token
