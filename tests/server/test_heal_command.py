"""`parity heal` against a real server: the cost first, then the answer; what cannot be healed is
one line.
"""

import json
import shlex
import threading
import time

import pytest

from parity import cli
from parity_lab.server.healings import HealRequest, healing_of, submit_healing
from server.database.tables import Job
from server.errors import NotFoundError
from server.jobs.conclude import conclude
from server.jobs.lifecycle import cancel_job
from tests.documentation import run_by
from tests.parity.cli.schemas import check
from tests.server.healings import KEPT, make_failed, train_forks

GAPS = dict(zip(KEPT, (0.001, 0.002, 0.003, 0.03), strict=True))


@pytest.fixture
def parity(served, capsys):
    """A function that runs the command line; the exit code, what it printed, and the errors."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def when_queued(database, job_id, act):
    """Do something with the healing of a job once it is queued, in another thread."""

    def wait():
        for _ in range(600):
            try:
                with database.read() as session:
                    healing = healing_of(session, job_id).job_id
            except NotFoundError:
                time.sleep(0.05)
            else:
                act(healing)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def answer_with(database, worker_database, gaps):
    """A function that trains and judges a healing to its end."""

    def act(healing):
        while train_forks(worker_database, healing, gaps):
            conclude(database, healing)

    return act


def test_the_plan_comes_first_and_the_answer_last(parity, database, worker_database):
    job_id = make_failed(database)
    code, out, _ = parity("heal", job_id, "--plan")
    assert code == 0
    assert "looks: at most 3 of the switches at 500, 700, 800, 900 of 1,000 steps" in out
    check("healing-plan", json.loads(parity("heal", job_id, "--plan", "--json")[1]))
    code, out, err = parity("heal", job_id)  # nobody to ask
    assert (code, out) == (2, "")
    assert "add --yes" in err
    thread = when_queued(database, job_id, answer_with(database, worker_database, GAPS))
    code, out, err = parity("heal", job_id, "--yes", "--speedup", "1.5")
    thread.join()
    assert code == 0
    assert out.startswith(
        "quantized may be used to step 800 of 1,000 (80 %), then bf16: it ends 0.00"
    )
    assert "speed: 1.36 x the baseline" in " ".join(out.split())
    assert "{recipe: bf16, from_step: 800}" in out
    assert "This is no pass" in out
    assert "cost:" in err
    with database.read() as session:
        healing = healing_of(session, job_id).job_id
    code, out, _ = parity("heal", healing, "--json")
    assert (code, json.loads(out)["answer"]["switch"]) == (0, 800)
    check("healing", json.loads(out))


def test_every_line_of_the_page(parity, database, worker_database):
    (block,) = run_by("docs/heal.md", __file__)
    job_id = make_failed(database)
    thread = when_queued(database, job_id, answer_with(database, worker_database, GAPS))
    for line in block.commands:
        words = [job_id if word == "JOB" else word for word in shlex.split(line, comments=True)]
        assert parity(*words[1:], "--yes")[0] == 0, line
    thread.join()


def test_a_healing_that_was_cancelled_has_no_answer(parity, database):
    job_id = make_failed(database)

    def cancel(healing):
        with database.write() as session:
            cancel_job(session, healing)

    thread = when_queued(database, job_id, cancel)
    code, out, err = parity("heal", job_id, "--yes", "--quiet")
    thread.join()
    assert (code, out) == (4, "")
    assert "without an answer: cancelled by request" in err
    with database.read() as session:
        assert session.get_one(Job, healing_of(session, job_id).job_id).status == "cancelled"


def test_what_a_cancelled_healing_found_is_printed(parity, database, worker_database):
    job_id = make_failed(database)
    with database.write() as session:
        healing = submit_healing(session, job_id, HealRequest())[0].id
    train_forks(worker_database, healing, GAPS)
    conclude(worker_database, healing)
    with database.write() as session:
        cancel_job(session, healing)
    code, out, err = parity("heal", healing, "--quiet")
    assert code == 4
    assert out.startswith("so far: quantized may be used to step 700")
    assert "from_step: 700" in out
    assert "before its end: cancelled by request" in " ".join(err.split())


@pytest.mark.parametrize(
    ("changes", "words", "why"),
    [
        ({"gap": 0.0}, ["--yes"], "nothing to heal"),
        ({"kept": ()}, ["--yes"], "keep_checkpoints: ["),
        ({}, ["--yes", "--to", "nvfp4"], "expected a safer one"),
        ({}, ["--to", "bf61"], "bf16"),
        ({}, ["--gemms", "forwards"], "did you mean forward"),
        ({}, ["--timeout", "0", "--yes"], "goes on"),
    ],
)
def test_what_cannot_be_healed_is_one_line(parity, database, changes, words, why):
    code, out, err = parity("heal", make_failed(database, **changes), *words, "--quiet")
    assert (code, out) == (5 if "--timeout" in words else 2, "")
    assert why in err.splitlines()[-1]
