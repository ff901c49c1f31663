"""Every edge of the run and job tables through its verb: the state, the attempt's end, and one
event with the whole document.
"""

import ast
import re
from collections.abc import Callable

import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database import events, states
from server.database.states import (
    ATTEMPT_MOVES,
    HELD_KINDS,
    JOB_MOVES,
    RUN_ENDED,
    RUN_MOVES,
    begin_attempt,
)
from server.database.tables import Attempt, Job, Run, Webhook, WebhookDelivery, Worker
from server.jobs import lifecycle
from server.jobs.submit import submit_job
from server.settings import CHECKOUT
from training.spec import SPEC_VERSION

pytestmark = pytest.mark.both_databases

WORKER = Worker(
    id="w-one",
    name="one",
    device={"device_class": "cpu:test", "threads_per_run": 1, "spec_version": SPEC_VERSION},
)
# that one: test_listening
RUN_EDGES = [
    (start, end) for start, ends in RUN_MOVES.items() for end in sorted(ends) if start != "failed"
]
JOB_EDGES = [(start, end) for start, ends in JOB_MOVES.items() for end in sorted(ends)]
CALLED_UP = ("awaiting_data", "queued")


def call_up(session, run):
    run.kind = HELD_KINDS[0]
    return lifecycle.call_up(session, run)


# the verb of each edge
RUN_VERBS: dict[tuple[str, str], Callable[..., object]] = {
    ("queued", "running"): lambda session, run: lifecycle.claim(session, run, WORKER, 5.0),
    ("awaiting_data", "running"): lambda session, run: lifecycle.attach(
        session, run, {"version.torch": "2.9"}, "f", "key", 5.0
    ),
    ("failed", "running"): lambda session, run: lifecycle.go_on(session, run, 5.0),
    CALLED_UP: call_up,
    ("running", "finished"): lambda session, run: lifecycle.finish(
        session, run, code="DIVERGED", message="why"
    ),
    ("running", "queued"): lambda session, run: lifecycle.requeue(
        session, run, attempt="crashed", code="WORKER_CRASHED", message="why"
    ),
    ("running", "awaiting_data"): lambda session, run: lifecycle.requeue(
        session, run, attempt="lost", code="SUPERSEDED", message="why"
    ),
    **{
        (start, "failed"): lambda session, run: lifecycle.fail(
            session, run, code="CODE", message="why"
        )
        for start, _ in RUN_EDGES
    },
    **{
        (start, "cancelled"): lambda session, run: lifecycle.cancel(
            session, run, code="CODE", message="why"
        )
        for start, _ in RUN_EDGES
    },
}
CODES = {
    "running": None,
    "finished": "DIVERGED",
    "queued": "WORKER_CRASHED",
    "awaiting_data": "SUPERSEDED",
}
ATTEMPTS = {
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "queued": "crashed",
    "awaiting_data": "lost",
}


@pytest.fixture
def job_in(database, make_job):
    """A function that writes a job in a state whose first run is in a state, with its attempt if it
    runs; (job id, run id).
    """

    def make(status="queued", state="queued", engine="emulated"):
        with database.write() as session:
            job = submit_job(
                session, make_job(engine=engine), policy_from_mapping({"margin": "1%"})
            )
            run = job.runs[0]
            job.status, run.state = status, state
            if state == "running":
                run.attempt_number, run.worker_id, run.lease_expires_at = 1, "w-one", 1.0
                begin_attempt(session, run.id, 1, "w-one")
            return job.id, run.id

    return make


def _new_events(session, job_id):
    """The events that followed the submission's."""
    return [(event.kind, event.payload) for event in events.after(session, job_id, 1)]


