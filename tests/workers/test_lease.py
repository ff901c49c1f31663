"""Claims, leases and the fence."""

import dataclasses
import threading
import time

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError

from parity.judging.policy import policy_from_mapping
from parity_lab.server.analyses import WhyRequest, submit_analysis
from parity_lab.server.tables import Analysis
from server.database import events
from server.database.tables import Attempt, Job, Run, Token, Worker
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import Order, submit_job
from server.jobs.workers import can_take, why_waiting
from tests.server.analyses import make_explained
from training.environment.maxtext_options import MaxTextOptions
from training.overrides import Override
from training.spec import ArmSpec, Data, Model
from workers import lease, queue_order
from workers.lease import LeaseLostError

pytestmark = pytest.mark.both_databases


def _claim(database, worker, seconds=5.0):
    with database.write() as session:
        return lease.claim(session, worker, seconds)


def _run(database, run_id):
    with database.read() as session:
        return session.get_one(Run, run_id)


def test_runs_are_claimed_in_order_and_once(database, submit, make_worker):
    job_id = submit()
    worker = make_worker()
    first, second = _claim(database, worker), _claim(database, worker)
    assert [first.arm, second.arm] == ["fp8_current", "nvfp4"]
    assert first.spec.recipe == "fp8_current"
    assert first.attempt_number == 1
    assert _claim(database, worker) is None
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.device_class, job.threads) == ("running", "cpu:test", 1)


def test_many_claimers_get_each_run_once(database, submit, make_worker):
    for _ in range(3):
        submit()
    worker = make_worker()
    claimed = []

    def take():
        while claim := _claim(database, worker):
            claimed.append(claim.run_id)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 6


def test_priority_goes_before_age(database, submit, make_worker, make_job):
    old = submit()
    job_ids = {}
    for priority in (-1, 5, 5):
        with database.write() as session:
            job = submit_job(
                session,
                make_job(),
                policy_from_mapping({"margin": "1.0%"}),
                order=Order(priority=priority),
            )
            job_ids.setdefault(priority, job.id)
    worker = make_worker()
    claimed = [_claim(database, worker).job_id for _ in range(8)]
    assert claimed[:2] == [job_ids[5]] * 2
    assert claimed[4:] == [old, old, job_ids[-1], job_ids[-1]]


def test_another_device_class_gets_nothing_of_a_job_that_has_begun(database, submit, make_worker):
    submit()
    assert _claim(database, make_worker("one")) is not None
    assert _claim(database, make_worker("two", device_class="cpu:other")) is None
    assert _claim(database, make_worker("three")) is not None


def test_a_worker_of_another_capability_gets_nothing(database, submit, make_worker):
    submit()
    assert _claim(database, make_worker(capability="sm100")) is None


def test_the_fence_keeps_an_old_attempt_from_writing(database, submit, make_worker):
    submit()
    worker = make_worker()
    old = _claim(database, worker)
    with database.write() as session:
        run = session.get_one(Run, old.run_id)
        assert (
            lease.give_back(session, run, "silent", attempt="crashed", max_attempts=3) == "queued"
        )
    new = _claim(database, worker)
    assert (new.run_id, new.attempt_number) == (old.run_id, 2)
    with database.write() as session:
        lease.renew(session, new, 5.0, steps_done=7)
    with pytest.raises(LeaseLostError), database.write() as session:
        lease.renew(session, old, 5.0, steps_done=99)
    with pytest.raises(LeaseLostError), database.write() as session:
        lease.finish(session, old)
    assert _run(database, old.run_id).steps_done == 7


def test_a_cancelled_run_is_lost_to_its_trainer(database, submit, make_worker):
    job_id = submit()
    claim = _claim(database, make_worker())
    with database.write() as session:
        assert cancel_job(session, job_id)
    with pytest.raises(LeaseLostError), database.write() as session:
        lease.renew(session, claim, 5.0)


def test_the_last_crash_is_final(database, submit, make_worker):
    submit()
    worker = make_worker()
    for attempt in (1, 2, 3):
        claim = _claim(database, worker)
        assert claim.attempt_number == attempt
        with database.write() as session:
            state = lease.give_back(
                session,
                session.get_one(Run, claim.run_id),
                "it fell",
                attempt="crashed",
                max_attempts=3,
            )
    assert state == "failed"
    run = _run(database, claim.run_id)
    assert run.code == "WORKER_CRASHED"
    assert "it fell" in run.message


