"""Tokens over REST, for admins: create, list, rotate, revoke."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy import select

from parity.frozen import frozen
from server.database.tables import Token
from server.records import Body, from_attributes
from server.web.access import api_tokens
from server.web.access.rules import SCOPES, Scope
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["tokens"], route_class=BodyRoute)


@frozen
class TokenRequest(Body):
    """A new token; without `days` it does not expire, without `max_running` its runs may use every
    slot.

    `principal`: a further token for the jobs of that principal, such as one of scope `worker` for
    its trainers; default: a new principal. `repository`: gates with this token have the rules that
    the operator pinned for it.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))]
    days: Annotated[float | None, Field(gt=0, le=3650)] = None
    max_running: Annotated[int, Field(ge=1, le=10_000)] | None = None
    principal: Annotated[str, Field(max_length=100)] | None = None
    repository: Annotated[str, Field(min_length=1, max_length=200)] | None = None


@frozen
class RotateRequest(Body):
    """How long the old token stays valid next to the new one (0: it ends at once), and the days
    that the new one lasts.

    Without `days` the new one lasts as long as the old one was made for.
    """

    overlap_hours: Annotated[float, Field(ge=0, le=api_tokens.LONGEST_OVERLAP_HOURS)] = (
        api_tokens.OVERLAP_HOURS
    )
    days: Annotated[float | None, Field(gt=0, le=3650)] = None


@frozen
class TokenDocument:
    """A token without its secret. `principal` is whose it is: tokens of one principal share its
    jobs.
    """

    id: str
    principal: str
    name: str
    scopes: list[str]
    max_running: int | None
    repository: str | None
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


@frozen
class NewToken:
    """A token with its text, which is returned only once."""

    token: str
    about: TokenDocument


@router.post("/tokens", status_code=201)
def create(request: StrictBody[TokenRequest], response: Response, context: InContext) -> NewToken:
    """Create a token. Its text cannot be retrieved again."""
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        properties = (
            request.name,
            request.scopes,
            request.days,
            request.max_running,
            request.principal,
            request.repository,
        )
        row, text = api_tokens.create_token(session, *properties)
        return NewToken(token=text, about=from_attributes(TokenDocument, row))


@router.get("/tokens")
def index(context: InContext) -> list[TokenDocument]:
    """Every token, newest first, including revoked ones."""
    with context.database.read() as session:
        return [
            from_attributes(TokenDocument, row)
            for row in session.scalars(select(Token).order_by(Token.id.desc()))
        ]


@router.post("/tokens/{token_id}:rotate", status_code=201)
def rotate(
    token_id: str, request: StrictBody[RotateRequest], response: Response, context: InContext
) -> NewToken:
    """Replace a token by a new one of the same principal, name and scopes; the old one is valid
    until the overlap ends.
    """
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        row, text = api_tokens.rotate_token(session, token_id, request.overlap_hours, request.days)
        return NewToken(token=text, about=from_attributes(TokenDocument, row))


@router.post("/tokens/{token_id}:revoke")
def revoke(token_id: str, context: InContext) -> TokenDocument:
    """Revoke a token and end the browser sessions that it opened."""
    with context.database.write() as session:
        return from_attributes(TokenDocument, api_tokens.revoke_token(session, token_id))
