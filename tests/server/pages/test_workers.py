"""The page of workers and queue: who trains what, what waits in which order, and why."""

import time

from playwright.sync_api import Page, expect

from server.database.tables import Job, Run, Worker, new_id
from server.pages.workers import queue, training
from training.spec import SPEC_VERSION

LOOKS = ["light"]
ABLE = {
    f"emulated/{recipe}": {"ok": True, "reason": "exact codes"}
    for recipe in ("fp8_current", "nvfp4")
}
CAN = {**ABLE, "maxtext/nvfp4": {"ok": False, "reason": "needs the package maxtext"}}


def _worker(database):
    now = time.time()
    device = {
        "device_class": "cpu",
        "device_kind": "cpu",
        "threads_per_run": 1,
        "spec_version": SPEC_VERSION,
        "can_run": CAN,
    }
    with database.write() as session:
        row = Worker(
            id=new_id("w"),
            name="box",
            capability="cpu",
            slots=2,
            device=device,
            started_at=now,
            heartbeat_at=now + 600,
        )
        session.add(row)
        return row.id


def _change(database, job_id, name, **values):
    """Rename a job and set values on its runs."""
    with database.write() as session:
        session.get_one(Job, job_id).name = name
        for run in session.query(Run).where(Run.job_id == job_id):
            for key, value in values.items():
                setattr(run, key, value)


def test_the_order_is_that_of_the_claims(database, recorded):
    jobs = {
        name: recorded({"nvfp4": 0.0}, done=0, state="queued")
        for name in ("old", "young", "urgent", "ended")
    }
    for age, (name, job_id) in enumerate(jobs.items()):
        _change(
            database, job_id, name, created_at=1000.0 + age, priority=5 if name == "urgent" else 0
        )
    with database.write() as session:
        session.get_one(Job, jobs["ended"]).status = "cancelled"
        # A run that has ended has no place in the queue, whatever its priority was.
        first = session.query(Run).where(Run.job_id == jobs["young"]).first()
        first.state, first.priority = "failed", 50
    with database.read() as session:
        rows = queue(session, 5.0)
    assert [(row.job.name, row.priority, row.waiting, row.training) for row in rows] == [
        ("urgent", 5, 4, 0),
        ("old", 0, 4, 0),
        ("young", 0, 3, 0),
    ]
    assert "none is registered" in rows[0].reason


def test_the_page_says_who_trains_what_and_what_waits(page: Page, database, recorded):
    page.goto("/workers")
    expect(page.get_by_text("The queue is empty.")).to_be_visible()
    worker = _worker(database)
    _change(
        database,
        recorded({"nvfp4": 0.0}, done=750, state="running"),
        "pair",
        worker_id=worker,
        steps_per_second=10.0,
    )
    _change(database, recorded({"nvfp4": 0.0}, done=0, state="queued"), "later")
    with database.read() as session:
        assert {key: len(runs) for key, runs in training(session).items()} == {worker: 4}
    page.goto("/workers")
    row = page.get_by_role("region", name="Workers").get_by_role("row", name="box")
    expect(row).to_contain_text("pair, fp8_current 0")
    expect(row).to_contain_text("emulated/nvfp4")
    row.get_by_text("Why not other recipes").click()
    expect(row).to_contain_text("maxtext/nvfp4: needs the package maxtext")
    waiting = page.get_by_role("region", name="Queue")
    expect(waiting.get_by_role("row", name="pair")).to_contain_text("1 min 15 s")
    expect(waiting.get_by_role("row", name="later")).to_contain_text(
        "Waiting for a free slot on a worker with PARITY_CAPABILITY=cpu or gpu."
    )
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
