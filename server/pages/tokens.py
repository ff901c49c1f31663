"""The token page, for admins: create, list, revoke. The text of a new token is shown once and never
stored.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select

from server.database.clock import time_text
from server.database.tables import Token
from server.errors import InvalidError, NotFoundError
from server.pages.form_fields import parsed_number
from server.pages.rendering import admin, templates, visitor
from server.web.access import api_tokens, principals
from server.web.access.rules import SCOPES
from server.web.context import Context, InContext
from server.web.requests.texts import FormText

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor), Depends(admin)])


@router.get("/tokens")
def index(request: Request, context: InContext) -> Response:
    """Every token, and a form for a new one."""
    return _page(request, context)


@router.post("/tokens")
def create(
    request: Request,
    context: InContext,
    name: FormText = "",
    scopes: Annotated[list[str] | None, Form()] = None,
    days: FormText = "",
    max_running: FormText = "",
) -> Response:
    """Create a token and show its text."""
    try:
        with context.database.write() as session:
            length, at_once = (
                parsed_number("days", days, float, "a number"),
                parsed_number("runs at once", max_running, int, "a whole number"),
            )
            _, text = api_tokens.create_token(session, name.strip(), scopes or [], length, at_once)
    except InvalidError as error:
        return _page(request, context, error=str(error), status=422)
    answer = _page(request, context, made=(name.strip(), text), status=201)
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/tokens/{token_id}/revoke")
def revoke_token(
    token_id: str, request: Request, context: InContext, confirm: FormText = ""
) -> Response:
    """Revoke a token if its name was typed as confirmation."""
    try:
        with context.database.write() as session:
            token = session.get(Token, token_id)
            if token is None or token.name != confirm.strip():
                raise InvalidError(
                    "the token was not revoked, because the typed name is "
                    f"{confirm.strip()!r:.100}; type the token's own name"
                )
            api_tokens.revoke_token(session, token_id)
    except (InvalidError, NotFoundError) as error:
        return _page(request, context, error=str(error), status=422)
    return RedirectResponse("/tokens", 303)


def _page(
    request: Request,
    context: Context,
    *,
    made: tuple[str, str] | None = None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    with context.database.read() as session:
        rows = session.scalars(select(Token).order_by(Token.id.desc())).all()
    values = {
        "tokens": rows,
        "scopes": SCOPES,
        "made": made,
        "error": error,
        "required": principals.tokens_required(context.settings),
        "time_text": time_text,
    }
    return templates.TemplateResponse(request, "tokens.html", values, status_code=status)
