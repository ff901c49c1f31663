"""The migration makes the tables that the models describe, and takes over a database of before the
first release.
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
    Event,
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
    Verdict,
    Worker,
)
from server.jobs import baselines, goldens
from server.jobs.conclude import conclude
from server.jobs.evaluations import bundle_row
from server.jobs.goldens import Asked
from server.readiness import alembic_config
from server.web.access import api_tokens, browser_sessions
from tests.parity.golden.curves import GOLDEN, curve
from tests.server.held_out import make_evaluations

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


def _as_before_the_first_release(database, version):
    command.downgrade(alembic_config(database.url), "0025")
    with database.engine.begin() as connection:
        for column in ("fork_step", "fork_draw"):
            connection.execute(text(f"ALTER TABLE runs ADD COLUMN {column} BIGINT"))
        connection.execute(
            text("UPDATE alembic_version SET version_num = :version"), {"version": version}
        )


def test_the_record_of_a_database_before_the_first_release_stays(database, record):
    before, rows = _curves(database, record), _rows(database)
    assert min(rows.values()) > 0
    assert set(rows) == set(Base.metadata.tables)
    half = len(before) // 2
    assert before[:half] == before[half:]
    _as_before_the_first_release(database, "0024")
    command.upgrade(alembic_config(database.url), "head")
    assert _curves(database, record) == before
    # Webhooks are in the settings now, and statements came later.
    assert _rows(database) == rows | {
        "webhooks": 0,
        "webhook_deliveries": 0,
        "statements": 0,
        "submissions": 0,
        "new_questions": 0,
        "goldens": 0,
        "evaluation_bundles": 0,
        "healings": 0,
    }
    with database.read() as session:
        assert [(len(job.arms), len(job.runs)) for job in session.query(Job)] == [(2, 4), (2, 4)]
        assert session.query(Job).order_by(Job.id).first().verdicts
        if "sqlite" in database.url:
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_a_database_that_is_older_than_that_is_refused_and_stays_as_it_is(database, record):
    _as_before_the_first_release(database, "0019")
    rows = _rows(database)
    with pytest.raises(CommandError, match=r"migration 0019, .* expected 0024 or later"):
        command.upgrade(alembic_config(database.url), "head")
    assert _rows(database) == rows
    assert {"fork_step", "fork_draw"} < {
        column["name"] for column in inspect(database.engine).get_columns("runs")
    }


def test_all_the_way_down_and_up_again(database, record):
    config = alembic_config(database.url)
    command.downgrade(config, "base")
    assert inspect(database.engine).get_table_names() == ["alembic_version"]
    command.upgrade(config, "head")
    assert set(_rows(database)) == set(Base.metadata.tables)


def test_jobs_of_held_out_losses_go_with_their_table_and_no_other_does(database, recorded):
    trained, sent = recorded({"nvfp4": 0.01}, steps=300), make_evaluations(database, {"fp8": 0.0})
    conclude(database, trained)
    before = _rows(database)
    command.downgrade(alembic_config(database.url), "0043")
    command.upgrade(alembic_config(database.url), "head")
    with database.read() as session:
        assert [job.id for job in session.query(Job)] == [trained]
        assert session.get_one(Job, trained).verdicts
    gone = {"jobs": 1, "arms": 2, "verdicts": 1, "evaluation_bundles": 1}
    after = _rows(database)
    assert {name: before[name] - after[name] for name in gone} == gone
    with database.read() as session:
        assert session.query(Event).filter(Event.job_id == sent).all() == []


def test_verdicts_of_before_have_neither_path_nor_lead_and_jobs_get_their_answers(database, record):
    def answers() -> list[str | None]:
        with database.read() as session:
            return [job.answer for job in session.query(Job).order_by(Job.id)]

    def documents() -> list[tuple[str, str | None, str | None]]:
        with database.read() as session:
            return [
                (row.document, row.path, row.lead)
                for row in session.query(Verdict).order_by(Verdict.id)
            ]

    before = documents()
    assert [(path is None, lead is None) for _, path, lead in before] == [(False, False)]
    before_answers = answers()
    assert [answer is None for answer in before_answers] == [False, True]
    config = alembic_config(database.url)
    command.downgrade(config, "0027")
    assert {"path", "lead"}.isdisjoint(
        column["name"] for column in inspect(database.engine).get_columns("verdicts")
    )
    command.upgrade(config, "head")
    assert documents() == [(document, None, None) for document, _, _ in before]
    assert answers() == before_answers


def test_the_jobs_of_a_search_stay_and_what_of_them_is_open_ends(database, record, recorded):
    """Of the steps of a search: forks that ended, a pilot that trains, and a confirmation."""
    config = alembic_config(database.url)
    forks, pilot, confirmation = (recorded({"nvfp4": 0.01}, steps=40) for _ in range(3))
    analysis = recorded({"nvfp4": 0.01}, steps=40)
    with database.write() as session:
        for job_id, kind, state in (
            (forks, "why", "finished"),
            (pilot, "pilot", "running"),
            (confirmation, "full", "running"),
            (analysis, "why", "running"),
        ):
            job = session.get_one(Job, job_id)
            job.status = "concluded" if state == "finished" else "running"
            for run in job.runs:
                run.kind, run.state, run.attempt_number, run.message = kind, state, 1, None
                session.add(
                    Attempt(run_id=run.id, attempt_number=1, state=state, started_at=time.time())
                )
        session.add(
            Analysis(job_id=analysis, explains=forks, candidate="nvfp4", against="bf16", setup={})
        )
    command.downgrade(config, "0039")
    now = {"now": time.time()}
    with database.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO searches (id, base_id, candidate, question, setup, state, priority, "
                f"created_at) VALUES ('s1', '{forks}', 'nvfp4', 'q', '{{}}', 'running', 0, :now)"
            ),
            now,
        )
        for number, job_id in enumerate((forks, pilot, confirmation), 1):
            connection.execute(
                text(
                    "INSERT INTO search_steps (search_id, number, job_id, evaluations, cost, "
                    f"created_at) VALUES ('s1', {number}, '{job_id}', '[]', 1.0, :now)"
                ),
                now,
            )
    before = _curves(database, record)
    command.upgrade(config, "head")
    assert _curves(database, record) == before
    assert {"searches", "search_steps"}.isdisjoint(_rows(database))
    with database.read() as session:
        found = {
            job_id: (
                session.get_one(Job, job_id).status,
                {run.kind for run in session.get_one(Job, job_id).runs},
                {run.state for run in session.get_one(Job, job_id).runs},
                {
                    session.get_one(Attempt, (run.id, 1)).state
                    for run in session.get_one(Job, job_id).runs
                },
            )
            for job_id in (forks, pilot, confirmation, analysis)
        }
        assert found == {
            forks: ("concluded", {"retired"}, {"finished"}, {"finished"}),
            pilot: ("cancelled", {"retired"}, {"cancelled"}, {"cancelled"}),
            confirmation: ("running", {"full"}, {"running"}, {"running"}),
            analysis: ("running", {"why"}, {"running"}, {"running"}),
        }
        ended = session.get_one(Job, pilot)
        assert ended.message == ended.runs[0].message
        assert "does not continue" in ended.message
        assert session.get_one(Analysis, analysis).explains == forks
