"""Tokens of runs: each is that of one attempt of one run."""

import pytest
from fastapi.testclient import TestClient

from parity.judging.policy import policy_from_mapping
from server.jobs.submit import submit_job
from training.spec import ArmSpec

pytestmark = pytest.mark.postgresql


def test_the_token_of_a_run_writes_its_own_attempt_alone(
    settings, database, application, token, make_job
):
    strict = settings.model_copy(update={"require_tokens": True})
    spec = make_job(engine="external", candidates=(ArmSpec(recipe="nvfp4"),))
    owner, text = token("submit")
    with database.write() as session:
        job = submit_job(session, spec, policy_from_mapping({"margin": "1%"}), owner)
        runs = [run.id for run in job.runs]
    with TestClient(application(strict)) as api:

        def send(secret, path, **more):
            headers = {"Authorization": f"Bearer {secret}"}
            return api.post(f"/api/v1/runs/{path}", headers=headers, **more)

        secrets = {}
        for number in (1, 2):
            for run in runs:
                answer = send(text, f"{run}:attach", json={"manifest": {}})
                secrets[run, number] = answer.json()["token"]
        allowed = {}
        for own, secret in secrets.items():
            for target in secrets:
                run, number = target
                body = {"steps": [number], "columns": {"loss": [2.0]}}
                answers = [
                    send(secret, f"{run}/steps", params={"attempt": number}, json=body),
                    send(secret, f"{run}:finish", json={"attempt": number, "outcome": "broke_off"}),
                ]
                allowed[own, target] = {answer.status_code for answer in answers}
                if own == target and number == 2:  # as it was, for the others
                    again = send(text, f"{run}:attach", json={"manifest": {}}).json()
                    assert again["attempt"] == 3
    accepted = {own for (own, target), codes in allowed.items() if own == target and codes == {200}}
    assert accepted == {(run, 2) for run in runs}
    refused = [codes for (own, target), codes in allowed.items() if own != target]
    assert len(refused) == 12
    assert all(codes <= {401, 403} for codes in refused)
