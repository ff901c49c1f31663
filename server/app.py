"""The web application: routes, pages, one error format, and the middleware around them."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from parity.version import VERSION
from server import logs
from server.api import (
    badges,
    baselines,
    evaluations,
    events,
    gate,
    goldens,
    images,
    jobs,
    matrix,
    noise_tables,
    push_evaluations,
    remarks,
    run_logs,
    runs,
    submit,
    trend,
)
from server.api.curves import forecast, gap, layers, overlay, run_curves
from server.api.service import health, job_schema, metrics, tokens, workers
from server.concurrency.repeating import Repeating
from server.database.sessions import Database
from server.jobs.judge_thread import Judge
from server.jobs.listening import Listener
from server.jobs.pinned_gates import RulesError, read_rules
from server.pages import dashboard
from server.process_settings import USAGE, settings_or_exit
from server.queue import WorkerNotifier, broker
from server.readiness import Readiness
from server.settings import Settings
from server.web import problems
from server.web.access import authorization, rules
from server.web.broadcast import Broadcast
from server.web.context import Context
from server.web.lab_additions import additions
from server.web.limits import BODY_BYTES, THREADS
from server.web.middleware import Guard
from server.web.rate_limit import Limiter
from server.web.requests.query import check_query
from server.webhooks import Deliverer


def context_of(settings: Settings) -> Context:
    """The parts of the service that `app.state.context` holds while the application runs."""
    database = Database(settings.database, settings.database_connections)
    return Context(
        settings=settings,
        database=database,
        judge=Judge(database),
        notifier=WorkerNotifier(broker(settings)),
        broadcast=Broadcast(database),
        limiter=Limiter(settings.redis, settings.requests_per_minute),
        readiness=Readiness(settings, database),
    )


def gate_rules_or_exit(path: Path | None) -> None:
    """End the process with status 2 and one line unless the operator's file of gate rules can be
    read: otherwise every gate would be refused, and nobody but those who ask would see why.
    """
    try:
        if path is not None:
            read_rules(path)
    except RulesError as error:
        print(f"refused: PARITY_GATE_RULES: {error}", file=sys.stderr)
        sys.exit(USAGE)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    threads: tuple[Repeating | Judge, ...] = (
        context.broadcast,
        Deliverer(context.settings, context.database),
        context.judge,
        Listener(context.database, context.settings.external_stale_seconds),
    )
    current_default_thread_limiter().total_tokens = THREADS
    for thread in threads:
        thread.start()
    yield
    for thread in reversed(threads):
        thread.close()
    context.database.close()


def _described(build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The description of the API, made when it is first asked for: it takes half a second, which
    nobody waits for at the start.
    """
    return problems.describe(rules.mark(build()))


def create_app(settings: Settings) -> FastAPI:
    """The service on a database that is already migrated."""
    app = FastAPI(
        title="parity",
        summary="Convergence-parity validation for low-precision LLM training",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.context = context_of(settings)
    problems.install(app)
    about_jobs = (
        submit.router,
        jobs.router,
        gate.router,
        matrix.router,
        trend.router,
        remarks.router,
        *additions().routes,
        forecast.router,
        events.router,
    )
    about_curves = (run_curves.router, layers.router, overlay.router, gap.router)
    curve_body_routers = (
        runs.router,
        run_logs.router,
        evaluations.router,
        goldens.router,
        push_evaluations.router,
        noise_tables.router,
    )
    about_service = (
        health.router,
        workers.router,
        job_schema.router,
        images.router,
        badges.router,
        metrics.router,
        tokens.router,
    )
    for router in (
        *about_jobs,
        baselines.router,
        *about_curves,
        *curve_body_routers,
        *about_service,
    ):
        app.include_router(
            router,
            dependencies=[Depends(authorization.authorize), Depends(check_query)],
            max_body_size=settings.max_body_bytes
            if router in curve_body_routers
            else min(BODY_BYTES, settings.max_body_bytes),
            responses=problems.responses(400, 401, 403, 404, 409, 413, 422, 429, 503),
        )
    dashboard.install(app, settings)
    rules.check(app.routes)
    app.openapi = cache(partial(_described, app.openapi))  # type: ignore[method-assign]
    # Compressing a chart's response takes 1 ms at level 1, 8 ms at level 5 and 50 ms at the
    # default, which is only a tenth smaller.
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)
    app.add_middleware(Guard)
    return app


def from_environment() -> FastAPI:
    """The application with settings from the environment, as `uvicorn --factory
    server.app:from_environment` serves it.
    """
    settings = settings_or_exit()
    gate_rules_or_exit(settings.gate_rules)
    logs.configure(settings.log, aside=True)
    return create_app(settings)
