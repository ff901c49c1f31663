"""The dashboard: adds all pages and their assets to the application.

Pages are rendered on the server and updated live by small ES modules; nothing is loaded from
another host.
"""

from fastapi import FastAPI, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from server.pages import (
    baselines,
    goldens,
    login,
    noise_tables,
    public_verdicts,
    tokens,
    workers,
)
from server.pages.documentation import install_site
from server.pages.es_modules import CHARTS
from server.pages.job import forms, page, parts
from server.pages.lists import jobs, matrix, trend
from server.pages.refusals import install_refusals
from server.pages.rendering import HERE, LoginNeededError, pages_router
from server.settings import Settings
from server.web.lab_additions import additions
from server.web.limits import BODY_BYTES

router = pages_router()


def install(app: FastAPI, settings: Settings) -> None:
    """Add the pages and their assets; the chart library is served from the folder into which npm
    installed it.
    """
    app.mount(
        "/static/vendor/uplot",
        StaticFiles(directory=settings.assets_dir / "uplot" / "dist", check_dir=False),
    )
    install_site(app, settings)
    app.mount("/static", StaticFiles(directory=HERE / "static", packages=[CHARTS]))
    routers = (
        router,
        page.router,
        parts.router,
        workers.router,
        login.router,
        jobs.router,
        matrix.router,
        trend.router,
        forms.router,
        baselines.router,
        goldens.router,
        noise_tables.router,
        public_verdicts.public,
        tokens.router,
    )
    for pages in (*routers, *additions().pages):
        app.include_router(pages, max_body_size=min(BODY_BYTES, settings.max_body_bytes))
    install_refusals(app)
    app.add_exception_handler(LoginNeededError, login.redirect_to_login)


@router.get("/")
def home() -> Response:
    """The list of jobs is the home page."""
    return RedirectResponse("/jobs")