def test_a_specification_that_can_not_be_read_fails_its_run_and_holds_up_nobody(
    database, submit, make_worker
):
    old, new = submit(), submit()
    with database.write() as session:
        job = session.get_one(Job, old)
        job.spec = {**job.spec, "from_another_version": 1}
    worker = make_worker()
    claims = [_claim(database, worker) for _ in range(4)]
    assert [claim.job_id for claim in claims if claim] == [new, new]
    with database.read() as session:
        assert {(run.state, run.code) for run in session.get_one(Job, old).runs} == {
            ("failed", "SPEC_UNREADABLE")
        }


def test_a_run_that_lacks_what_it_starts_from_fails_alone_and_at_once(
    database, owner_database, submit, make_worker
):
    job_id = make_explained(owner_database)
    with owner_database.write() as session:
        lost = submit_analysis(session, job_id, WhyRequest(anyway=True))[0].id
        analysis = session.get_one(Analysis, lost)
        analysis.setup = {**analysis.setup, "parents": ["r000000000000-0000000000"]}
        session.get_one(Job, lost).runs[0].priority = 100
    claim = _claim(database, make_worker())
    assert claim is None, "nothing else waits"
    with database.read() as session:
        (run,) = session.get_one(Job, lost).runs
        assert (run.state, run.code) == ("failed", "SPEC_UNREADABLE")
    other = submit()
    assert _claim(database, make_worker("two")).job_id == other


def test_one_claim_passes_over_every_run_that_cannot_be_read(
    database, owner_database, submit, make_worker
):
    broken, whole = [submit() for _ in range(3)], submit()
    with owner_database.write() as session:
        for job_id in broken:
            session.get_one(Job, job_id).spec = {}
    assert _claim(database, make_worker()).job_id == whole


def test_a_database_that_fails_is_no_fault_of_the_run(database, submit, make_worker, monkeypatch):
    job_id, worker = submit(), make_worker()

    def away(_run):
        raise OperationalError("select", {}, Exception("the connection was lost"))

    monkeypatch.setattr(lease, "run_spec", away)
    with pytest.raises(OperationalError):
        _claim(database, worker)
    with database.read() as session:
        assert {run.state for run in session.get_one(Job, job_id).runs} == {"queued"}


def test_a_run_whose_override_the_worker_cannot_train_fails_with_the_reason(
    database, submit, make_worker
):
    override = Override(projections=("down",), recipe="mxfp8")
    mixed, plain = submit(candidates=(ArmSpec(recipe="nvfp4", overrides=(override,)),)), submit()
    worker = make_worker()
    names = {"fp8_current": True, "nvfp4": True, "mxfp8": False}
    worker.device["can_run"] = {
        f"emulated/{name}": {"ok": ok, "reason": "its codes differ"} for name, ok in names.items()
    }
    claims = [_claim(database, worker) for _ in range(4)]
    assert [claim.job_id for claim in claims if claim] == [mixed, plain, plain]
    with database.read() as session:
        failed = session.get_one(Job, mixed).runs[1]
        assert (failed.state, failed.code) == ("failed", "RECIPE_REFUSED")
        assert "override of this arm: its codes differ" in failed.message
        assert not can_take(worker, session.get_one(Job, mixed))
        assert can_take(worker, session.get_one(Job, plain))


def test_a_worker_claims_only_runs_that_fit_its_devices(database, submit, make_worker):
    wide, narrow = submit(devices=2), submit()
    one, two, four, launched = (make_worker(name) for name in ("one", "two", "four", "launched"))
    (
        one.device["devices"],
        two.device["devices"],
        four.device["devices"],
        launched.device["devices"],
    ) = 1, 2, 4, 4
    launched.device["processes"] = 4  # that train together, on all of their devices
    assert _claim(database, launched) is None
    assert [_claim(database, worker).job_id for worker in (one, two, four)] == [narrow, wide, wide]
    with database.read() as session:
        jobs = session.get_one(Job, wide), session.get_one(Job, narrow)
        assert [
            [can_take(worker, job) for worker in (one, two, four, launched)] for job in jobs
        ] == [
            [False, True, True, False],
            [True, True, True, False],
        ]


