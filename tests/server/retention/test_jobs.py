"""A whole job goes with everything that belongs to it, and nothing that another one needs."""

import time
from contextlib import suppress

import pytest
from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from parity_lab.server.analyses import WhyRequest, submit_analysis
from parity_lab.server.tables import Analysis
from server.database import events
from server.database.metrics import store
from server.database.tables import (
    Arm,
    Attempt,
    Base,
    Baseline,
    BaselineRun,
    Chunk,
    EvaluationBundle,
    IdempotencyKey,
    Job,
    JobNote,
    JobTag,
    NewQuestion,
    Run,
    SignOff,
    Statement,
    WebhookDelivery,
)
from server.jobs import ledger
from server.jobs.conclude import conclude
from server.jobs.fingerprint import unsound
from server.retention import curves, jobs
from server.retention.keeper import delete_batch, plan
from tests.server.analyses import make_explained
from tests.server.held_out import make_evaluations

pytestmark = pytest.mark.both_databases


@pytest.fixture
def keeper_database(owner_database):
    """Whole jobs, with their verdicts, are deleted by the owner of the tables only."""
    return owner_database


# Tables whose rows belong to no job, or (chunk_columns) go with a row that does.
KEPT = {
    "baseline_events",
    "baseline_runs",
    "baselines",
    "browser_sessions",
    "duties",
    "goldens",
    "imported_groups",
}
KEPT |= {"data_reads", "tokens", "webhooks", "workers"}
BELONGING = {
    "arms",
    "attempts",
    "chunk_columns",
    "chunks",
    "evaluation_bundles",
    "events",
    "healings",
    "idempotency_keys",
    "jobs",
    "runs",
    "verdicts",
    "webhook_deliveries",
}
BELONGING |= {
    "analyses",
    "analysis_results",
    "job_notes",
    "job_tags",
    "new_questions",
    "sign_offs",
    "statements",
    "submissions",
}


@pytest.fixture
def kept(settings):
    return settings.model_copy(update={"retention_job_days": 30.0})


@pytest.fixture
def judged(database, recorded, age):
    """A function that makes a job that was judged 40 days ago; returns its id and the ids of its
    runs.
    """

    def judge(gap: float = 0.0, *, is_a_look: bool = False):
        job_id = recorded({"nvfp4": gap})
        conclude(database, job_id)
        age(job_id)
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.look, job.arms[1].question = (1, f"q{job_id}") if is_a_look else (None, None)
            runs = [run.id for run in session.get_one(Job, job_id).runs]
            session.add(
                IdempotencyKey(
                    principal="me",
                    key=job_id,
                    body_digest="",
                    job_id=job_id,
                    created_at=time.time(),
                )
            )
            session.add(
                Attempt(run_id=runs[0], attempt_number=1, state="finished", started_at=time.time())
            )
            session.add(_delivery(job_id, "delivered"))
            session.add(JobTag(job_id=job_id, tag="old"))
            session.add(
                JobNote(id=f"n{job_id}", job_id=job_id, who="me", text="old", created_at=0.0)
            )
            session.add(
                NewQuestion(id=f"q{job_id}", job_id=job_id, who="me", reason="old", created_at=0.0)
            )
            once = {
                "verdict_sha256": "",
                "policy_sha256": "",
                "who": "me",
                "reason": "old",
                "created_at": 0.0,
                "expires_at": 0.0,
            }
            stated = {
                "fact": "rounding",
                "arm": "nvfp4",
                "value": "nearest",
                "who": "me",
                "is_late": True,
                "is_informed": True,
            }
            session.add(Statement(id=f"f{job_id}", job_id=job_id, created_at=0.0, **stated))
            session.add(SignOff(id=f"s{job_id}", job_id=job_id, candidate="nvfp4", **once))
        return job_id, runs

    return judge


def _delivery(job_id, state):
    made = {
        "webhook_id": f"h{job_id}",
        "kind": "job.ended",
        "created_at": time.time(),
        "next_attempt_at": 0.0,
    }
    return WebhookDelivery(id=f"d{state}{job_id}", job_id=job_id, state=state, **made)


def _rows(database):
    with database.read() as session:
        counts = {
            table.name: session.scalar(select(func.count()).select_from(table))
            for table in Base.metadata.sorted_tables
        }
    return {name: number for name, number in counts.items() if number and name in BELONGING}


def test_every_table_has_a_rule():
    assert {table.name for table in Base.metadata.sorted_tables} == KEPT | BELONGING


