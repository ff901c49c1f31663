"""Files of ended runs on a worker's own disk."""

import os
import time

import pytest
from sqlalchemy import select

from server.database.tables import Run
from server.retention.files import old_files
from server.retention.keeper import FileRetention

OLD = 40 * 86_400
GONE = "r0123456789ab-0123456789"  # an id that the database does not have


@pytest.fixture
def made(database, kept, recorded, tmp_path):
    """Ids of a run that has ended and of one that trains, and old files of both and of two that are
    not in the database.
    """
    ended, live = (
        recorded({"nvfp4": 0.0}, done=10, state=state) for state in ("finished", "running")
    )
    with database.read() as session:
        ids = [
            session.scalars(select(Run.id).where(Run.job_id == job).limit(1)).one()
            for job in (ended, live)
        ]
    logs, checkpoints = tmp_path / "logs" / "runs", kept.checkpoints
    logs.mkdir(parents=True)
    paths = {}
    for run_id in (*ids, "r-mine", GONE):
        (logs / f"{run_id}-1.log").write_text("hello")
        (checkpoints / run_id).mkdir(parents=True)
        (checkpoints / run_id / "state").write_text("weights")
        (kept.artifacts / f"{run_id}-1").mkdir(parents=True)
        (kept.artifacts / f"{run_id}-1" / "a.xplane.pb").write_text("report")
        paths[run_id] = [
            logs / f"{run_id}-1.log",
            checkpoints / run_id,
            kept.artifacts / f"{run_id}-1",
        ]
        for path in paths[run_id]:
            os.utime(path, (time.time() - OLD,) * 2)
    (logs / f"{ids[0]}-2.log").write_text("new")
    return ids, paths


def _what(files):
    return [(one.what, one.of, one.size_bytes) for one in files]


def test_old_logs_profiles_and_checkpoints_of_ended_runs_go(database, kept, made, tmp_path):
    (ended, _), paths = made
    files = FileRetention(kept, database)
    assert _what(files.work()) == [
        ("log", ended, 5),
        ("profiles", ended, 6),
        ("checkpoints", ended, 7),
    ]
    assert files.work() == []  # for an hour
    assert not any(path.exists() for path in paths.pop(ended))
    assert all(path.exists() for some in paths.values() for path in some)
    assert (tmp_path / "logs" / "runs" / f"{ended}-2.log").exists()


def test_files_of_deleted_jobs_go_only_where_jobs_are_deleted(database, kept, made):
    of_gone = [one for one in old_files(kept, database) if one.of == GONE]
    assert of_gone == []
    deletes_jobs = kept.model_copy(update={"retention_job_days": 60.0})
    assert sorted(one.what for one in old_files(deletes_jobs, database) if one.of == GONE) == [
        "checkpoints",
        "log",
        "profiles",
    ]


def test_old_compiled_programs_go(database, settings, tmp_path):
    cache = tmp_path / "jax-cache"
    cache.mkdir()
    for name, age in (("old", OLD), ("new", 0)):
        (cache / name).write_text("program")
        os.utime(cache / name, (time.time() - age,) * 2)
    assert _what(FileRetention(settings, database).work()) == [("program", "", 7)]
    assert [path.name for path in cache.iterdir()] == ["new"]
