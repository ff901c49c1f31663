"""The page of a job, and the page of all its candidates side by side."""

import secrets
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from parity.wording import count
from server.database.lookups import find_job
from server.database.metrics import store
from server.documents.jobs import job_document
from server.jobs import added_runs, forecasts, statements
from server.jobs.cost import price_of
from server.jobs.evaluations import check_has_runs
from server.jobs.job_kinds import kind_of
from server.jobs.proposal import proposal
from server.pages.es_modules import CHARTS, imported_by
from server.pages.job import forms
from server.pages.job.arm_differences import compare, compared_by_plan
from server.pages.job.buttons import Actions, buttons_of
from server.pages.job.candidate_table import candidate_table
from server.pages.job.evaluation_page import evaluation_page
from server.pages.job.first_screen import (
    first_screen,
    live_curves,
    verdict_dots,
    verdict_losses,
)
from server.pages.job.pairs import pair_table
from server.pages.job.parts import part_address, runs_values
from server.pages.rendering import HERE, pages_router, templates
from server.web.context import InContext
from server.web.lab_additions import additions

router = pages_router()
JOB_MODULES = imported_by("job.js", HERE / "static", Path(str(files(CHARTS[0]))) / CHARTS[1])


@router.get("/jobs/{job_id}/compare")
def compare_candidates(
    job_id: str,
    request: Request,
    context: InContext,
    first: Annotated[str, Query(max_length=100)] = "",
    second: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """All candidates of a job against its baseline, side by side, and every two of them against
    each other; `first` and `second` are the two that are shown in full.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "table of runs side by side")
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
    table = candidate_table(document)
    judged = [row.arm.name for row in table.rows if row.verdict]
    values = {
        "job": document,
        "table": table,
        "pairs": pair_table(document.verdicts, judged, first, second),
    }
    return templates.TemplateResponse(request, "compare.html", values)


@router.get("/jobs/{job_id}")
def show(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """One job: the answer with its picture, then the details; `candidate` is the one that the
    picture highlights.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        kind = kind_of(job)
        if kind is not None:
            return RedirectResponse(kind.page(session, job), 303)
        is_of_runs = not job.has_evaluations
    if not is_of_runs:
        return evaluation_page(request, context, job_id, candidate)
    with context.database.read() as session:
        job = find_job(session, job_id)
        added = additions().about_job(session, job)
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
        recorded = store.names_by_kind(session, [run.id for run in job.runs])
        unstated, compared = statements.unstated(job), compared_by_plan(job)
        drawn = (
            verdict_dots(context.cache, session, job)
            if document.verdicts
            else live_curves(context.cache, session, job)
        )
        losses = (
            verdict_losses(context.cache, session, job, document.verdicts)
            if document.verdicts
            else ()
        )
        forecast_count = forecasts.how_many(job)
        proposed, added_means, run_count = proposal(job), added_runs.meaning(job), len(job.runs)
    remarks = forms.values(request, context, document)
    may = remarks["may"]
    actions = Actions(
        key=secrets.token_hex(16),
        runs=run_count,
        add_run=added_means if may["add_run"] else "",
        proposal=proposed if may["again"] else None,
        acceptable=remarks["acceptable"] if may["sign_off"] else (),
    )
    buttons = buttons_of(document, actions)
    signed = list(remarks["accepted"].values())
    values = {
        "job": document,
        "lab": added,
        "unstated": unstated,
        "modules": JOB_MODULES,
        "screen": first_screen(document, drawn, candidate, signed, buttons, losses),
        "table": candidate_table(document, candidate),
        "part_of": partial(part_address, document.id),
        "forecasts": forecast_count,
        "verdicts": {
            verdict["candidate"]["name"]: verdict["verdict"] for verdict in document.verdicts
        },
        "forecast_count": count(forecast_count, "forecast"),
        "there": {kind: set(names) for kind, names in recorded.items()},
        **runs_values(document),
        "pairs": list(
            dict.fromkeys((run.seed, run.replicate) for arm in document.arms for run in arm.runs)
        ),
        "ground": compare(document.arms, document.policy.get("may_differ", ()), compared),
        **remarks,
        "requested_arms": [document.spec["baseline"], *document.spec["candidates"]],
    }
    return templates.TemplateResponse(request, "job.html", values)