def test_held_out_losses_go_with_their_job_and_can_be_sent_again(database, kept, age, deleted):
    old = make_evaluations(database, {"fp8": 0.0}, "k")
    young = make_evaluations(database, {"fp8": 0.001})
    age(old)
    assert [(what, job) for what, job, _ in deleted(kept)] == [("job", old)]
    with database.read() as session:
        assert session.scalars(select(EvaluationBundle.job_id)).all() == [young]
        assert session.scalars(select(Job.id)).all() == [young]
        assert session.scalars(select(IdempotencyKey.job_id)).all() == []
    assert make_evaluations(database, {"fp8": 0.0}, "k") != old


def test_an_old_job_goes_with_all_of_its_rows(database, kept, judged, deleted):
    old, _ = judged()
    young, runs = judged(0.01)
    with database.write() as session:
        session.get_one(Job, young).finished_at = time.time()
    before = _rows(database)
    assert [
        batch.of
        for batch in plan(kept.model_copy(update={"retention_job_days": None}), database)
        if batch.what == "job"
    ] == []
    assert [of for what, of, rows in deleted(kept) if what == "job" and rows] == [old]
    after = _rows(database)
    assert after.pop("events") == len(_events(database, young))
    assert after == {name: number // 2 for name, number in before.items() if name != "events"}
    with database.read() as session:
        assert [*session.scalars(select(Job.id))] == [young]
        assert len(store.read(session, runs[0], "train")[0]) == 1500


def _events(database, job_id):
    with database.read() as session:
        return events.after(session, job_id, 0)


@pytest.mark.parametrize("reason", ["open", "named", "reused", "to send"])
def test_a_job_that_something_needs_stays(database, kept, judged, recorded, deleted, reason):
    job_id, runs = judged()
    with database.write() as session:
        if reason == "open":
            session.get_one(Job, job_id).status = "running"
        elif reason == "named":
            session.add(
                Baseline(
                    id="b1", name="a", version=1, recipe="bf16", engine="emulated", created_at=0.0
                )
            )
            session.flush()
            session.add(BaselineRun(baseline_id="b1", run_id=runs[0], role="member"))
        elif reason == "to send":
            session.add(_delivery(job_id, "pending"))
    if reason == "reused":
        other = recorded({"nvfp4": 0.0})
        with database.write() as session:
            session.get_one(Job, other).runs[0].reused_from = runs[0]
    assert [of for what, of, _ in deleted(kept) if what == "job"] == []


@pytest.fixture
def analysis(database, age):
    """An analysis of a job whose baseline has the curves of another one, both judged 40 days ago:
    the ids of job, other and analysis.
    """
    other, job_id = make_explained(database), make_explained(database, name="planted2")
    with database.write() as session:  # as a worker writes it
        sources = {run.replicate: run for run in session.get_one(Job, other).arms[0].runs}
        for run in session.get_one(Job, job_id).arms[0].runs:
            session.execute(sql_delete(Chunk).where(Chunk.run_id == run.id))
            run.reused_from, run.kept_checkpoints = sources[run.replicate].id, None
    with database.write() as session:
        made = submit_analysis(session, job_id, WhyRequest(anyway=True))[0].id
        assert set(session.get_one(Analysis, made).setup["parents"]) <= {
            run.id for run in sources.values()
        }
    for each in (other, job_id):
        age(each)
    return job_id, other, made


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_an_analysis_explains_and_starts_from_stays(
    database, kept, analysis, deleted, has_ended
):
    if has_ended:
        with database.write() as session:
            job = session.get_one(Job, analysis[2])
            job.status, job.runs[0].state, job.finished_at = "concluded", "finished", time.time()
    assert [of for what, of, _ in deleted(kept) if what == "job"] == []
    with database.read() as session:
        assert session.get(Analysis, analysis[2]) is not None


def test_jobs_go_in_turn_once_their_analysis_is_old(database, kept, analysis, age, deleted):
    job_id, other, made = analysis
    with database.write() as session:
        job = session.get_one(Job, made)
        job.status, job.runs[0].state, job.finished_at = "concluded", "finished", time.time()
    age(made)
    gone = [[of for what, of, rows in deleted(kept) if what == "job" and rows] for _ in range(3)]
    assert gone == [[made], [job_id], [other]]
    assert _rows(database) == {}


def test_a_row_of_another_job_is_never_deleted_with_a_job(database, kept, analysis, monkeypatch):
    """Even if the job is taken for one that nothing needs: the database refuses."""
    monkeypatch.setattr(jobs, "_references_of_others", list)
    before = _rows(database)
    for batch in plan(kept, database):
        with suppress(IntegrityError):
            delete_batch(database, batch)
    after = _rows(database)
    assert {name: after[name] for name in ("jobs", "runs", "analyses")} == {
        name: before[name] for name in ("jobs", "runs", "analyses")
    }


def test_a_job_and_the_one_that_reuses_it_go_together(database, kept, judged, deleted):
    (first, runs), (second, others) = judged(), judged(0.01)
    with database.write() as session:
        session.get_one(Run, others[0]).reused_from = runs[0]
        session.get_one(Run, runs[1]).reused_from = runs[0]  # in its own job
    assert [of for what, of, rows in deleted(kept) if what == "job" and rows] == [second]
    assert [of for what, of, rows in deleted(kept) if what == "job" and rows] == [first]
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Arm)) == 0


