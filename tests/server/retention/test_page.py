"""Retention as docs/operate.md says: its commands as an operator runs them, and its settings."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from server.database.tables import Job
from server.settings import CHECKOUT, Settings
from tests.documentation import run_by

pytestmark = pytest.mark.both_databases

_DAY = 86_400.0
_ROW = re.compile(r"^\|.*\| `(PARITY_RETENTION_\w+)` \((\w+)\) \|$", re.MULTILINE)


def _run(command, settings, environment):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {
        "PATH": path,
        "PARITY_DATABASE_URL": settings.database,
        "PARITY_STATE_DIR": str(settings.state_dir),
    }
    ended = subprocess.run(
        ["sh", "-c", command],
        cwd=CHECKOUT,
        env=os.environ | variables | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def _jobs(database):
    with database.read() as session:
        return {job.id for job in session.query(Job)}


def test_the_page_s_commands_list_old_jobs_and_then_delete_them(owner_database, settings, recorded):
    old, young = recorded({"nvfp4": 0.0}), recorded({"nvfp4": 0.0})
    with owner_database.write() as session:
        for job_id, days in ((old, 366), (young, 364)):
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "cancelled", time.time() - days * _DAY
    (block,) = run_by("docs/operate.md", __file__)
    setting, lists, deletes = block.commands
    name, _, value = setting.removeprefix("export ").partition("=")
    listed = _run(lists, settings, {name: value})
    assert _jobs(owner_database) == {old, young}
    deleted = _run(deletes, settings, {name: value})
    assert _jobs(owner_database) == {young}
    assert listed.stdout == deleted.stdout
    what, job_id, size, _ = listed.stdout.splitlines()[0].split("\t")
    assert (what, job_id, int(size) > 0) == ("job", old, True)
    assert listed.stderr.split(" values ")[0] == deleted.stderr.split(" values ")[0]


def test_the_page_s_table_has_the_defaults_of_the_settings():
    text = (CHECKOUT / "docs" / "operate.md").read_text()
    shown = {name: None if value == "unset" else float(value) for name, value in _ROW.findall(text)}
    fields = {f"PARITY_{field.upper()}": field for field in Settings.model_fields}
    assert len(shown) == 4
    assert shown == {name: Settings.model_fields[fields[name]].default for name in shown}