@pytest.mark.parametrize(("start", "end"), RUN_EDGES)
def test_every_edge_of_a_run_has_a_verb_that_does_all_of_it(database, job_in, start, end):
    engine = "external" if "awaiting_data" in (start, end) else "emulated"
    job_id, run_id = job_in("queued" if end == "running" else "running", start, engine)
    with database.write() as session:
        assert RUN_VERBS[start, end](session, session.get_one(Run, run_id, with_for_update=True))
    with database.read() as session:
        run, attempts = (
            session.get_one(Run, run_id),
            session.scalars(select(Attempt).where(Attempt.run_id == run_id)).all(),
        )
        code, message = CODES.get(end, "CODE"), None if end == "running" else "why"
        if (start, end) == CALLED_UP:
            code = message = None
        assert (run.state, run.code, run.message) == (end, code, message)
        document = {
            "run": run_id,
            "arm": run.arm.name,
            "state": end,
            "code": code,
            "message": message,
        }
        if end == "running":
            assert [
                (attempt.attempt_number, attempt.state, attempt.ended_at) for attempt in attempts
            ] == [(1, "running", None)]
            assert (run.attempt_number, session.get_one(Job, job_id).status) == (1, "running")
            assert run.lease_expires_at > run.started_at > 0
            assert _new_events(session, job_id) == [
                ("status", {"status": "running"}),
                ("run", document | {"attempt": 1}),
            ]
        else:
            note = None if end == "cancelled" else message  # what the attempt itself noted stays
            closed = [(1, ATTEMPTS[end], code, note)] if start == "running" else []
            assert [
                (attempt.attempt_number, attempt.state, attempt.code, attempt.message)
                for attempt in attempts
            ] == closed
            assert all(attempt.ended_at for attempt in attempts)
            assert (run.lease_expires_at, run.finished_at is not None) == (None, end in RUN_ENDED)
            assert _new_events(session, job_id) == [("run", document)]


@pytest.mark.parametrize(("start", "end"), JOB_EDGES)
def test_every_edge_of_a_job_has_a_verb_that_does_all_of_it(database, job_in, start, end):
    job_id, run_id = job_in(start)
    with database.write() as session:
        session.add(Webhook(id="h-one", events=["job.ended", "verdict.given"]))
    verdicts = {"nvfp4": "pass"} if end == "concluded" else {}
    with database.write() as session:
        if start == "failed":
            job = session.get_one(Job, job_id, with_for_update=True)
            assert not lifecycle.reopen_job(session, job)  # it failed on its own
            job.code, job.message, job.finished_at, job.started_at, job.judge_tries = (
                states.JUDGE_FAILED,
                "why",
                2.0,
                1.0,
                5,
            )
            assert lifecycle.reopen_job(session, job)
            assert not lifecycle.reopen_job(session, job)
        elif start == "concluded":  # its verdict is gone
            job = session.get_one(Job, job_id, with_for_update=True)
            job.started_at, job.finished_at, job.judge_tries = 1.0, 2.0, 5
            assert lifecycle.reopen_job(session, job)
            assert not lifecycle.reopen_job(session, job)
        elif end == "running":
            assert lifecycle.claim(session, session.get_one(Run, run_id), WORKER, 5.0) == 1
        else:
            assert lifecycle.end_job(
                session, job_id, end, code="CODE", message="why", verdicts=verdicts
            )
            assert not lifecycle.end_job(session, job_id, "cancelled")
    with database.read() as session:
        job, emitted = session.get_one(Job, job_id), _new_events(session, job_id)
        assert job.status == end
        assert [payload for kind, payload in emitted if kind == "status"] == [{"status": end}]
        assert [payload for kind, payload in emitted if kind == "verdict"] == (
            [verdicts] if verdicts else []
        )
        deliveries = sorted(
            session.scalars(select(WebhookDelivery.kind).where(WebhookDelivery.job_id == job_id))
        )
        if start in ("concluded", "failed"):
            assert (
                job.started_at,
                job.finished_at,
                job.code,
                job.message,
                job.judge_tries,
                deliveries,
            ) == (1.0, None, None, None, 0, [])
        elif end == "running":
            assert (job.started_at > 0, job.device_class, job.threads, deliveries) == (
                True,
                "cpu:test",
                1,
                [],
            )
        else:
            assert (job.finished_at > 0, job.code, job.message) == (True, "CODE", "why")
            assert deliveries == ["job.ended", "verdict.given"] if verdicts else ["job.ended"]


def test_a_verb_changes_nothing_where_no_edge_leads_on(database, job_in):
    for state in RUN_MOVES:
        job_id, run_id = job_in("running", state)
        others = [
            verb
            for (start, end), verb in RUN_VERBS.items()
            if start != state and end not in ("failed", "cancelled")
        ]
        with database.write() as session:
            for verb in RUN_VERBS.values() if state in RUN_ENDED else others:
                assert not verb(session, session.get_one(Run, run_id))
        with database.read() as session:
            assert session.get_one(Run, run_id).state == state
            assert _new_events(session, job_id) == []