def test_a_job_whose_run_reuses_a_curve_of_its_own_goes_while_other_jobs_stay(
    database, kept, judged, recorded, deleted
):
    """Its condition read all jobs: such a job stayed, and each deletion took as long as the record
    has runs.
    """
    (job_id, runs), young = judged(), recorded({"nvfp4": 0.0})
    with database.write() as session:
        session.get_one(Run, runs[1]).reused_from = runs[0]
    assert [of for what, of, rows in deleted(kept) if what == "job" and rows] == [job_id]
    with database.read() as session:
        assert [*session.scalars(select(Job.id))] == [young]


def test_a_look_stays_on_record_without_its_curves(api, database, kept, judged, deleted):
    (first, runs), (second, others) = judged(is_a_look=True), judged(0.01, is_a_look=True)
    with database.write() as session:
        session.get_one(Run, others[0]).reused_from = runs[0]
    before = _rows(database)
    assert [of for what, of, rows in deleted(kept) if what == "curve" and rows] == [second]
    assert [of for what, of, rows in deleted(kept) if what == "curve" and rows] == [first]
    after = _rows(database)
    kept_with_it = {
        "jobs",
        "arms",
        "runs",
        "verdicts",
        "job_tags",
        "job_notes",
        "new_questions",
        "sign_offs",
        "statements",
    }
    assert {name: after[name] for name in kept_with_it} == {
        name: before[name] for name in kept_with_it
    }
    assert after.keys() == {*kept_with_it, "events"}
    assert [what for what, *_ in deleted(kept) if what == "curve"] == []
    document = api.get(f"/api/v1/jobs/{second}").json()
    assert "PARITY_RETENTION_JOB_DAYS" in document["arms"][0]["runs"][0]["message"]
    assert api.get(f"/jobs/{second}").status_code == 200
    with database.write() as session:  # the ledger still counts it
        (counted,) = ledger._other_looks(session, Job(id="j"), [f"q{second}"])
        assert counted.id == second


def test_long_curves_go_in_parts_and_nobody_reuses_what_is_left(
    database, kept, judged, deleted, monkeypatch
):
    monkeypatch.setattr(curves, "CHUNKS_AT_ONCE", 1)
    job_id, runs = judged()
    batches = [batch for batch in plan(kept, database) if batch.of == job_id]
    assert [batch.what for batch in batches] == ["curve"] * 3 + ["job"]
    assert delete_batch(database, batches[0]) == 1
    with database.read() as session:
        begun, *others = sorted(
            (session.get_one(Run, run_id) for run_id in runs), key=lambda run: run.message is None
        )
        assert "PARITY_RETENTION_JOB_DAYS" in begun.message
        assert unsound(session, begun) is not None
        assert [unsound(session, run) for run in others] == [None] * 3
        assert session.get_one(Job, job_id).status == "concluded"
    assert [what for what, of, _ in deleted(kept) if of == job_id] == ["curve"] * 2 + ["job"]
    assert _rows(database) == {}


def test_a_role_that_may_not_delete_jobs_deletes_nothing_of_them(
    database, kept, judged, deleted, monkeypatch
):
    judged()
    monkeypatch.setattr(jobs, "_may_delete", lambda _session: False)
    before = _rows(database)
    assert [what for what, *_ in deleted(kept) if what in ("job", "curve")] == []
    assert _rows(database)["chunks"] == before["chunks"]


def test_the_rights_of_a_role_are_those_of_the_database(database, database_kind):
    with database.read() as session:
        assert jobs._may_delete(session)
        if database_kind == "sqlite":
            return
        session.execute(text("create role cannot_delete"))
        session.execute(text("set local role cannot_delete"))
        assert not jobs._may_delete(session)


def test_a_deleted_job_is_not_found(api, kept, judged, deleted):
    job_id, _ = judged()
    deleted(kept)
    assert api.get(f"/api/v1/jobs/{job_id}").status_code == 404
    assert api.get(f"/jobs/{job_id}").status_code == 404
