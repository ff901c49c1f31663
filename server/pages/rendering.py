"""What all pages share: templates, and who may view them."""

from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from fastapi.templating import Jinja2Templates
from sqlalchemy.exc import OperationalError

from parity.report.facts import looks_words
from parity.report.forecast import COURSES, course
from parity.report.html.downloads import file_name
from parity.report.view import view_of, views_of
from parity.report.words import words
from server.errors import ForbiddenError, TooManyError, UnauthorizedError
from server.pages.formats import FILTERS
from server.web import threads
from server.web.access import authorization, principals
from server.web.access.principals import Principal
from server.web.context import Context, InContext

HERE = Path(__file__).parent
templates = Jinja2Templates(HERE / "templates")
templates.env.filters |= FILTERS
templates.env.globals |= {"view_of": view_of, "views_of": views_of}
templates.env.globals["words"] = words
templates.env.globals["file_name"] = file_name
templates.env.globals |= {"course": course, "courses": COURSES}
templates.env.globals["looks_words"] = looks_words


class LoginNeededError(Exception):
    """A visitor without a session, on a server that requires one."""


async def visitor(request: Request, context: InContext) -> None:
    """A principal with scope view; without a session, a redirect to the login."""
    try:
        asking = await threads.in_thread(authorization.principal, request, context)
    except UnauthorizedError as error:
        raise LoginNeededError from error
    if not asking.may("view"):
        raise LoginNeededError
    _welcome(request, context, asking)


async def known_visitor(request: Request, context: InContext) -> None:
    """Who opens a page that needs no session, where that is known: its header is then that of the
    other pages.
    """
    with suppress(UnauthorizedError, TooManyError, OperationalError):
        asking = await threads.in_thread(authorization.principal, request, context)
        _welcome(request, context, asking)


def _welcome(request: Request, context: Context, asking: Principal) -> None:
    request.state.visitor = asking
    request.state.can_log_out = principals.tokens_required(context.settings)


def pages_router() -> APIRouter:
    """A router of pages for everyone who may view them."""
    return APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])


def admin(request: Request) -> None:
    """A principal who may manage tokens; runs after `visitor`."""
    sender: Principal = request.state.visitor
    if not sender.may("admin"):
        raise ForbiddenError(
            f"token {sender.name!r} may not manage tokens, which requires scope admin; ask an admin"
        )
