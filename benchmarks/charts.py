"""What do charts of 2 x 1,000,000 and of 93 x 100,000 steps cost? Views of the job page, first
charts and zooms, compared with MLflow.

Run: python benchmarks/charts.py [--peers PYTHON]. PYTHON is an interpreter with locks/trackers.lock
(`make bench-charts` makes one); without it the peer is left out. Needs Chromium and the chart
library (`make node_modules/.installed`).

Limits: 300 kB over the wire for one view of the page, 350 kB with 30 candidates of 3 runs each; 300
ms from the first data to the first chart; 60 ms for a zoom's answers; 2 s from the request for the
page of 30 candidates to its first chart, although the server reads their curves for it. That of two
runs is printed without a limit: it is mostly the browser's start, layout and paint. MLflow's SQLite
store is filled with the same losses past its API, which would take many minutes; it is read as its
own charts read it.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from record import (
    CHROMIUM,
    POLICY,
    RESULTS,
    ROOT,
    best_of,
    free_port,
    process,
    report,
    service,
    spec,
    wait_for,
)

from parity.frozen import frozen
from server.database.metrics import chunk_tables, store
from server.database.sessions import Database
from server.database.tables import Job, Run
from server.jobs.conclude import conclude, decide, write_outcome
from server.jobs.submit import submit_job
from training.spec import ArmSpec

STEPS, MANY_STEPS = 1_000_000, 100_000
# A half, a tenth, and few enough that every step is sent.
ZOOMS = {
    "500,000 steps": (250_000, 749_999),
    "100,000 steps": (400_000, 499_999),
    "20,000 steps, raw": (480_000, 499_999),
}
VIEWS, BYTES, FIRST_CHART_MS, ZOOM_MS = 6, 300_000, 300, 60
CANDIDATES, RUNS, MANY_BYTES, MANY_OPENED_MS = 30, 3, 350_000, 2000
MANY = f", {CANDIDATES} candidates x {RUNS} runs"
_FLAGS = ["--no-sandbox", "--disable-gpu"]


def losses() -> list[np.ndarray]:
    """Two runs that end 0.005 nats apart."""
    rng = np.random.default_rng(0)
    at = np.arange(STEPS)
    law, batch = 2.0 + 8.0 * (at + 1.0) ** -0.3, rng.normal(0, 0.08, STEPS)
    return [
        (law + batch + gap + rng.normal(0, 0.004, STEPS)).astype(np.float32).astype(np.float64)
        for gap in (0.0, 0.005)
    ]


def record_job(database: Database, curves: list[np.ndarray], *, trains: bool = False) -> str:
    """A concluded job with these losses, or one that `trains` still."""
    with database.write() as session:
        job = submit_job(session, spec(STEPS), POLICY)
        runs, job_id = [run.id for run in job.runs], job.id
    for run, loss in zip(runs, curves, strict=True):
        write_run(database, run, loss, trains=trains)
    if not trains:
        conclude(database, job_id)
    return job_id


def record_many(database: Database) -> str:
    """A concluded job with many candidates, whose gaps are spread around the margin; every run has
    a curve of its own.

    Its verdicts are those of a short job with the same arms, because judging nine million steps
    would take most of the time.
    """
    short, long = (_many_runs(database, steps) for steps in (2000, MANY_STEPS))
    with database.read() as session:
        outcome = decide(session, short)
    with database.write() as session:
        write_outcome(session, long, outcome)
    return long


def reopen(database: Database, job_id: str) -> None:
    """Make a concluded job one that trains, with the same curves."""
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "running", None
        for verdict in job.verdicts:
            session.delete(verdict)
        for run in job.runs:
            run.state = "running"


def _many_runs(database: Database, steps: int) -> str:
    rng = np.random.default_rng(1)
    at = np.arange(steps)
    law, batch = 2.0 + 8.0 * (at + 1.0) ** -0.3, rng.normal(0, 0.08, steps)
    arms = [
        ArmSpec(recipe=("nvfp4", "mxfp8")[i % 2], name=f"candidate-{i:02d}", replicates=RUNS)
        for i in range(CANDIDATES)
    ]
    with database.write() as session:
        job = submit_job(
            session,
            spec(
                steps,
                baseline=ArmSpec(recipe="fp8_current", replicates=RUNS),
                candidates=tuple(arms),
            ),
            POLICY,
        )
        runs, job_id = (
            [(run.id, max(0, run.arm.position - 1) / CANDIDATES) for run in job.runs],
            job.id,
        )
    for run, share in runs:
        noise = rng.normal(0, 0.004, steps) + rng.normal(0, 0.001)
        write_run(
            database,
            run,
            (law + batch + 0.04 * share + noise).astype(np.float32).astype(np.float64),
        )
    return job_id


def write_run(database: Database, run: str, loss: np.ndarray, *, trains: bool = False) -> None:
    """Record the losses (n,) of a run straight into the database."""
    steps = len(loss)
    with database.write() as session:
        for first in range(0, steps, chunk_tables.SEALED_STEPS):
            part = slice(first, min(first + chunk_tables.SEALED_STEPS, steps))
            at = np.arange(part.start, part.stop)
            columns = {
                "lm_loss": loss[part],
                "grad_norm": 1.0 + 0.1 * np.abs(loss[part]),
                "step_seconds": np.full(len(at), 0.5),
            }
            store.append(session, run, "train", 1, at, columns)
        row = session.get_one(Run, run)
        row.state, row.attempt_number, row.steps_done, row.manifest = (
            "running" if trains else "finished",
            1,
            steps,
            {"device_class": "bench"},
        )
        row.job.status = "running"


@frozen
class Viewed:
    """One view of a page: bytes over the wire, ms from the first data to the first chart, and from
    the request for the page to it.
    """

    received: int
    first_chart: float
    opened: float


def view(browser: Browser, address: str, token: str, job: str) -> Viewed:
    """View a page, every chart of it."""
    context = browser.new_context(
        base_url=address,
        extra_http_headers={"Authorization": f"Bearer {token}"},
        viewport={"width": 1440, "height": 900},
    )
    page = context.new_page()
    received = 0.0
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")

    def count(finished: dict[str, float]) -> None:
        nonlocal received
        received += finished["encodedDataLength"]

    wire.on("Network.loadingFinished", count)
    page.goto(f"/jobs/{job}")
    _see_all(page)
    chart, data = page.evaluate(
        """async () => {
          while (!performance.getEntriesByName("chart").length) await new Promise(requestAnimationFrame);
          const answers = performance.getEntriesByType("resource").filter((one) => /\\/(gaps|overlay)\\?/.test(one.name));
          return [performance.getEntriesByName("chart")[0].startTime, Math.min(...answers.map((one) => one.responseEnd))];
        }"""  # noqa: E501
    )
    context.close()
    return Viewed(received=round(received), first_chart=chart - data, opened=chart)


def _see_all(page: Page) -> None:
    """Open the curves, bring every chart into view and wait until it is drawn."""
    page.keyboard.press("c")
    for figure in page.locator("figure.chart:not([data-menu])").filter(visible=True).all():
        figure.scroll_into_view_if_needed()
        figure.locator(".note").filter(has_text="Showing").wait_for(timeout=240_000)


def zooms(http: httpx2.Client, job: str) -> dict[str, float]:
    """Seconds until a zoom's answer is here, for each range; the slower of the gap's and the
    losses'.
    """
    seconds = {}
    for words, (first, last) in ZOOMS.items():
        query = {"from": first, "to": last}

        def gap(query: dict[str, int] = query) -> None:
            http.get(f"/jobs/{job}/gaps", params={**query, "bins": 146}).raise_for_status()

        def overlay(query: dict[str, int] = query) -> None:
            http.get(f"/jobs/{job}/overlay", params={**query, "points": 2000}).raise_for_status()

        seconds[words] = max(best_of(20, gap), best_of(20, overlay))
    return seconds


@contextlib.contextmanager
def mlflow(
    python: str, folder: Path, curves: list[np.ndarray]
) -> Iterator[Callable[[tuple[int, int]], float]]:
    """MLflow's server over the same losses: a function that gives the seconds of its charts' read
    of a range.
    """
    port, file = free_port(), folder / "curves.npy"
    np.save(file, np.stack(curves))
    line = [
        python,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with process(line, folder / "mlflow.log", MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true"):
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health")
        fill = [
            python,
            str(ROOT / "benchmarks" / "record_peers.py"),
            "mlflow-fill",
            address,
            str(folder / "mlflow.db"),
            str(file),
        ]
        filled = subprocess.run(
            fill,
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"NO_PROXY": "127.0.0.1"},
        )
        runs = json.loads(filled.stdout.splitlines()[-1])
        url = f"{address}/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"

        def read(steps: tuple[int, int]) -> float:
            query = {
                "run_ids": runs,
                "metric_key": "lm_loss",
                "start_step": steps[0],
                "end_step": steps[1],
                "max_results": 2000,
            }
            with httpx2.Client(trust_env=False, timeout=120) as http:
                return best_of(3, lambda: http.get(url, params=query).raise_for_status())

        yield read


def main() -> int:
    """Measure; 0 when every limit was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", help="a Python that has MLflow")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if CHROMIUM is None:
        print(
            "no Chromium is installed: see the README's test section for the line that installs it",
            file=sys.stderr,
        )
        return 2
    print(
        f"{os.cpu_count()} processors, {CHROMIUM}, load {os.getloadavg()[0]:.1f} before this began "
        "(figures of a busy machine say little)"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder, curves = Path(name), losses()
        with service(folder, f"sqlite:///{folder / 'ours.db'}") as (address, database, token):
            job, training = record_job(database, curves), record_job(database, curves, trains=True)
            many = record_many(database)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
                views = {
                    what: [view(browser, address, token, one) for _ in range(VIEWS)]
                    for what, one in (("", job), (MANY, many))
                }
                reopen(database, many)
                first_live, *live_views = (
                    view(browser, address, token, many).opened for _ in range(VIEWS)
                )
                browser.close()
            print(
                f"first chart{MANY}, while it trains: {first_live:.0f} ms the first time, "
                f"{min(live_views):.0f} ms later",
                flush=True,
            )
            for what, measured in views.items():
                limit = MANY_BYTES if what else BYTES
                received, first = (
                    max(one.received for one in measured),
                    min(one.first_chart for one in measured),
                )
                words = f"{received / 1000:.0f} kB (limit {limit // 1000})"
                report(
                    f"one view of the job page, all of its charts{what}", received <= limit, words
                )
                report(
                    f"first chart after the first data{what}",
                    first <= FIRST_CHART_MS,
                    f"{first:.0f} ms (limit {FIRST_CHART_MS})",
                )
                opened = [one.opened for one in measured]
                words = (
                    f"{opened[0]:.0f} ms the first time, {min(opened[1:]):.0f} to "
                    f"{max(opened[1:]):.0f} ms later"
                )
                if what:
                    words = f"{words} (limit {MANY_OPENED_MS} the first time)"
                    report(
                        f"first chart after the request for the page{what}",
                        opened[0] <= MANY_OPENED_MS,
                        words,
                    )
                else:
                    print(f"first chart after the request for the page: {words}", flush=True)
            with httpx2.Client(
                base_url=f"{address}/api/v1",
                headers={"Authorization": f"Bearer {token}"},
                trust_env=False,
            ) as http:
                ours, live = zooms(http, job), zooms(http, training)
        for by_range, which in ((ours, ""), (live, ", while it trains")):
            for words, seconds in by_range.items():
                what = f"zoom of 2 x 1,000,000 steps to {words}{which}"
                report(
                    what, 1000 * seconds <= ZOOM_MS, f"{1000 * seconds:.0f} ms (limit {ZOOM_MS})"
                )
        if options.peers:
            with mlflow(options.peers, folder, curves) as read:
                for words, seconds in ours.items():
                    peer = read(ZOOMS[words])
                    report(
                        f"the same zoom in MLflow's charts, {words}",
                        peer > seconds,
                        f"{1000 * peer:.0f} ms, {peer / seconds:.1f} x ours (limit 1)",
                    )
    missed = [what for what, good in RESULTS if not good]
    print(
        f"{len(RESULTS) - len(missed)} of {len(RESULTS)} limits kept"
        + (f"; missed: {'; '.join(missed)}" if missed else "")
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
