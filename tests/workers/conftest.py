"""A registered worker, a state folder whose compiled programs are the session's, and the parts of a
stack.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil
import pytest

from server.database.tables import Worker
from training.spec import SPEC_VERSION
from workers import lease


def part_of(state: Path, name: str) -> psutil.Process | None:
    """The part of the stack in a state folder whose command line contains `name`; None while it
    does not run.
    """
    stack = psutil.Process(int((state / "lock").read_text().split()[1].rstrip(",")))
    with contextlib.suppress(psutil.NoSuchProcess):
        return next(
            (child for child in stack.children() if any(name in word for word in child.cmdline())),
            None,
        )
    return None


@pytest.fixture
def settings(settings):
    (settings.state_dir / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
    return settings


@pytest.fixture
def make_worker(database):
    """A function that registers a worker of a device class."""

    def make(name: str = "one", device_class: str = "cpu:test", capability: str = "cpu") -> Worker:
        device = {"device_class": device_class, "threads_per_run": 1, "spec_version": SPEC_VERSION}
        worker = Worker(
            id=f"w-{name}",
            name=name,
            capability=capability,
            slots=1,
            device=device,
            started_at=time.time(),
            heartbeat_at=time.time(),
        )
        with database.write() as session:
            session.add(worker)
            session.flush()
            session.expunge(worker)
        return worker

    return make


@pytest.fixture
def submit(owner_database, make_job):
    """A function that queues a small job, which trains its baseline whatever was trained before,
    and returns its id.
    """
    from parity.judging.policy import policy_from_mapping
    from server.jobs.submit import Order, submit_job

    def submit_small(**changes) -> str:
        with owner_database.write() as session:
            return submit_job(
                session,
                make_job(**changes),
                policy_from_mapping({"margin": "1.0%"}),
                order=Order(reuse=False),
            ).id

    return submit_small


def claim_next(database, worker, seconds=60.0):
    """The claim of the next run, or None."""
    with database.write() as session:
        return lease.claim(session, worker, seconds)


@pytest.fixture
def both(database, submit, make_worker):
    """The two runs of a job, held by one worker, in the order of their ids."""
    submit()
    worker = make_worker()
    return sorted((claim_next(database, worker) for _ in range(2)), key=lambda claim: claim.run_id)


@pytest.fixture
def claim(both):
    return both[0]
