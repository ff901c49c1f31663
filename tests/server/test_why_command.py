"""`parity why` against a real server: the cost first, then the answer; what cannot be explained is
one line.
"""

import json
import shlex
import threading
import time

import pytest

from parity import cli
from parity_lab.server.analyses import analysis_of
from server.database.tables import Job
from server.errors import NotFoundError
from server.jobs.conclude import conclude
from server.jobs.lifecycle import cancel_job
from tests.documentation import run_by
from tests.parity.cli.schemas import check
from tests.server.analyses import make_explained, measured

NAMED = "0.down.wgrad"


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
    """Do something with the analysis of a job once it is queued, in another thread."""

    def wait():
        for _ in range(600):
            try:
                with database.read() as session:
                    analysis = analysis_of(session, job_id).job_id
            except NotFoundError:
                time.sleep(0.05)
            else:
                act(analysis)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_plan_comes_first_and_the_answer_last(parity, database):
    job_id = make_explained(database)
    code, out, _ = parity("why", job_id, "--plan")
    assert code == 0
    assert "cost: about 6,577 steps to find one GEMM" in out
    check("analysis-plan", json.loads(parity("why", job_id, "--plan", "--json")[1]))
    code, out, err = parity("why", job_id)  # nobody to ask
    assert (code, out) == (2, "")
    assert "add --yes" in err

    def answer(analysis):
        measured(database, analysis, {NAMED: 0.02})
        conclude(database, analysis)

    thread = when_queued(database, job_id, answer)
    code, out, err = parity("why", job_id, "--yes")
    thread.join()
    assert code == 0
    assert f"named: {NAMED}: alone it costs +0.0" in out
    assert "it is no verdict" in out
    assert "cost: about" in err
    with database.read() as session:
        analysis = analysis_of(session, job_id).job_id
    code, out, _ = parity("why", analysis, "--json")
    assert code == 0
    check("analysis", json.loads(out))
    part = json.loads(out)["answer"]["named"][0]
    assert (part["gemms"], part["alone"]["value"]) == ([NAMED], pytest.approx(0.02, abs=0.002))
    code, _, err = parity("report", analysis)
    assert code == 2
    assert f"parity why {analysis}" in err


def test_every_line_of_the_page(parity, database):
    (block,) = run_by("docs/explain.md", __file__)
    job_id = make_explained(database, name="nvfp4")

    def answer(analysis):
        measured(database, analysis, {NAMED: 0.02})
        conclude(database, analysis)

    thread = when_queued(database, job_id, answer)
    for line in block.commands:
        words = [job_id if word == "JOB" else word for word in shlex.split(line, comments=True)]
        assert parity(*words[1:], "--yes")[0] == 0, line
    thread.join()


def test_an_analysis_that_was_cancelled_has_no_answer(parity, database):
    job_id = make_explained(database)

    def cancel(analysis):
        with database.write() as session:
            cancel_job(session, analysis)

    thread = when_queued(database, job_id, cancel)
    code, out, err = parity("why", job_id, "--yes", "--quiet")
    thread.join()
    assert (code, out) == (4, "")
    assert "without an answer: cancelled by request" in err
    with database.read() as session:
        assert session.get_one(Job, analysis_of(session, job_id).job_id).status == "cancelled"


@pytest.mark.parametrize(
    ("changes", "words", "why"),
    [
        ({"gap": 0.0}, ["--yes"], "anyway"),
        ({"kept": ()}, ["--yes"], "add keep_checkpoints: [600]"),
        ({}, ["--yes", "--budget", "10"], "budget is 10 steps"),
        ({}, ["--against", "bf61"], "did you mean bf16"),
        ({}, ["--timeout", "0", "--yes"], "goes on"),
    ],
)
def test_what_cannot_be_explained_is_one_line(parity, database, changes, words, why):
    code, out, err = parity("why", make_explained(database, **changes), *words, "--quiet")
    assert (code, out) == (5 if "--timeout" in words else 2, "")
    assert why in err.splitlines()[-1]
