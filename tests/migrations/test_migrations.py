"""The migration makes the tables that the models describe, keeps a record as it is, and refuses a
database of before the first release.
"""

import time

import numpy as np
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.util import CommandError
from sqlalchemy import inspect, text

from parity.golden.check import RunFacts
from parity.golden.update import Request
from parity_lab.server.tables import Analysis, AnalysisResult, Healing
from server import deliveries
from server.database.metrics import store
from server.database.tables import (
    Attempt,
    Base,
    DataRead,
    IdempotencyKey,
    ImportedGroup,
    Job,
    JobNote,
    JobTag,
    NewQuestion,
    Run,
    SignOff,
    Statement,
    Submission,
    Worker,
)
from server.jobs import baselines, goldens
from server.jobs.conclude import conclude
from server.jobs.evaluations import bundle_row
from server.jobs.goldens import Asked
from server.readiness import alembic_config
from server.web.access import api_tokens, browser_sessions
from tests.parity.golden.curves import GOLDEN, curve

pytestmark = pytest.mark.both_databases


def test_the_schema_is_what_the_models_say(database):
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


@pytest.fixture
def record(database, recorded):
    """A record with a row in every table at the least; the ids of two runs: one with a curve of its
    own, one that has the other's.
    """
    old, new = recorded({"nvfp4": 0.01}, steps=300), recorded({"nvfp4": 0.01}, steps=300, done=0)
    with database.write() as session:
        deliveries.register(session, {"h1": ["job.ended"]})
    conclude(database, old)
    now = time.time()
    with database.write() as session:
        first, *others = session.query(Run).where(Run.job_id == old).order_by(Run.position)
        store.append(
            session,
            first.id,
            "validation",
            1,
            np.array([3, 7, 8]),
            {"loss": np.array([1.0, np.nan, -np.inf])},
        )
        # too many values to be packed
        two = dict.fromkeys(("loss", "accuracy"), np.linspace(2, 1, 5000))
        store.append(session, first.id, "validation", 1, np.arange(10, 5010), two)
        store.append(
            session, first.id, "train", 2, np.arange(290, 300), {"lm_loss": np.linspace(2, 1, 10)}
        )
        reusing = session.query(Run).where(Run.job_id == new).order_by(Run.position).first()
        reusing.reused_from = first.id
        baseline = baselines.promote(session, "mine", old, None, "because", "local", None)
        job = session.get_one(Job, new)
        job.baseline_id, job.controls, job.early_stop = baseline.id, [others[0].id], {"r": None}
        token, _ = api_tokens.create_token(session, "ci", ["submit"], 30, 2)
        session.flush()
        browser_sessions.open_session(session, token)
        session.add(
            Attempt(
                run_id=first.id, attempt_number=1, state="finished", worker_id="w1", started_at=now
            )
        )
        job_of_slurm = {
            "key": "k",
            "scheduler": "slurm",
            "launcher": "l",
            "launcher_digest": "d",
            "plan": {},
            "folder": "/f",
            "state": "ended",
        }
        session.add(
            Submission(run_id=first.id, number=1, attempt_number=1, created_at=now, **job_of_slurm)
        )
        session.add(
            IdempotencyKey(
                principal=token.id, key="k", body_digest="0" * 64, job_id=new, created_at=now
            )
        )
        session.add(
            ImportedGroup(
                family="f", name="g", cells={"family": "f"}, imported_by=token.id, imported_at=now
            )
        )
        session.add(DataRead(place="0" * 64, digest="d", run_id=first.id))
        session.add(JobTag(job_id=old, tag="nightly"))
        session.add(JobNote(id="n1", job_id=old, who=token.id, text="odd", created_at=now))
        session.add(NewQuestion(id="q1", job_id=old, who=token.id, reason="a node", created_at=now))
        after = {"is_late": True, "is_informed": True}
        session.add(
            Statement(
                id="f1",
                job_id=old,
                fact="rounding",
                arm="a",
                value="nearest",
                who=token.id,
                created_at=now,
                **after,
            )
        )
        once = {
            "verdict_sha256": "0" * 64,
            "policy_sha256": "0" * 64,
            "who": token.id,
            "reason": "reruns",
            "created_at": now,
        }
        session.add(SignOff(id="s1", job_id=old, candidate="nvfp4", expires_at=now, **once))
        session.add(
            Analysis(
                job_id=new, explains=old, candidate="nvfp4", against="bf16", setup={"parents": []}
            )
        )
        session.add(Healing(job_id=new, heals=old, candidate="nvfp4", setup={"parents": []}))
        asked = Asked(facts=RunFacts(recipe="bf16"))
        first_golden = Request(reason="the first", date="2026-11-29")
        goldens.take(session, "mine", curve(GOLDEN), asked, first_golden, "local")
        session.add(bundle_row(old, b"losses"))
        session.add(AnalysisResult(run_id=reusing.id, key="instant/on", value=[1.0, 2.0]))
        session.add(
            Worker(
                id="w1",
                name="h:1",
                capability="cpu",
                slots=2,
                device={"sm": None},
                started_at=now,
                heartbeat_at=now,
            )
        )
        return first.id, reusing.id


def _rows(database) -> dict[str, int]:
    """How many rows each table has."""
    with database.engine.connect() as connection:
        names = [
            name for name in inspect(connection).get_table_names() if name != "alembic_version"
        ]
        return {
            name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in names
        }


def _curves(database, run_ids) -> list[bytes]:
    with database.read() as session:
        curves = [
            store.read(session, run_id, kind)
            for run_id in run_ids
            for kind in ("train", "validation")
        ]
    return [part.tobytes() for steps, columns in curves for part in (steps, *columns.values())]


def test_a_database_that_has_the_tables_goes_on_without_a_step(database, record):
    before, rows = _curves(database, record), _rows(database)
    assert min(rows.values()) > 0
    assert set(rows) == set(Base.metadata.tables)
    half = len(before) // 2
    assert before[:half] == before[half:]
    command.upgrade(alembic_config(database.url), "head")
    assert _curves(database, record) == before
    assert _rows(database) == rows


@pytest.mark.parametrize("version", ["0019", "0025", "0044"])
def test_a_database_of_before_the_first_release_is_refused_and_stays_as_it_is(
    database, record, version
):
    with database.engine.begin() as connection:
        connection.execute(
            text("UPDATE alembic_version SET version_num = :version"), {"version": version}
        )
    rows = _rows(database)
    with pytest.raises(CommandError, match=rf"migration {version}, .* expected 0045 or later"):
        command.upgrade(alembic_config(database.url), "head")
    assert _rows(database) == rows
    with database.engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == version


def test_all_the_way_down_and_up_again(database, record):
    config = alembic_config(database.url)
    command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    command.upgrade(config, "head")
    assert set(_rows(database)) == set(Base.metadata.tables)