def test_a_job_is_left_to_a_live_worker_that_may_read_its_paths(database, submit, make_worker):
    data = Data(source="text", path="/b/corpus", sequence_length=32, batch_size=2)
    theirs, ours = submit(data=data), submit()
    one, two, unknown, other = (make_worker(name) for name in ("one", "two", "unknown", "other"))
    one.device |= {"data_roots": ["/a"]}
    with database.write() as session:
        for name, device in (
            ("w-two", {"data_roots": ["/a", "/b"]}),
            ("w-other", {"data_roots": ["/b"], "device_class": "cpu:other"}),
        ):
            worker = session.get_one(Worker, name)
            worker.device = worker.device | device
        session.flush()
        session.expunge_all()
        two, other = session.get_one(Worker, "w-two"), session.get_one(Worker, "w-other")
    left = set()
    with database.write() as session:
        # what comes after it is not held up
        assert lease.claim(session, one, 60.0, left).job_id == ours
    assert left == {theirs}
    assert _claim(database, two).job_id == theirs
    with database.read() as session:
        job = session.get_one(Job, theirs)
        assert [can_take(worker, job) for worker in (one, two, unknown, other)] == [
            False,
            True,
            True,
            False,
        ]
        assert "data.path '/b/corpus' is outside its PARITY_DATA_ROOTS" in why_waiting(
            job, 0, [one]
        )
    # The one that may read them and has the job's device class is gone: whoever takes the rest
    # fails it with the reason.
    with database.write() as session:
        session.get_one(Worker, "w-two").heartbeat_at = 0.0
    with database.write() as session:
        assert lease.claim(session, one, 60.0, left).job_id == ours
        assert lease.claim(session, one, 60.0, left) is None
        assert lease.claim(session, one, 60.0, set()).job_id == theirs


@pytest.mark.parametrize("path", ["corpus", "~/corpus", "/a/../a/corpus", "/a"])
def test_a_path_that_its_own_worker_has_to_look_at_is_left_to_nobody(
    database, submit, make_worker, path
):
    job_id = submit(data=Data(source="text", path=path, sequence_length=32, batch_size=2))
    one = make_worker("one")
    one.device |= {"data_roots": ["/a"]}
    with database.write() as session:
        worker = session.get_one(Worker, make_worker("two").id)
        worker.device = worker.device | {"data_roots": ["/"]}
    assert _claim(database, one).job_id == job_id


def test_maxtext_uses_all_devices_of_its_worker(database, submit, make_worker):
    job_id = submit()
    with database.write() as session:
        session.get_one(Job, job_id).engine = "maxtext"
    worker = make_worker()
    worker.device["devices"] = 2
    assert _claim(database, worker) is None
    worker.device["devices"] = 1
    assert _claim(database, worker).job_id == job_id


def test_a_mesh_that_the_nodes_of_a_worker_cannot_hold_waits_and_holds_up_nobody(
    database, submit, make_worker
):
    one_node, two_nodes = (make_worker(name, "gpu:sm90", "sm90") for name in ("one", "two"))
    job_id, behind = (
        submit(
            engine="maxtext",
            layer_policy="all_linears",
            devices=8,
            baseline=ArmSpec(recipe="bf16"),
            candidates=(ArmSpec(recipe="fp8_current"),),
            model=Model(preset="llama3-20m"),
            data=Data(source="grain", path="/data/tokens", batch_size=8),
            maxtext=MaxTextOptions(hardware="gpu_multiprocess", dcn_data_parallelism=across),
        )
        for across in (2, -1)
    )
    for worker, slices in ((one_node, [8]), (two_nodes, [4, 4])):
        worker.device |= {"devices": 8, "slices": slices}
    left = set()
    with database.write() as session:
        assert lease.claim(session, one_node, 60.0, left).job_id == behind
    assert left == {job_id}
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert [can_take(worker, job) for worker in (one_node, two_nodes)] == [False, True]
        assert why_waiting(job, 0, [one_node]).startswith(
            "Waiting for another worker: one cannot run this job (maxtext's dcn sizes multiply to "
            "2, expected 1, the nodes of its 1 x 8"
        )
    claims = {claim.job_id: claim for claim in (_claim(database, two_nodes) for _ in range(3))}
    assert claims[job_id].slices == (4, 4)


