"""A verdict on held-out losses is never taken for one on a training: not by a gate, a project, a
ledger or a baseline of the same names.
"""

import pytest
from fastapi.testclient import TestClient

import parity
from server.database.tables import Job
from server.jobs import ledger
from server.jobs.reuse import standing_fail_of
from server.web.access import api_tokens
from tests.server.held_out import make_evaluations

LEASE_SECONDS = 60.0


def job_like_it(request_body):
    """A training of the same name with arms of the same names."""
    return {
        **request_body["job"],
        "name": "held out",
        "baseline": {"recipe": "bf16", "name": "bf16"},
        "candidates": [{"recipe": "nvfp4", "name": "nvfp4"}],
    }


@pytest.mark.both_databases
@pytest.mark.parametrize("lookup", [True, False])
def test_a_gate_does_not_find_its_pass(api, database, request_body, lookup):
    held_out = make_evaluations(database, {"nvfp4": 0.0})
    question = {**request_body, "job": job_like_it(request_body), "lookup": lookup}
    answer = api.post("/api/v1/jobs:gate", json=question).json()
    assert answer["found"] == ("none" if lookup else "new")
    assert answer["earlier"] == []
    assert held_out not in str(answer)


@pytest.mark.both_databases
def test_a_token_of_a_repository_asks_no_gate_about_it(
    application, api_settings, database, judged, tmp_path
):
    held_out, (training, _) = make_evaluations(database, {"nvfp4": 0.0}), judged({"nvfp4": 0.0})
    rules = tmp_path / "rules.toml"
    rules.write_text('[repository."team/model"]\nadvisory = true\n')
    with database.write() as session:
        text = api_tokens.create_token(session, "ci", ["submit"], None, repository="team/model")[1]
    app = application(api_settings.model_copy(update={"gate_rules": rules, "require_tokens": True}))
    headers = {"Authorization": f"Bearer {text}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as api:
        refused = api.get(f"/api/v1/jobs/{held_out}/gate")
        assert refused.status_code == 409
        assert "`parity gate parity.yaml`" in refused.json()["detail"]
        assert "answers no question" not in api.get(f"/api/v1/jobs/{training}/gate").text


def test_a_fail_of_it_stands_against_no_training(database, judged):
    training, _ = judged({"nvfp4": 0.0})
    make_evaluations(database, {"nvfp4": 0.06}, name="small")
    with database.read() as session:
        job = session.get_one(Job, training)
        assert standing_fail_of(session, job, LEASE_SECONDS) is None
        assert [*ledger.same_question(session, job, Job.status == "concluded")] == []


def test_a_project_of_its_name_is_a_job_of_its_own(database, served, tmp_path):
    held_out = make_evaluations(database, {"nvfp4": 0.0}, name="mine")
    with parity.Run(project="mine", arm="bf16", server=served, folder=tmp_path, strict=True) as run:
        run.log(0, loss=3.0)
    with database.read() as session:
        project = session.query(Job).filter(Job.id != held_out).one()
        assert (project.name, project.engine, project.is_open) == ("mine", "external", True)
        assert len(session.get_one(Job, held_out).arms) == 2


def test_losses_of_a_projects_name_do_not_join_it(database, served, tmp_path):
    with parity.Run(project="mine", arm="bf16", server=served, folder=tmp_path, strict=True) as run:
        run.log(0, loss=3.0)
    held_out = make_evaluations(database, {"nvfp4": 0.0}, name="mine")
    with database.read() as session:
        project = session.query(Job).filter(Job.id != held_out).one()
        assert [arm.name for arm in project.arms] == ["bf16"]
        assert project.is_open
