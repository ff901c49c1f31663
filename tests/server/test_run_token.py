"""parity.Run against a server that asks for tokens: with a wrong one nothing is lost, and the right
one sends it later.
"""

import json
import logging
import time

import numpy as np
import pytest

import parity
from parity import cli
from parity.client.delivery import Delivery
from parity.client.rest import Client
from parity.client.spool import Spool
from server.database import run_tokens
from server.database.metrics import store
from server.database.tables import Run
from server.jobs.submit import submit_job
from server.web.access import api_tokens
from tests.parity.cli.schemas import check
from training.spec import ArmSpec


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


def _resend(folder, token, served, *options):
    with pytest.raises(SystemExit) as ended:
        cli.main(
            [
                "resend",
                str(folder),
                "--server",
                served,
                *(["--token", token] if token else []),
                *options,
            ]
        )
    return ended.value.code


def test_what_was_logged_with_a_wrong_token_is_sent_with_the_right_one(
    served, database, make_job, tmp_path, caplog, capsys
):
    caplog.set_level(logging.WARNING, "parity")
    spec = make_job(
        100,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        owner, _ = api_tokens.create_token(session, "owns", ["submit"], None)
        run = (
            submit_job(session, spec, parity.policy_from_mapping({"margin": "1%"}), owner.id)
            .runs[0]
            .id
        )
        _, viewing = api_tokens.create_token(session, "reads", ["view"], None)
        _, right = api_tokens.create_token(
            session, "trains", ["worker"], None, principal_id=owner.id
        )
    with parity.Run(
        run, server=served, token=viewing, folder=tmp_path, flush_seconds=0.05, finish_seconds=60
    ) as logger:
        recorder = logger._recorder
        for step in range(50):
            logger.log(step=step, loss=1.0)
            time.sleep(0.005)  # refused long before the last step is logged
        ended = time.monotonic()
    # asked once more, and not waited for: nothing can be delivered
    assert time.monotonic() - ended < 20
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2  # when it was refused, and at the end
    assert "expected scope submit or worker" in messages[0]
    assert "parity resend" in messages[1]
    (spool,) = (tmp_path / run).glob("*.jsonl")
    assert [json.loads(line).get("step") for line in spool.read_text().splitlines()] == [
        None,
        *range(50),
        None,
    ]
    assert _resend(spool, None, served) == 4
    assert spool.exists()
    assert "kept as it is" in capsys.readouterr().err
    assert _resend(spool, None, served, "--json") == 4
    assert json.loads(capsys.readouterr().out) == []
    assert _resend(spool, right, served, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    check("sent-spools", document)
    assert document == [{"run": run, "spool": str(spool), "attempt": 1, "unreadable_lines": 0}]
    with database.read() as session:
        assert store.read(session, run, "train")[0].tolist() == list(range(50))
    assert not spool.exists()
    recorder._over.set()  # else it would go on asking for as long as the process lives
    for thread in recorder._threads:
        thread.join(10)


@pytest.fixture
def spooled(served, database, make_job, tmp_path):
    """A run whose process died after it had attached and sent ten of twenty steps: the run, the
    token of its trainer, and the spool.
    """
    spec = make_job(
        100,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        owner, _ = api_tokens.create_token(session, "owns", ["submit"], None)
        run = (
            submit_job(session, spec, parity.policy_from_mapping({"margin": "1%"}), owner.id)
            .runs[0]
            .id
        )
        _, trainer = api_tokens.create_token(
            session, "trains", ["worker"], None, principal_id=owner.id
        )
    writer = Spool(tmp_path / run, {"run": run, "server": served, "recipe": None, "manifest": {}})
    writer.write([{"step": step, "loss": 1.0} for step in range(10)])
    with Client(served, trainer) as client:
        Delivery(writer.path, client, live=True).send_all()
    writer.write([{"step": step, "loss": 1.0} for step in range(10, 20)])
    writer.close()
    return run, trainer, writer.path


def _steps(database, run):
    with database.read() as session:
        return store.read(session, run, "train")[0].tolist()


def test_what_is_left_is_sent_with_the_runs_own_token(served, database, spooled):
    run, _, path = spooled
    assert _steps(database, run) == list(range(10))
    assert _resend(path, None, served) == 0
    assert _steps(database, run) == list(range(20))
    assert not path.exists()


def test_a_token_that_was_replaced_is_asked_for_again_and_fences_nobody(served, database, spooled):
    run, trainer, path = spooled
    with database.write() as session:
        run_tokens.issue(
            session, run, 1
        )  # an attach that was repeated late, whose response nobody got
    assert _resend(path, None, served) == 4
    assert _resend(path, trainer, served) == 0
    assert _steps(database, run) == list(range(20))
    with database.read() as session:
        assert session.get_one(Run, run).attempt_number == 1


def test_a_newer_trainer_is_not_fenced_by_what_an_older_one_left(served, database, spooled, capsys):
    run, trainer, path = spooled
    with Client(served, trainer) as client:
        token = client.attach(run, {})["token"]
        with database.write() as session:
            run_tokens.issue(session, run, 1)
        assert _resend(path, trainer, served) == 4
        assert "taken over" in capsys.readouterr().err
        client.append(run, 2, "train", ["step", "loss"], np.array([[0.0], [1.0]]), token)
