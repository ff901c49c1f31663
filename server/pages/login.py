"""Login and logout: a token is exchanged for a session."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from server.pages.rendering import known_visitor, templates
from server.web.access import api_tokens, browser_sessions
from server.web.context import InContext

router = APIRouter(include_in_schema=False)


@router.get("/login", dependencies=[Depends(known_visitor)])
def login_form(
    request: Request, following: Annotated[str, Query(alias="next")] = "/jobs"
) -> Response:
    """The login form."""
    return templates.TemplateResponse(
        request, "login.html", {"following": following, "wrong": False}
    )


@router.post("/login")
def login(
    request: Request,
    context: InContext,
    token: Annotated[str, Form()],
    following: Annotated[str, Form()] = "/jobs",
) -> Response:
    """Exchange a token for a session that lasts twelve hours; the token itself is not stored."""
    with context.database.read() as session:  # nobody without a token may ask for SQLite's one lock
        is_valid = api_tokens.authenticate(session, token.strip()) is not None
    cookie = None
    if is_valid:
        with context.database.write() as session:
            # it may have been revoked in between
            row = api_tokens.authenticate(session, token.strip())
            cookie = browser_sessions.open_session(session, row) if row else None
    if cookie is None:
        return templates.TemplateResponse(
            request, "login.html", {"following": following, "wrong": True}, status_code=401
        )
    # Only a path of this site; `//elsewhere` and `https://elsewhere` lead to other sites.
    if following.startswith("/") and not following.startswith(("//", "/\\")):
        inside = following
    else:
        inside = "/jobs"
    answer = RedirectResponse(inside, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(
        browser_sessions.COOKIE,
        cookie,
        max_age=int(browser_sessions.SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=secure,
    )
    return answer


@router.post("/logout")
def logout(request: Request, context: InContext) -> Response:
    """End the session."""
    cookie = request.cookies.get(browser_sessions.COOKIE)
    if cookie:
        with context.database.write() as session:
            browser_sessions.close_session(session, cookie)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(browser_sessions.COOKIE)
    return answer


def redirect_to_login(request: Request, _: Exception) -> Response:
    """A redirect to the login, which leads back to the requested page with its query."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/login?next={quote(request.url.path + query)}", 303)
