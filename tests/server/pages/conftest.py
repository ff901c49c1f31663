"""A real browser on a real server. Where no Chromium is installed, exactly these tests are skipped,
and said so once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from parity.golden.check import RunFacts
from parity.golden.update import Request
from parity.judging.policy import policy_from_mapping
from parity_lab.server.analyses import WhyRequest, submit_analysis
from parity_lab.server.healings import HealRequest, submit_healing
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job
from server.jobs import baselines, goldens
from server.jobs.conclude import conclude, decide, write_outcome
from server.jobs.goldens import Asked
from server.jobs.submit import submit_job
from server.web.access import api_tokens
from tests.parity.golden.curves import GOLDEN, HONEST, curve
from tests.server.analyses import make_explained, make_retired, measured
from tests.server.healings import HEALED_GAPS, make_failed, train_forks
from tests.server.held_out import make_evaluations
from training.spec import ArmSpec, JobSpec

expect.set_options(timeout=60_000)  # ms: what a page shows in the end, however slow the machine is
# The headless shell takes half of the time that the whole browser takes for the same pages.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
_LOOKS = {"light": ("light", 1440), "dark": ("dark", 1440), "narrow": ("light", 390)}
# The addresses to be tried, for each route of a page. Of the jobs, `{job}` has ended, `{many}` too,
# with twelve candidates, `{live}` still trains, `{failed}` ended without a step, `{why}` is an
# analysis with an answer, and `{begun}` one that has begun, as are `{heal}` and `{healing}` of
# healings; `{retired}` measured for a question that this version does not ask; `{held_out}` has
# held-out losses of two candidates.
PAGES = {
    "/jobs": ["/jobs", "/jobs?state=awaiting_data"],
    "/compare": ["/compare", "/compare?job={job}&job={live}&job={held_out}"],
    "/trend": ["/trend", "/trend?gate=small", "/trend?gate=unknown"],
    "/jobs/{job_id}": [
        "/jobs/{job}",
        "/jobs/{job}?from=300&to=900&x=time&candidate=nvfp4&column=train.tokens&order=gap",
        "/jobs/{many}",
        "/jobs/{live}",
        "/jobs/{failed}",
        "/jobs/{retired}",
        "/jobs/{held_out}",
        "/jobs/{held_out}?candidate=fp8",
    ],
    "/jobs/{job_id}/compare": ["/jobs/{job}/compare", "/jobs/{many}/compare"],
    "/jobs/{job_id}/parts/{part}": [
        "/jobs/{many}/parts/reasons?candidate=c05",
        "/jobs/{many}/parts/runs",
        "/jobs/{live}/parts/forecasts",
    ],
    "/jobs/{job_id}/why": ["/jobs/{why}/why", "/jobs/{begun}/why"],
    "/jobs/{job_id}/heal": ["/jobs/{heal}/heal", "/jobs/{healing}/heal"],
    "/jobs/{job_id}/why/ablations": ["/jobs/{many}/why/ablations"],
    "/baselines": ["/baselines"],
    "/baselines/{name}/{version}": ["/baselines/fp8/1?other={job}"],
    "/goldens/{golden}": ["/goldens/llama"],
    "/noise-tables": ["/noise-tables", "/noise-tables?family=any-decoder"],
    "/public": ["/public", "/public?recipe=NVFP4&scale=below+1+B"],
    "/public/{name}": ["/public/gb200-continued"],
    "/workers": ["/workers"],
    "/tokens": ["/tokens"],
    "/login": ["/login"],
}
REFUSED = ["/nowhere", "/jobs/j-none", "/baselines/fp8/last", "/goldens/nobody"]
# Elements that are animated, change gradually or scroll smoothly.
MOVING = """[...document.querySelectorAll("*")].filter((element) => {
  const style = getComputedStyle(element);
  const lasts = style.transitionDuration.split(",").some((time) => parseFloat(time) > 0);
  return lasts || style.animationName !== "none" || style.scrollBehavior === "smooth";
}).map((element) => element.outerHTML.slice(0, 120))"""
# The details of a job's page stand open, and its charts are near, so that tests reach them;
# test_verdict_page.py has them closed.
OPEN = """addEventListener("DOMContentLoaded", () => {
  for (const details of document.querySelectorAll(".verdict-page .more > details")) details.open = true;
  document.getElementById("curves")?.scrollIntoView();
})"""  # noqa: E501
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium is installed: see the README's test section for the line that installs it"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield started
        started.close()


@pytest.fixture
def many_judged(owner_database, make_job) -> str:
    """A concluded job with twelve candidates of one run each, c00 to c11, each 0.004 nats worse
    than the one before.
    """
    return judged_candidates(owner_database, make_job, 12)


def judged_candidates(database: Database, make_job: Callable[..., JobSpec], candidates: int) -> str:
    """A concluded job with so many candidates."""
    arms = tuple(ArmSpec(recipe="nvfp4", name=f"c{i:02d}") for i in range(candidates))
    spec = make_job(400, candidates=arms)
    generator, at = np.random.default_rng(7), np.arange(400)
    batch = generator.normal(0, 0.05, len(at))
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1.0%"}))
        for run in job.runs:
            loss = (
                1.4
                + np.exp(-at / 40)
                + batch
                + 0.004 * run.arm.position
                + generator.normal(0, 0.005, len(at))
            )
            store.append(
                session,
                run.id,
                "train",
                1,
                at,
                {"lm_loss": loss, "grad_norm": 0.7 + 0.1 * np.sin(at)},
            )
            run.state, run.attempt_number, run.steps_done = "finished", 1, len(at)
            run.manifest = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}
        job_id = job.id
    conclude(database, job_id)
    return job_id


@pytest.fixture
def job_id(database, recorded):
    """A job with a fail, a pass, watched layers and a token beside it."""
    made = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    at = np.arange(0, 1500, 50)
    with database.write() as session:
        api_tokens.create_token(session, "ada", ["submit"], 90)
        baselines.promote(session, "fp8", made, None, "a release", "local", 90)
        for reason, loss in (("a release", GOLDEN), ("image 26.06", HONEST)):
            asked = Asked(facts=RunFacts(recipe="bf16"))
            request = Request(reason=reason, date="2026-11-29")
            run = curve(loss, label="run.csv")
            goldens.take(session, "llama", run, asked, request, "local", overrules=True)
        run = session.get_one(Job, made).arms[1].runs[0]
        store.append(
            session,
            run.id,
            "layers",
            1,
            at,
            {f"{block}.up/x/underflow_share": at / 1500 + block for block in range(4)},
        )
    with database.read() as session:
        outcome = decide(session, made)
    with database.write() as session:
        write_outcome(session, made, outcome)
    return made


@pytest.fixture
def others(database, recorded, many_judged):
    """A job that trains, one that failed before its first step, one with twelve candidates, two
    analyses and two healings: one with an answer, and one that has begun; one of a question of the
    past, and one of held-out losses.
    """
    live, failed = (
        recorded({"nvfp4": 0.0}, done=300, state="running"),
        recorded({"nvfp4": 0.0}, done=0, state="failed"),
    )
    with database.write() as session:
        session.get_one(Job, live).finished_at = None
        job = session.get_one(Job, failed)
        job.status, job.code, job.message = "failed", "CRASHED", "the trainer crashed"
    explained = make_explained(database)
    analyses = []
    for question in (WhyRequest(), WhyRequest(against="bf16")):
        with database.write() as session:
            analyses.append(submit_analysis(session, explained, question)[0].id)
    measured(database, analyses[0], {"0.down.wgrad": 0.02})
    measured(database, analyses[1], {"0.down.wgrad": 0.02}, most=10)
    conclude(database, analyses[0])
    unhealed = make_failed(database)
    healings = []
    for recipe in ("bf16", "fp8_current"):
        with database.write() as session:
            healings.append(submit_healing(session, unhealed, HealRequest(to=recipe))[0].id)
    while train_forks(database, healings[0], HEALED_GAPS):
        conclude(database, healings[0])
    return {
        "held_out": make_evaluations(database, {"fp8": 0.0, "nvfp4": 0.06}),
        "retired": make_retired(database, explained),
        "live": live,
        "failed": failed,
        "many": many_judged,
        "why": analyses[0],
        "begun": analyses[1],
        "heal": healings[0],
        "healing": healings[1],
    }


@pytest.fixture
def addresses(job_id, others) -> list[str]:
    """Every page in every state, and pages of refusals."""
    return [
        path.format(job=job_id, **others) for paths in PAGES.values() for path in paths
    ] + REFUSED


def _is_problem(message: ConsoleMessage, provoked: str) -> bool:
    """An error or warning, except for those that a module's tests make up."""
    return message.type in ("error", "warning") and not re.search(provoked, message.text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pages in each look, except those of modules that say `LOOKS = ["light"]`: what they try does
    not hang on the looks.
    """
    if "look" in metafunc.fixturenames:
        metafunc.parametrize("look", getattr(metafunc.module, "LOOKS", [*_LOOKS]))


@pytest.fixture
def page(request, look, browser, served) -> Iterator[Page]:
    """A page in a look. Afterwards: no console error, and no request that left this machine."""
    scheme, width = _LOOKS[look]
    touch = getattr(request.module, "TOUCH", False)
    context = browser.new_context(
        base_url=served,
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        has_touch=touch,
    )
    opened = context.new_page()
    opened.add_init_script(OPEN)
    problems: list[str] = []
    provoked = getattr(request.module, "PROVOKED", "(?!)")
    opened.on(
        "console",
        lambda message: problems.append(message.text) if _is_problem(message, provoked) else None,
    )
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "request",
        lambda sent: (
            None
            if sent.url.startswith((served, "data:", "blob:"))
            else problems.append(f"left localhost: {sent.url}")
        ),
    )
    yield opened
    context.close()
    assert problems == []
