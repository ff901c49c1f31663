"""The card of a job: what the server writes, `parity card JOB` and `parity verify CARD JOB`."""

from __future__ import annotations

import json

import httpx2
import numpy as np
import pytest

from parity import cli
from parity.cards.card import Card
from parity.cards.card_file import plain, read_card
from parity.cards.card_markdown import yaml_of_markdown
from server.database.tables import Job
from tests.parity.cli.schemas import check
from tests.server.test_push_evaluations import GAPS, OPTIONS, table


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return call


@pytest.fixture
def job(tmp_path, run, served, database):
    """A job of held-out losses with one candidate that passes and one that fails."""
    path = table(tmp_path / "evaluations.csv", GAPS)
    run("compare", path, *OPTIONS, "--push", "--server", served)
    with database.read() as session:
        return session.query(Job).one().id


def test_the_card_of_a_job_is_verified_by_the_job_and_by_its_bundle(
    job, run, served, api, tmp_path
):
    card = tmp_path / "card.yaml"
    at = ("--server", served)
    assert run("card", job, "--to", str(card), *at)[0] == 1
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(httpx2.get(f"{served}/api/v1/jobs/{job}/evidence.zip").content)
    code, out, _ = run("verify", str(card), job, *at, "--json")
    assert code == 0
    assert {"job", "failed_by", "evidence_sha256"} <= {*json.loads(out)["verified"]}
    code, out, _ = run("verify", str(card), str(bundle), "--json")
    assert code == 0
    assert {line.partition(":")[0] for line in json.loads(out)["not_verified"]} == {
        *("parity", "job", "failed_by")
    }


def _trained(folder):
    """The options that compare an fp8 and an nvfp4 run, which train alike."""
    rng = np.random.default_rng(3)
    batches = 1.4 + 1.5 * np.exp(-np.arange(600) / 40) + rng.normal(0, 0.02, 600)
    for arm in ("fp8", "nvfp4"):
        losses = enumerate(batches + rng.normal(0, 0.001, 600))
        rows = [f"{step},{loss:.6f}\n" for step, loss in losses]
        (folder / f"{arm}.csv").write_text("".join(["step,loss\n", *rows]), "utf-8")
    runs = [f"{arm}={folder / arm}.csv" for arm in ("fp8", "nvfp4")]
    return [*runs, "--margin", "1%", "--schedule", "decayed", "--planned-steps", "600"]


@pytest.mark.parametrize("is_failed", [False, True])
def test_the_card_of_a_pass_is_verified_by_the_bundle_of_its_job_which_records_an_earlier_fail(
    is_failed, run, served, database, tmp_path, monkeypatch
):
    at = ("--server", served)
    code, _, error = run("compare", *_trained(tmp_path), "--push", *at)
    assert code == 0, error
    with database.read() as session:
        job = session.query(Job).one().id
    failed = Job(id=f"{job[:-1]}{int(job[-1] == '0')}")
    monkeypatch.setattr(
        "server.documents.jobs.standing_fail_of", lambda *_: failed if is_failed else None
    )
    bundle = tmp_path / "evidence.zip"
    bundle.write_bytes(httpx2.get(f"{served}/api/v1/jobs/{job}/evidence.zip").content)
    cards = tmp_path / "job.yaml", tmp_path / "bundle.yaml"
    for card, evidence in zip(cards, ([job, *at], [str(bundle)]), strict=True):
        assert run("card", *evidence, "--to", str(card))[0] == int(is_failed)
    assert cards[0].read_text("utf-8") == cards[1].read_text("utf-8")
    assert run("verify", str(cards[0]), str(bundle))[0] == 0
    assert run("verify", str(cards[0]), job, *at)[0] == 0
    code, out, _ = run("verify", str(bundle), "--json")
    check("bundle-check", json.loads(out))
    assert (code, json.loads(out)["job"]) == (0, job)
    assert json.loads(out)["failed_by"] == (failed.id if is_failed else None)
    assert (failed.id in run("verify", str(bundle))[1]) == is_failed


def test_the_server_writes_the_card_that_the_command_writes(job, run, served):
    answer = httpx2.get(f"{served}/api/v1/jobs/{job}/card.yaml")
    assert answer.headers["content-type"].startswith("application/yaml")
    card = read_card(answer.text, "card.yaml")
    assert isinstance(card, Card)
    assert (card.job, card.state) == (job, "fail")
    assert plain(card) == json.loads(run("card", job, "--json", "--server", served)[1])
    markdown = httpx2.get(f"{served}/api/v1/jobs/{job}/card.md")
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert yaml_of_markdown(markdown.text, "card.md") == answer.text


def test_the_page_of_a_job_links_to_its_card(job, served):
    links = httpx2.get(f"{served}/api/v1/jobs/{job}").json()["links"]
    page = httpx2.get(f"{served}/jobs/{job}").text
    assert all(links[name] in page for name in ("card", "markdown_card"))


def test_a_job_is_as_its_schema_says(job, run, served):
    code, out, _ = run("status", job, "--json", "--server", served)
    assert code == 0
    check("job", json.loads(out))
    check("report", json.loads(run("report", job, "--json", "--server", served)[1]))


def test_a_job_without_a_verdict_has_no_card(api, request_body):
    job = api.post("/api/v1/jobs", json=request_body).json()
    check("job", job)
    for name in ("card", "markdown_card"):
        answer = api.get(job["links"][name])
        assert answer.status_code == 404
        assert "has no card" in answer.json()["detail"]
