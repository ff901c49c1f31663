"""The parts of a gap from ablation runs, on the record: of any engine, over REST, on the command
line and on a page.
"""

import json
import shlex

import pytest

from parity import cli
from parity_lab.server.ablations import ablations_document, late_loss
from server.database.tables import Job, Run
from server.errors import ConflictError, InvalidError
from tests.documentation import run_by
from tests.parity.cli.schemas import check
from tests.server.analyses import make_ablated


def late_losses(session, job_id):
    """The late loss of each run, by arm and replicate."""
    job = session.get_one(Job, job_id)
    return {(run.arm.name, run.replicate): late_loss(session, run) for run in job.runs}


@pytest.mark.parametrize("engine", ["external", "emulated"])
def test_parts_are_the_full_gap_minus_that_of_the_ablation(database, engine):
    job_id = make_ablated(database, engine=engine)
    with database.read() as session:
        document = ablations_document(session, job_id, "full", ())
        losses = late_losses(session, job_id)
    mean = {
        name: sum(losses[name, at] for at in range(3)) / 3
        for name in ("base", "full", "without-mlp", "without-attention")
    }
    assert [part.name for part in document.parts] == ["without-mlp", "without-attention"]
    assert document.whole.value == pytest.approx(mean["full"] - mean["base"])
    assert document.parts[0].part.value == pytest.approx(mean["full"] - mean["without-mlp"])
    assert document.parts[0].left.value == pytest.approx(mean["without-mlp"] - mean["base"])
    assert document.total.value + document.unexplained.value == pytest.approx(document.whole.value)
    for part, true in zip(
        [document.whole, document.parts[0].part, document.parts[1].part, document.unexplained],
        [0.05, 0.038, 0.015, -0.003],
        strict=True,
    ):
        assert part.low < true < part.high
    assert (document.pairs, document.assumed, document.left_out, document.gap.verdict) == (
        3,
        [],
        [],
        "fail",
    )
    assert document.whole.value == pytest.approx(document.gap.gap, abs=1e-3)


def test_one_run_per_arm_makes_the_interval_an_assumption(database):
    several, one = make_ablated(database), make_ablated(database, replicates=1)
    with database.read() as session:
        measured = ablations_document(session, several, "full", ())
        assumed = ablations_document(session, one, "full", ["without-mlp"])
    assert (assumed.assumed, assumed.pairs) == (["base", "full", "without-mlp"], 1)
    width = assumed.parts[0].part.high - assumed.parts[0].part.low
    assert width > measured.parts[0].part.high - measured.parts[0].part.low


def test_a_run_without_a_partner_in_every_arm_is_left_out(database):
    job_id = make_ablated(database)
    with database.write() as session:
        run = next(
            run
            for run in session.get_one(Job, job_id).runs
            if run.arm.name == "without-mlp" and run.replicate == 1
        )
        run.state, run.code = "failed", "CRASHED"
    with database.read() as session:
        document = ablations_document(session, job_id, "full", ["without-mlp"])
        assert document.pairs == 2
        assert any(
            sentence.startswith("without-mlp replicate 1: run") for sentence in document.left_out
        )
        assert "full replicate 1: not every arm has it" in document.left_out
        both = ablations_document(session, job_id, "full", ["without-attention"])
        assert (both.pairs, both.left_out) == (3, [])


@pytest.mark.parametrize(
    ("candidate", "ablations", "error", "why"),
    [
        (None, [], InvalidError, "has 3 candidates; add --candidate "),
        (
            "full",
            ["full"],
            InvalidError,
            "is the candidate itself, expected other candidates .*: without-mlp, without-attention",
        ),
        ("full", ["without-norm"], InvalidError, "no candidate 'without-norm'"),
    ],
)
def test_what_has_no_parts_is_refused(database, candidate, ablations, error, why):
    job_id = make_ablated(database)
    with database.read() as session, pytest.raises(error, match=why):
        ablations_document(session, job_id, candidate, ablations)


def test_a_job_with_one_candidate_or_without_an_end_has_no_parts(database):
    alone = make_ablated(database, gaps={"full": 0.05})
    with database.read() as session, pytest.raises(InvalidError, match="no candidate but full"):
        ablations_document(session, alone, None, ())
    job_id = make_ablated(database)
    with database.write() as session:
        session.get_one(Job, job_id).status = "running"
    with (
        database.read() as session,
        pytest.raises(ConflictError, match="is running, expected one that has ended"),
    ):
        ablations_document(session, job_id, "full", ())
    with database.write() as session:
        session.get_one(Job, job_id).status = "concluded"
        for run in session.query(Run).filter(Run.job_id == job_id):
            run.state = "failed" if run.arm.name == "without-mlp" else run.state
    with (
        database.read() as session,
        pytest.raises(ConflictError, match="share no seed and replicate"),
    ):
        ablations_document(session, job_id, "full", ())


def test_over_rest_and_on_the_page(database, api):
    job_id = make_ablated(database)
    answer = api.get(
        f"/api/v1/jobs/{job_id}/why/ablations",
        params={"candidate": "full", "ablation": ["without-mlp"]},
    )
    assert answer.status_code == 200, answer.text
    assert [part["name"] for part in answer.json()["parts"]] == ["without-mlp"]
    assert "engine emulated" in answer.json()["cannot"]
    assert api.get(f"/api/v1/jobs/{job_id}/why/ablations").status_code == 422
    page = api.get(f"/jobs/{job_id}/why/ablations?candidate=full")
    assert page.status_code == 200
    assert "without-attention" in page.text
    assert "no verdict" in page.text
    assert (
        f"/jobs/{job_id}/why/ablations?candidate=full"
        in api.get(f"/jobs/{job_id}?candidate=full").text
    )


@pytest.fixture
def parity(served, capsys):
    """A function that runs the command line; the exit code, what it printed, and the errors."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_the_command_prints_the_parts_and_queues_nothing(parity, database):
    external, emulated = make_ablated(database), make_ablated(database, engine="emulated")
    code, out, _ = parity("why", external, "--candidate", "full")  # all others
    assert code == 0
    assert "without-mlp: gains +0.03" in out
    assert "without-attention: gains" in out
    assert "sum of the parts" in out
    assert "not measured: forks" in out
    code, out, _ = parity(
        "why", emulated, "--candidate", "full", "--ablation", "without-mlp", "--json"
    )
    assert code == 0
    assert [part["name"] for part in json.loads(out)["parts"]] == ["without-mlp"]
    check("ablations", json.loads(out))
    code, _, err = parity("why", external, "--candidate", "full", "--fork-steps", "60", "--plan")
    assert code == 2
    assert "--fork-steps, --plan" in err
    with database.read() as session:
        assert session.query(Job).count() == 2


def test_the_line_of_the_page(parity, database):
    (block,) = run_by("docs/explain.md", __file__)
    (line,) = block.commands
    job_id = make_ablated(database)
    words = [job_id if word == "JOB" else word for word in shlex.split(line)]
    code, out, _ = parity(*words[1:])
    assert code == 0
    assert "unexplained" in out
