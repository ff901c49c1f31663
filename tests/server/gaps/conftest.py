"""Jobs with charts, and what a request for a chart reads."""

from __future__ import annotations

import numpy as np
import pytest

from server.database import store
from server.database.tables import Job, Run


@pytest.fixture
def extend(database):
    """A function that records the steps of a job's runs up to a number, with a loss."""

    def record(job_id: str, done: int, loss: float = 1.4) -> None:
        with database.write() as session:
            for run in session.query(Run).where(Run.job_id == job_id):
                steps = np.arange(run.steps_done, done)
                store.append(session, run.id, "train", run.epoch, steps, {"lm_loss": np.full(len(steps), loss)})
                run.steps_done = done

    return record


@pytest.fixture
def end(database):
    """A function that ends a job in training with its runs, without a verdict."""

    def cancel(job_id: str) -> None:
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "cancelled", 1e9
            for run in job.runs:
                run.state = "cancelled"

    return cancel


@pytest.fixture
def curves_read(monkeypatch) -> list[str]:
    """The runs of which steps are read from here on."""
    read: list[str] = []
    tables = store.tables
    monkeypatch.setattr(store, "tables", lambda *given: read.append(given[1]) or tables(*given))
    return read