def test_another_worker_that_knows_the_run_and_its_epoch_cannot_write(
    database, submit, make_worker
):
    submit()
    claim = _claim(database, make_worker())
    assert claim.token not in repr(claim)
    for token in ("", claim.token[:-1]):
        forged = dataclasses.replace(claim, token=token)
        for write in (
            lambda session, claim: lease.renew(session, claim, 5.0, steps_done=7),
            lease.finish,
            lambda session, claim: lease.fail(session, claim, code="TRAINER_FAILED", message="no"),
        ):
            with pytest.raises(LeaseLostError), database.write() as session:
                write(session, forged)
    assert (_run(database, claim.run_id).state, _run(database, claim.run_id).steps_done) == (
        "running",
        0,
    )
    with database.write() as session:
        lease.finish(session, claim)


def test_a_run_that_is_tried_again_keeps_what_it_has_recorded_and_every_attempt(
    database, submit, make_worker
):
    submit()
    worker = make_worker()
    claim = _claim(database, worker)
    with database.write() as session:
        lease.renew(session, claim, 5.0, steps_done=7, last_loss="2.0")
        run = session.get_one(Run, claim.run_id)
        lease.give_back(session, run, "it fell", attempt="crashed", max_attempts=3)
    assert (_run(database, claim.run_id).steps_done, _run(database, claim.run_id).last_loss) == (
        7,
        "2.0",
    )
    assert _run(database, claim.run_id).code == "WORKER_CRASHED"
    _claim(database, worker)
    assert _run(database, claim.run_id).code is None
    with database.read() as session:
        first, second = session.scalars(
            select(Attempt).where(Attempt.run_id == claim.run_id).order_by(Attempt.attempt_number)
        )
    assert (first.state, first.code, second.state) == ("crashed", "WORKER_CRASHED", "running")
    assert first.started_at <= first.ended_at <= second.started_at
    assert "it fell" in first.message


def test_a_token_with_a_limit_trains_no_more_runs_at_once(database, submit, make_worker):
    limited, free = submit(), submit()
    with database.write() as session:
        token = Token(
            id="t-limited",
            principal="t-limited",
            name="ci",
            digest="",
            scopes=["submit"],
            max_running=1,
            created_at=time.time(),
        )
        session.add(token)
        session.get_one(Job, limited).submitted_by = token.id
    worker = make_worker()
    first, second, third = (
        _claim(database, worker),
        _claim(database, worker),
        _claim(database, worker),
    )
    assert [claim.job_id for claim in (first, second, third)] == [limited, free, free]
    assert _claim(database, worker) is None
    with database.write() as session:
        lease.finish(session, first)
    assert _claim(database, worker).job_id == limited


