"""What a trainer printed, over REST and on the page's view of it: the end of it, and nothing
secret.
"""

import pytest
from fastapi.testclient import TestClient

from server.api import run_logs
from server.database.states import begin_attempt, end_attempt
from server.database.tables import Job


@pytest.fixture
def run(database, recorded):
    """A run with two attempts, the first of which crashed."""
    job = recorded({"nvfp4": 0.0}, steps=30)
    with database.write() as session:
        row = session.get_one(Job, job).runs[0]
        begin_attempt(session, row.id, 1, None)
        end_attempt(session, row.id, 1, "crashed", "WORKER_CRASHED", "it broke")
        begin_attempt(session, row.id, 2, None)
        row.attempt_number = 2
        return row.id


def _write(settings, run_id, attempt, text):
    folder = settings.state_dir / "logs" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run_id}-{attempt}.log").write_text(text)


def test_the_last_lines_of_each_attempt_newest_first(api, settings, run):
    _write(
        settings,
        run,
        2,
        "".join(f"step {step}\n" for step in range(300)) + "\N{MULTIPLICATION SIGN} end\n",
    )
    log = api.get(f"/api/v1/runs/{run}/log", params={"lines": 3}).json()
    second, first = log["attempts"]
    assert (second["attempt"], second["lines"], second["cut"]) == (
        2,
        ["step 298", "step 299", "\N{MULTIPLICATION SIGN} end"],
        True,
    )
    assert (first["attempt"], first["state"], first["lines"]) == (1, "crashed", [])
    assert f"{run}-1.log" in first["missing"]


def test_a_long_log_is_read_from_its_end(api, settings, run, monkeypatch):
    monkeypatch.setattr(run_logs, "_READ_BYTES", 100)
    _write(settings, run, 2, "x" * 1000 + "\n" + "\n".join(f"line {number}" for number in range(5)))
    (attempt, _) = api.get(f"/api/v1/runs/{run}/log").json()["attempts"]
    assert attempt["lines"] == [f"line {number}" for number in range(5)]
    assert attempt["cut"]


def test_secrets_are_cut_out(api, settings, run):
    secrets = ("hunter2hunter2", "abcDEF0123456789", "s3cr3tk3y")
    text = (
        f"PARITY_DATABASE_URL=postgresql://me:{secrets[0]}@host/db\nAuthorization: Bearer "
        f"{secrets[1]}\n"
        f'{{"api_key": "{secrets[2]}"}} HF_TOKEN={secrets[1]} password = {secrets[0]}\ntokens: '
        "4096 tokens_per_second=12.5\n"
    )
    _write(settings, run, 2, text)
    answer = api.get(f"/api/v1/runs/{run}/log").text
    assert not any(secret in answer for secret in secrets)
    assert "tokens: 4096 tokens_per_second=12.5" in answer
    assert "postgresql://me:***@host/db" in answer


def test_an_unknown_run_and_too_many_lines_are_refused(api, run):
    assert api.get("/api/v1/runs/r-none/log").status_code == 404
    assert api.get(f"/api/v1/runs/{run}/log", params={"lines": 0}).status_code == 422


def test_who_has_no_token_sees_no_log(settings, database, run, application):
    with TestClient(
        application(settings.model_copy(update={"require_tokens": True})),
        base_url="http://127.0.0.1",
    ) as client:
        assert client.get(f"/api/v1/runs/{run}/log").status_code == 401


def test_what_an_attempt_left_can_be_had_and_nothing_else(api, settings, run):
    folder = settings.state_dir / "artifacts" / f"{run}-2" / "plugins" / "profile"
    folder.mkdir(parents=True)
    (folder / "a b.trace.json.gz").write_bytes(b"trace")
    (settings.state_dir / "artifacts" / "secret").write_text("secret")
    (folder / "out").symlink_to(settings.state_dir / "artifacts" / "secret")
    [name] = api.get(f"/api/v1/runs/{run}/log").json()["attempts"][0]["artifacts"]
    answer = api.get(f"/api/v1/runs/{run}/artifacts/2/{name}")
    assert (answer.content, answer.headers["content-disposition"]) == (
        b"trace",
        "attachment; filename*=utf-8''a%20b.trace.json.gz",
    )
    for other in (
        "none",
        "plugins",
        "plugins/profile/out",
        "..%2Fsecret",
        "%2e%2e/secret",
        "/etc/passwd",
        "a%01b",
        "x" * 5000,
    ):
        refused = api.get(f"/api/v1/runs/{run}/artifacts/2/{other}")
        assert refused.status_code == 404, other
        assert "secret" not in refused.text.replace(other, "").replace("../secret", "")
    assert api.get(f"/api/v1/runs/{run}/artifacts/1/{name}").status_code == 404
