"""Errors as pages: a browser shows the API's sentence instead of its JSON."""

import json
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI, Request, Response

from server.pages.rendering import known_visitor, templates
from server.web.problems import HANDLED

Handler = Callable[[Request, Exception], Awaitable[Response]]


def install_refusals(app: FastAPI) -> None:
    """Make errors outside the API pages for browsers; call it after the handlers of `problems` are
    installed.
    """
    for kind in HANDLED:
        # Starlette's type allows plain functions and WebSockets, too; those of `problems` are async
        app.add_exception_handler(kind, _page_handler(cast(Handler, app.exception_handlers[kind])))


def _page_handler(handler: Handler) -> Handler:
    async def answer(request: Request, error: Exception) -> Response:
        problem = await handler(request, error)
        if request.url.path.startswith("/api/") or "text/html" not in request.headers.get(
            "Accept", ""
        ):
            return problem
        document = json.loads(bytes(problem.body))
        if problem.status_code == 404:  # a path of no page has not asked who visits
            await known_visitor(request, request.app.state.context)
        headers = {
            name: value
            for name, value in problem.headers.items()
            if name in ("allow", "retry-after")
        }
        return templates.TemplateResponse(
            request, "refused.html", {"problem": document}, problem.status_code, headers
        )

    return answer