def test_claims_at_once_keep_a_token_below_its_limit(database, submit, make_worker):
    for _ in range(4):
        job_id = submit()
        with database.write() as session:
            session.get_one(Job, job_id).submitted_by = "t-limited"
    with database.write() as session:
        session.add(
            Token(
                id="t-limited",
                principal="t-limited",
                name="ci",
                digest="",
                scopes=["submit"],
                max_running=2,
                created_at=time.time(),
            )
        )
    worker, claimed = make_worker(), []
    threads = [
        threading.Thread(target=lambda: claimed.append(_claim(database, worker))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len([claim for claim in claimed if claim]) <= 2


def test_what_a_limit_leaves_counts_earlier_attempts(database, submit, make_worker):
    job_id = submit()
    worker = make_worker()
    with database.write() as session:
        session.get_one(Job, job_id).max_run_seconds = 100.0
    first = _claim(database, worker)
    assert first.max_seconds == 100.0
    with database.write() as session:
        lease.give_back(
            session,
            session.get_one(Run, first.run_id),
            "it fell",
            attempt="crashed",
            max_attempts=3,
        )
        session.get_one(Attempt, (first.run_id, 1)).started_at -= 60
    again = _claim(database, worker)
    assert (again.run_id, again.attempt_number) == (first.run_id, 2)
    assert again.max_seconds == pytest.approx(40.0, abs=2.0)
    assert (first.seconds_trained, again.seconds_trained) == (0.0, pytest.approx(60.0, abs=2.0))


def test_cancel_against_live_writers_never_deadlocks(database, submit, make_worker):
    """On PostgreSQL, locking jobs and runs in two orders would end one of the two with a
    deadlock.
    """
    worker = make_worker()
    failures = []

    def write(claim):
        try:
            while True:
                with database.write() as session:
                    lease.renew(session, claim, 5.0)
                    time.sleep(0.002)
                    events.emit(session, claim.job_id, "metric", {})
        except LeaseLostError:
            pass
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    for _ in range(10):
        job_id = submit()
        writers = [
            threading.Thread(target=write, args=(_claim(database, worker),)) for _ in range(2)
        ]
        for writer in writers:
            writer.start()
        time.sleep(0.02)
        with database.write() as session:
            assert cancel_job(session, job_id)
        for writer in writers:
            writer.join()
    assert failures == []


def test_a_run_that_was_given_back_in_peace_is_no_crash(database, submit, make_worker):
    submit()
    worker = make_worker()
    for _ in range(5):
        claim = _claim(database, worker)
        with database.write() as session:
            assert (
                lease.give_back(
                    session,
                    session.get_one(Run, claim.run_id),
                    "stopped",
                    attempt="released",
                    max_attempts=1,
                )
                == "queued"
            )


def test_no_secret_of_a_log_is_kept_of_a_run_that_broke(database, submit, make_worker):
    job_id = submit()
    worker, text = (
        make_worker(),
        "the end of its log: cannot reach https://me:hunter2@corpus/ with HF_TOKEN=hf_abcdefgh",
    )
    first, second = _claim(database, worker), _claim(database, worker)
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, first.run_id), text, attempt="crashed", max_attempts=3
        )
        lease.fail(session, second, code="DATA_NOT_READABLE", message=text)
    with database.read() as session:
        messages = [run.message for run in session.scalars(select(Run).where(Run.job_id == job_id))]
        messages += [attempt.message for attempt in session.scalars(select(Attempt))]
        messages += [
            event.payload.get("message")
            for event in events.after(session, job_id, 0)
            if event.payload.get("message")
        ]
    assert len(messages) == 6
    for message in messages:
        assert "https://me:***@corpus/ with HF_TOKEN=***" in message


def test_the_end_of_a_log_is_kept_whatever_bytes_are_in_it(database, submit, make_worker):
    """PostgreSQL takes no NUL, and a run that can't say why it failed would be trained again."""
    submit()
    claim = _claim(database, make_worker())
    with database.write() as session:
        lease.fail(session, claim, code="TRAINER_FAILED", message="core dumped: a\0b")
    run = _run(database, claim.run_id)
    assert (run.state, run.message) == ("failed", "core dumped: a\N{REPLACEMENT CHARACTER}b")


def test_a_lease_is_extended_by_renewal(database, submit, make_worker):
    submit()
    claim = _claim(database, make_worker(), seconds=1.0)
    with database.write() as session:
        lease.renew(session, claim, 100.0)
    assert _run(database, claim.run_id).lease_expires_at > time.time() + 90


def test_a_claim_sorts_nothing(database, submit, make_worker):
    """The index has the whole order, so that a claim from a long queue needs no statistics of the
    tables.
    """
    for _ in range(3):
        submit()
    said = []
    with database.read() as session:
        on_sqlite = session.get_bind().dialect.name == "sqlite"
        # preferred on a table of few rows
        for off in () if on_sqlite else ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
            session.execute(text(f"set local {off} = off"))

        def explained(connection, cursor, statement, parameters, _context, _many):
            if "FROM runs JOIN jobs" in statement and not said:
                said.append("")
                how = "EXPLAIN QUERY PLAN " if on_sqlite else "EXPLAIN "
                plan = connection.exec_driver_sql(how + statement, parameters)
                said[0] = "\n".join(str(row) for row in plan)

        event.listen(session.get_bind(), "before_cursor_execute", explained)
        assert queue_order.next_run(session, make_worker()) is not None
        event.remove(session.get_bind(), "before_cursor_execute", explained)
    assert "runs_by_claim" in said[0]
    assert "Sort" not in said[0]
    assert "TEMP B-TREE" not in said[0]
