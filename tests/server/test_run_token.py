"""parity.Run against a server that asks for tokens: with a wrong one nothing is lost, and the right one sends it later."""

import json
import logging
import time

import pytest

import parity
from parity.cli import main as cli
from server.database import store
from server.jobs.submit import submit_job
from server.web import auth
from training.spec import Arm


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


def _resend(folder, token, served, *options):
    with pytest.raises(SystemExit) as ended:
        cli.main(["resend", str(folder), "--server", served, *(["--token", token] if token else []), *options])
    return ended.value.code


def test_what_was_logged_with_a_wrong_token_is_sent_with_the_right_one(served, database, make_job, tmp_path, caplog, capsys):
    caplog.set_level(logging.WARNING, "parity")
    spec = make_job(100, engine="external", baseline=Arm(recipe="fp8_current"), candidates=(Arm(recipe="nvfp4"),))
    with database.write() as session:
        owner, _ = auth.create_token(session, "owns", ["submit"], None)
        run = submit_job(session, spec, parity.criteria_from_mapping({"margin": "1%"}), owner.id).runs[0].id
        _, viewing = auth.create_token(session, "reads", ["view"], None)
        _, right = auth.create_token(session, "trains", ["worker"], None, principal_id=owner.id)
    with parity.Run(run, server=served, token=viewing, folder=tmp_path, flush_seconds=0.05, finish_seconds=60) as logger:
        recorder = logger._recorder
        for step in range(50):
            logger.log(step=step, loss=1.0)
            time.sleep(0.005)  # refused long before the last step is logged
        ended = time.monotonic()
    assert time.monotonic() - ended < 20  # asked once more, and not waited for: nothing can be delivered
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2  # when it was refused, and at the end
    assert "expected scope submit or worker" in messages[0]
    assert "parity resend" in messages[1]
    (spool,) = (tmp_path / run).glob("*.jsonl")
    assert [json.loads(line).get("step") for line in spool.read_text().splitlines()] == [None, *range(50), None]
    assert _resend(spool, None, served) == 4
    assert spool.exists()
    assert "kept as it is" in capsys.readouterr().err
    assert _resend(spool, None, served, "--json") == 4
    assert json.loads(capsys.readouterr().out) == []
    assert _resend(spool, right, served, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"run": run, "spool": str(spool), "attempt": 1, "unreadable_lines": 0}]
    with database.read() as session:
        assert store.read(session, run, "train")[0].tolist() == list(range(50))
    assert not spool.exists()
    recorder._over.set()  # else it would go on asking for as long as the process lives
    for thread in recorder._threads:
        thread.join(10)
