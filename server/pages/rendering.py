"""Shared by all pages: templates, and who may view them."""

from __future__ import annotations

from pathlib import Path

from fastapi import Request
from fastapi.templating import Jinja2Templates

from parity.report.facts import looks_words
from parity.report.headline import headline
from server.errors import ForbiddenError, UnauthorizedError
from server.pages import filters
from server.web import auth
from server.web.auth import Principal
from server.web.context import InContext

HERE = Path(__file__).parent
templates = Jinja2Templates(HERE / "templates")
templates.env.filters |= filters.FILTERS
templates.env.globals["headline"] = headline
templates.env.globals["looks_words"] = looks_words


class LoginNeededError(Exception):
    """A visitor without a session, on a server that requires one."""


def visitor(request: Request, context: InContext) -> None:
    """A principal with scope view; without a session, a redirect to the login."""
    try:
        asking = auth.principal(request, context)
    except UnauthorizedError as error:
        raise LoginNeededError from error
    if not asking.may("view"):
        raise LoginNeededError
    request.state.visitor = asking
    request.state.can_log_out = auth.tokens_required(context.settings)


def admin(request: Request) -> None:
    """A principal who may manage tokens; runs after `visitor`."""
    sender: Principal = request.state.visitor
    if not sender.may("admin"):
        raise ForbiddenError(f"token {sender.name!r} may not manage tokens, which requires scope admin; ask an admin")
