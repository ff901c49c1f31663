"""/docs: the documentation that `make docs` built, and at /docs/api a page that tries the API. Both
need no token: they show no data.
"""

from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from server.pages.rendering import known_visitor, templates
from server.settings import Settings

# As everywhere (`server.web.middleware`), but the stylesheets of these pages contain their icons.
_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri "
    "'none'; form-action 'self'"
)

router = APIRouter(include_in_schema=False, dependencies=[Depends(known_visitor)])


class _Site(StaticFiles):
    """The files of the site; until it is built, one page that says how to build it. It may be built
    while the server runs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self._start = folder / "index.html"

    async def check_config(self) -> None:
        """The folder need not exist yet."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file of the site, its page about missing ones, or the page about `make docs`."""
        if not self._start.is_file():
            request = Request(scope)
            # a mounted application has no dependencies that would find out who asks
            await known_visitor(request, request.app.state.context)
            return templates.TemplateResponse(
                request, "docs_missing.html", status_code=200 if path == "." else 404
            )
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = _POLICY
        return response


def install_site(app: FastAPI, settings: Settings) -> None:
    """Add /docs; Swagger UI is served from the folder into which npm installed it."""
    app.mount(
        "/static/vendor/swagger-ui",
        StaticFiles(directory=settings.assets_dir / "swagger-ui-dist", check_dir=False),
    )
    app.include_router(router)
    app.mount("/docs", _Site(settings.docs_dir))


@router.get("/docs/api")
@router.get("/docs/api/")
def api_page(request: Request) -> Response:
    """Every operation of the API, to try with the visitor's own session or token."""
    return templates.TemplateResponse(
        request, "api.html", headers={"Content-Security-Policy": _POLICY}
    )
