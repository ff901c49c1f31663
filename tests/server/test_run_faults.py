"""parity.Run where something between it and its server is wrong: proxies, other processes, what an
earlier process left.
"""

import dataclasses
import json
import logging
import threading
import time

import httpx2
import pytest

import parity
from parity import cli
from parity.client import recorder, spool
from parity.client.delivery import Delivery
from parity.client.rest import Client, ClientError
from server.database.metrics import store
from server.database.tables import LISTENING, Duty
from server.database.tables import Run as RunRow
from server.jobs import lifecycle
from server.jobs.conclude import conclude
from server.jobs.listening import listens, renew
from server.jobs.stale_runs import mark_or_fail_stale
from server.jobs.submit import submit_job
from training.spec import ArmSpec

FAST = {"flush_seconds": 0.05, "finish_seconds": 20.0}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(
        recorder, "PAUSES", dataclasses.replace(recorder.PAUSES, first_seconds=0.02)
    )


@pytest.fixture
def run(database, make_job):
    """The id of a run that awaits its trainer."""
    spec = make_job(
        1000,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        return submit_job(session, spec, parity.policy_from_mapping({"margin": "1%"})).runs[0].id


def _read(database, run, kind="train"):
    with database.read() as session:
        return store.read(session, run, kind)


def _state(database, run):
    with database.read() as session:
        row = session.get_one(RunRow, run)
        return row.state, row.attempt_number, row.message


def _left(folder, run, served, *rows):
    """A spool of a process that is gone."""
    (folder / run).mkdir(exist_ok=True)
    path = folder / run / "1-1.jsonl"
    header = {"parity_spool": 1, "run": run, "server": served, "recipe": None, "manifest": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    return path


@pytest.mark.parametrize("status", [302, 404, 521])
def test_a_proxy_that_answers_in_the_servers_place_only_delays(
    served, database, run, tmp_path, monkeypatch, status
):
    request, paths = httpx2.Client.request, []

    def through_a_proxy(self, method, path, **more):
        paths.append(path)
        if len(paths) in (1, 3, 4):
            return httpx2.Response(
                status,
                content=b"<html>back soon",
                request=httpx2.Request(method, f"{served}{path}"),
            )
        return request(self, method, path, **more)

    monkeypatch.setattr(httpx2.Client, "request", through_a_proxy)
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        for step in range(50):
            logger.log(step=step, loss=1.0)
    assert _read(database, run)[0].tolist() == list(range(50))
    assert len(paths) > 4


@pytest.mark.parametrize("kind", ["", "too-large"])
def test_who_takes_less_at_once_gets_less(served, database, run, tmp_path, monkeypatch, kind):
    """A server with a small PARITY_MAX_BODY_BYTES, or a proxy with a limit of its own."""
    append, sizes = Client.append, []

    def limited(self, run_id, attempt_number, of, names, table, token=None):
        if table.nbytes > 2048:
            raise ClientError(413, "too large", kind)
        sizes.append(table.nbytes)
        return append(self, run_id, attempt_number, of, names, table, token)

    monkeypatch.setattr(Client, "append", limited)
    with parity.Run(
        run, server=served, folder=tmp_path, strict=True, flush_seconds=1.0, finish_seconds=10.0
    ) as logger:
        for step in range(700):
            logger.log(step=step, loss=1.0)
    assert _read(database, run)[0].tolist() == list(range(700))
    assert len(sizes) < 20


def test_other_values_at_each_step_are_recorded(served, database, run, tmp_path):
    with parity.Run(run, server=served, folder=tmp_path, strict=True, flush_seconds=1.0) as logger:
        for step in range(150):
            logger.log(step=step, loss=1.0, **{f"layer{step % 100}": step})
    steps, columns = _read(database, run)
    assert steps.tolist() == list(range(150))
    assert set(columns) == {"lm_loss", *(f"layer{number}" for number in range(100))}
    assert (columns["layer7"][7], columns["layer7"][107]) == (7.0, 107.0)


def test_a_step_validated_again_costs_nothing_else(served, database, run, tmp_path, caplog):
    """As after a restart from a checkpoint within one process: validation first, then the steps."""
    caplog.set_level(logging.WARNING, "parity")
    with parity.Run(run, server=served, folder=tmp_path, **FAST) as logger:
        for step in range(20):
            logger.log(step=step, loss=1.0)
        for step, loss in ((10, 2.0), (19, 2.1), (10, 2.5)):
            logger.log(step=step, validation_loss=loss)
        logger.log(step=20, loss=1.0, validation_loss=2.2)
        for step in range(11, 40):
            logger.log(step=step, loss=1.5, **({"validation_loss": 1.9} if step == 19 else {}))
    assert _read(database, run)[1]["lm_loss"].tolist() == [1.0] * 11 + [1.5] * 29
    steps, columns = _read(database, run, "validation")
    assert (steps.tolist(), columns["loss"].tolist()) == ([10, 19], [2.0, 1.9])
    assert _state(database, run)[:2] == ("finished", 2)
    assert [record.getMessage() for record in caplog.records] == [
        "step 10 is not recorded: its validation loss was logged before"
    ]


@pytest.mark.both_databases
def test_a_last_word_that_no_database_holds_arrives_all_the_same(served, database, run, tmp_path):
    """A name of a file as Python spells bytes that are no UTF-8, and a NUL."""
    logger = parity.Run(
        run,
        server=served,
        folder=tmp_path,
        manifest={"data": "/data/\udcff\0"},
        strict=True,
        **FAST,
    )
    logger.log(step=0, loss=1.0)
    logger.finish("broke_off", "FileNotFoundError: /data/\udcff\0")
    assert _state(database, run) == ("awaiting_data", 1, "FileNotFoundError: /data/??")


@pytest.mark.both_databases
def test_a_server_that_is_lost_and_found_is_said_each_time(server, database, run, tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING),
        parity.Run(run=run, server=server.address, folder=tmp_path, **FAST) as record,
    ):
        for number in range(2):
            record.log(step=2 * number, loss=2.0)
            _until(lambda number=number: len(_read(database, run)[0]) == 2 * number + 1)
            server.stop()
            record.log(step=2 * number + 1, loss=2.0)
            _until(
                lambda number=number: (
                    len(_said(caplog, "saved locally and sent again")) == number + 1
                )
            )
            assert len(_said(caplog, "takes steps again")) == number
            server.start()
            _until(lambda number=number: len(_said(caplog, "takes steps again")) == number + 1)
    assert _read(database, run)[0].tolist() == [0, 1, 2, 3]
    assert len(caplog.messages) == 4


def _until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _said(caplog, words):
    return [message for message in caplog.messages if words in message]


def test_a_weekend_without_the_service_ends_no_run(server, settings, database, run, tmp_path):
    """Two days pass while the service is stopped; whoever looks first after them fails nothing, and
    the trainer goes on.
    """
    logger = parity.Run(run, server=server.address, folder=tmp_path, strict=True, **FAST)
    logger.log(step=0, loss=1.0)
    while not len(_read(database, run)[0]):
        time.sleep(0.02)
    server.stop()
    logger.log(step=1, loss=1.0)
    with database.write() as session:
        session.get_one(Duty, LISTENING).expires_at -= 2 * 86_400
        session.get_one(RunRow, run).lease_expires_at -= 2 * 86_400
    assert mark_or_fail_stale(settings, database) == [], (
        "the housekeeper looks before the service is back"
    )
    server.start()
    while not _listens(database):
        time.sleep(0.02)
    assert mark_or_fail_stale(settings, database) == [], (
        "the housekeeper looks before the trainer's next try"
    )
    for step in range(2, 100):
        logger.log(step=step, loss=1.0)
    logger.finish()
    assert _read(database, run)[0].tolist() == list(range(100))
    assert _state(database, run)[:2] == ("finished", 1)


def _listens(database):
    with database.read() as session:
        return listens(session)


@pytest.mark.both_databases
def test_a_spool_of_a_run_that_was_given_up_is_taken_while_its_job_is_open(
    served, settings, database, run, tmp_path
):
    path = _left(tmp_path, run, served, {"step": 0, "loss": 1.0}, {"step": 1, "loss": 1.0})
    with Client(served) as client:
        Delivery(path, client).attach()
    with database.write() as session:
        renew(session, settings.external_stale_seconds)
        session.get_one(RunRow, run).lease_expires_at -= settings.external_silence_seconds
    assert mark_or_fail_stale(settings, database) == [run]
    with Client(served) as client:
        Delivery(path, client).send_rest()
    assert _read(database, run)[0].tolist() == [0, 1]
    assert (_state(database, run)[:2], path.exists()) == (("awaiting_data", 1), False)


@pytest.mark.both_databases
def test_a_spool_of_a_run_whose_job_is_over_is_kept_and_the_trainer_told(
    served, settings, database, run, tmp_path, caplog
):
    logger = parity.Run(run, server=served, folder=tmp_path, **FAST)
    logger.log(step=0, loss=1.0)
    while not len(_read(database, run)[0]):
        time.sleep(0.02)
    with database.write() as session:
        renew(session, settings.external_stale_seconds)
        row = session.get_one(RunRow, run)
        row.lease_expires_at -= settings.external_silence_seconds
        others = [other.id for other in row.job.runs if other.id != run]
        for other in others:
            lifecycle.cancel(session, session.get_one(RunRow, other))
        job_id = row.job_id
    assert mark_or_fail_stale(settings, database) == [run]
    conclude(database, job_id)
    logger.log(step=1, loss=2.0)
    logger.finish()
    assert f"job {job_id} is failed already" in caplog.text
    (kept,) = (tmp_path / run).glob(f"*{spool.REFUSED}")
    assert [row["step"] for row in spool.read_part(kept, 0, 10).rows] == [0, 1]


def test_what_an_earlier_process_left_broken_holds_up_nobody(
    served, database, run, tmp_path, caplog
):
    path = _left(tmp_path, run, served, {"step": 0, "loss": 1.0}, {"step": 1, "loss": "low"})
    with parity.Run(run, server=served, folder=tmp_path, **FAST) as logger:
        logger.log(step=2, loss=1.0)
    assert 2 in _read(database, run)[0]
    assert _state(database, run)[0] == "finished"
    assert path.exists()
    assert f"{path}: it could not be sent and is kept" in caplog.text


def test_the_spool_of_a_live_process_is_left_to_it(served, database, run, tmp_path, capsys):
    with parity.Run(run, server=served, folder=tmp_path, strict=True, **FAST) as logger:
        logger.log(step=0, loss=1.0)
        while not len(_read(database, run)[0]):
            time.sleep(0.02)
        with pytest.raises(SystemExit) as ended:
            cli.main(["resend", *map(str, spool.list_spools(tmp_path / run)), "--server", served])
        logger.log(step=1, loss=1.0)
    assert ended.value.code == 0
    assert "skipped: in use by a running process" in capsys.readouterr().err
    assert _read(database, run)[0].tolist() == [0, 1]


def test_two_who_find_the_same_spool_send_it_once(
    served, database, run, tmp_path, monkeypatch, capsys
):
    """A trainer begins while `parity resend` is at work: the second to attach would be refused, and
    the spool set aside under the first.
    """
    path = _left(tmp_path, run, served, *({"step": step, "loss": 1.0} for step in range(30)))
    attach, sending, resent = Client.attach, threading.Event(), threading.Event()

    def slow(self, *arguments, **more):
        answer = attach(self, *arguments, **more)
        sending.set()
        resent.wait(5)
        return answer

    def send_as_a_trainer():
        with spool.lock(path) as is_left, Client(served) as client:
            assert is_left
            Delivery(path, client).send_rest()

    monkeypatch.setattr(Client, "attach", slow)
    trainer = threading.Thread(target=send_as_a_trainer)
    trainer.start()
    assert sending.wait(5)
    monkeypatch.setattr(Client, "attach", attach)
    with pytest.raises(SystemExit) as ended:
        cli.main(["resend", str(tmp_path), "--server", served])
    resent.set()
    trainer.join()
    assert ended.value.code == 0, capsys.readouterr().err
    assert _read(database, run)[0].tolist() == list(range(30))
    assert _state(database, run)[:2] == ("awaiting_data", 1)
    assert not path.exists()


@pytest.mark.parametrize("stale", [False, True])
def test_a_leftover_whose_attach_was_not_heard_of_is_sent(served, database, run, tmp_path, stale):
    """Its process ended between the server's answer and its note of the attempt; also where the
    server has given that attempt up since.
    """
    path = _left(tmp_path, run, served, *({"step": step, "loss": 1.0} for step in range(20)))
    spool.remember_attempt(path.parent, run, 0)
    with Client(served) as client:
        assert client.attach(run, {}, key=path.stem)["attempt"] == 1
        assert client.attach(run, {}, key=path.stem)["attempt"] == 1
        if stale:
            client.finish(run, 1, "broke_off")
        Delivery(path, client).send_rest()
    assert _read(database, run)[0].tolist() == list(range(20))
    assert _state(database, run)[:2] == ("awaiting_data", 2 if stale else 1)
    assert not path.exists()


def test_a_leftover_does_not_fence_who_attached_after_it(served, database, run, tmp_path):
    path = _left(tmp_path, run, served, {"step": 0, "loss": 1.0})
    spool.remember_attempt(path.parent, run, 0)
    with Client(served) as client:
        client.attach(run, {}, key=path.stem)
        client.attach(run, {}, key="another")
        with pytest.raises(ClientError, match="a newer trainer has taken over"):
            Delivery(path, client).send_rest()
    assert _state(database, run)[:2] == ("running", 2)