def test_whoever_comes_second_changes_nothing(database, job_in):
    """Another writer moved the run after it was read: to another state, or to another attempt."""
    job_id, run_id = job_in("running", "running")
    for changes in ({"state": "queued"}, {"attempt_number": 2}):
        with database.write() as session:
            run = session.get_one(Run, run_id)
            session.expunge(run)
            for name, value in changes.items():
                setattr(session.get_one(Run, run_id), name, value)
            session.flush()
            for verb in RUN_VERBS.values():
                assert not verb(session, run)
            assert _new_events(session, job_id) == []
            session.rollback()


@pytest.mark.parametrize(
    "attempt", sorted(ATTEMPT_MOVES["running"] - {"finished", "failed", "cancelled"})
)
def test_a_queued_run_is_free_and_says_how_its_attempt_broke(database, job_in, attempt):
    _, run_id = job_in("running", "running")
    with database.write() as session:
        assert lifecycle.requeue(
            session,
            session.get_one(Run, run_id),
            attempt=attempt,
            code=None,
            message="why",
            crashes=3,
        )
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert (run.worker_id, run.lease_expires_at, run.steps_per_second, run.crashes) == (
            None,
            None,
            None,
            3,
        )
        assert session.get_one(Attempt, (run_id, 1)).state == attempt


def test_a_note_is_kept_with_the_attempt_alone_and_in_the_event(database, job_in):
    job_id, run_id = job_in("running", "running")
    with database.write() as session:
        assert lifecycle.finish(
            session, session.get_one(Run, run_id), note="not trained", steps_done=7
        )
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert (run.message, run.steps_done, session.get_one(Attempt, (run_id, 1)).message) == (
            None,
            7,
            "not trained",
        )
        ((_, payload),) = _new_events(session, job_id)
        assert payload["message"] == "not trained"


def test_a_mark_leaves_the_state_and_emits_the_same_document(database, job_in):
    job_id, run_id = job_in("running", "running")
    with database.write() as session:
        lifecycle.mark(session, session.get_one(Run, run_id), "STALE", "no data for 2 hours")
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert (run.state, run.code, session.get_one(Attempt, (run_id, 1)).state) == (
            "running",
            "STALE",
            "running",
        )
        document = {
            "run": run_id,
            "arm": run.arm.name,
            "state": "running",
            "code": "STALE",
            "message": "no data for 2 hours",
        }
        assert _new_events(session, job_id) == [("run", document)]


def test_no_secret_of_a_message_is_kept_or_emitted(database, job_in):
    job_id, run_id = job_in("running", "running")
    with database.write() as session:
        lifecycle.fail(
            session,
            session.get_one(Run, run_id),
            code="CODE",
            message="https://me:hunter2@corpus/ a\0b",
        )
    with database.read() as session:
        ((_, payload),) = _new_events(session, job_id)
        for message in (
            session.get_one(Run, run_id).message,
            session.get_one(Attempt, (run_id, 1)).message,
            payload["message"],
        ):
            assert message == "https://me:***@corpus/ a\N{REPLACEMENT CHARACTER}b"


def _imports(path):
    """Every `module.name` that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_other_module_moves_runs_and_jobs():
    """Neither by the compare-and-set of states.py, nor by assigning a state, nor with an event of a
    run of its own.
    """
    moves = {
        f"server.database.states.{name}"
        for name in ("move_run", "move_job", "begin_attempt", "end_attempt", "resume_attempt")
    }
    own_way = re.compile(r"\b(run|job)\.(state|status) = |emit\([^,]+,[^,]+, \"(run|status)\"")
    lifecycle_path, submit_path = (
        CHECKOUT / "server" / "jobs" / name for name in ("lifecycle.py", "submit.py")
    )
    assert moves <= set(_imports(lifecycle_path))
    for path in (
        path
        for package in ("parity", "parity_lab", "training", "server", "workers", "tools")
        for path in (CHECKOUT / package).rglob("*.py")
    ):
        if path == lifecycle_path:
            continue
        assert not {*moves, "server.database.states"} & set(_imports(path)), path
        # a new job's first status is no move
        assert path == submit_path or not own_way.search(path.read_text()), path
