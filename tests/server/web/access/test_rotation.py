"""A token is replaced while it is in use: both are valid for a while, and everything stays with the
principal.
"""

import time

import pytest
from fastapi.testclient import TestClient

import parity
from parity.judging.policy import policy_from_mapping
from server import tokens as command
from server.database.metrics import store
from server.database.tables import Run, Token
from server.errors import ConflictError, InvalidError
from server.jobs.submit import submit_job
from server.web.access import api_tokens
from training.spec import ArmSpec

pytestmark = pytest.mark.both_databases


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


@pytest.fixture
def make_token(database):
    def make(*scopes, **more):
        with database.write() as session:
            row, text = api_tokens.create_token(
                session, "-".join(scopes), scopes, more.pop("days", 30), **more
            )
            return row.id, text

    return make


def _status(api: TestClient, text: str, path: str = "/api/v1/jobs") -> int:
    return api.get(path, headers={"Authorization": f"Bearer {text}"}).status_code


def _rotate(api, admin, token_id, **body):
    return api.post(
        f"/api/v1/tokens/{token_id}:rotate", json=body, headers={"Authorization": f"Bearer {admin}"}
    )


def _pass_hours(database, token_id, hours):
    with database.write() as session:
        session.get_one(Token, token_id).expires_at -= 3600 * hours


def test_both_are_valid_until_the_overlap_ends_and_the_list_shows_both(api, database, make_token):
    old_id, old = make_token("submit", max_running=2)
    _, admin = make_token("admin")
    answer = _rotate(api, admin, old_id)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    new, about = answer.json()["token"], answer.json()["about"]
    assert (_status(api, old), _status(api, new)) == (200, 200)
    listed = {
        row["id"]: row
        for row in api.get("/api/v1/tokens", headers={"Authorization": f"Bearer {admin}"}).json()
    }
    for row in (listed[old_id], listed[about["id"]]):
        assert (row["principal"], row["name"], row["scopes"], row["max_running"]) == (
            old_id,
            "submit",
            ["submit"],
            2,
        )
        assert row["last_used_at"]
    with database.read() as session:
        assert session.get_one(Token, old_id).expires_at == pytest.approx(
            time.time() + 24 * 3600, abs=60
        )
        assert session.get_one(Token, about["id"]).expires_at == pytest.approx(
            time.time() + 30 * 86_400, abs=60
        )
    _pass_hours(database, old_id, 25)
    assert (_status(api, old), _status(api, new)) == (401, 200)


def test_an_overlap_of_0_ends_the_old_one_at_once_and_its_sessions(api, make_token):
    old_id, old = make_token("submit")
    _, admin = make_token("admin")
    api.post("/login", data={"token": old})
    assert api.get("/jobs", follow_redirects=False).status_code == 200
    new = _rotate(api, admin, old_id, overlap_hours=0).json()["token"]
    assert api.get("/jobs", follow_redirects=False).status_code == 303
    assert (_status(api, old), _status(api, new)) == (401, 200)


def test_a_job_stays_with_its_principal(api, make_token, request_body):
    (old_id, old), (_, admin), (_, stranger) = (
        make_token("submit"),
        make_token("admin"),
        make_token("submit"),
    )
    job = api.post(
        "/api/v1/jobs", json=request_body, headers={"Authorization": f"Bearer {old}"}
    ).json()["id"]
    new = _rotate(api, admin, old_id, overlap_hours=0).json()["token"]
    statuses = [
        api.post(
            f"/api/v1/jobs/{job}:cancel", headers={"Authorization": f"Bearer {text}"}
        ).status_code
        for text in (stranger, old, new)
    ]
    assert statuses == [403, 401, 200]


def test_a_token_is_rotated_once_and_not_after_its_end(database, make_token):
    token_id, _ = make_token("submit")
    for hours in (-1, 24 * 90 + 1):
        with pytest.raises(InvalidError), database.write() as session:
            api_tokens.rotate_token(session, token_id, hours)
    with database.write() as session:
        new = api_tokens.rotate_token(session, token_id, 1)[0].id
    with pytest.raises(ConflictError, match=new), database.write() as session:
        api_tokens.rotate_token(session, token_id, 1)
    with database.write() as session:
        api_tokens.revoke_token(session, new)
    with database.write() as session:  # the response was lost, so the new one was revoked
        api_tokens.rotate_token(session, token_id, 1)
    with pytest.raises(ConflictError), database.write() as session:
        api_tokens.rotate_token(session, new, 1)


def test_a_token_of_the_longest_life_is_rotated_at_any_time(database, make_token, monkeypatch):
    """Above 2^31 seconds a time is stored to half a microsecond, so 3,650 days may be longer."""
    for at in range(8):
        monkeypatch.setattr(time, "time", lambda at=at: 1_840_000_000.0 + at * 2.0**-22)
        token_id, _ = make_token("submit", days=3650)
        with database.write() as session:
            new, _ = api_tokens.rotate_token(session, token_id, 1)
            assert new.expires_at - new.created_at == pytest.approx(3650 * 86_400)


def test_a_principal_that_does_not_exist_gets_no_token(database, make_token):
    token_id, _ = make_token("submit")
    further, _ = make_token("worker", principal_id=token_id)
    for principal in ("t0", further):
        with pytest.raises(InvalidError), database.write() as session:
            api_tokens.create_token(session, "x", ["worker"], None, principal_id=principal)


def test_a_trainer_goes_on_while_its_token_is_rotated_and_the_server_restarts(
    server, database, make_job, make_token, tmp_path
):
    spec = make_job(
        60,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    owner, _ = make_token("submit")
    with database.write() as session:
        run = submit_job(session, spec, policy_from_mapping({"margin": "1%"}), owner).runs[0].id
    worker_id, worker = make_token("worker", principal_id=owner)
    with parity.Run(
        run, server=server.address, token=worker, folder=tmp_path, flush_seconds=0.05, strict=True
    ) as logger:
        for step in range(30):
            logger.log(step=step, loss=1.0)
        deadline = time.monotonic() + 20
        while _recorded(database, run) < 30 and time.monotonic() < deadline:
            time.sleep(0.02)
        (sent,) = (tmp_path / run).glob("*.sent")
        assert sent.stat().st_mode & 0o777 == 0o600
        with database.write() as session:
            # the trainer's own process still has the old one
            api_tokens.rotate_token(session, worker_id, 0)
        server.stop()
        server.start()
        for step in range(30, 60):
            logger.log(step=step, loss=1.0)
    with database.read() as session:
        assert (session.get_one(Run, run).state, session.get_one(Run, run).attempt_number) == (
            "finished",
            1,
        )
    assert _recorded(database, run) == 60


def _recorded(database, run):
    with database.read() as session:
        return len(store.read(session, run, "train")[0])


def test_the_command_creates_lists_rotates_and_revokes(settings, database, monkeypatch, capsys):
    monkeypatch.setenv("PARITY_DATABASE_URL", settings.database)

    def run(*arguments, status=0):
        assert command.main([*arguments]) == status
        return capsys.readouterr()

    first = run("create", "ci", "--scope", "submit", "--days", "30").out.strip()
    principal = first.split("_")[1]
    second = run("create", "cluster", "--scope", "worker", "--for", principal).out.strip()
    third = run("rotate", principal, "--overlap-hours", "1").out.strip()
    run("revoke", second.split("_")[1])
    rows = {line.split("\t")[0]: line.split("\t") for line in run("list").out.splitlines()}
    assert {text.split("_")[1]: rows[text.split("_")[1]][6] for text in (first, second, third)} == {
        principal: "valid",
        second.split("_")[1]: "revoked",
        third.split("_")[1]: "valid",
    }
    assert {rows[text.split("_")[1]][1] for text in (first, second, third)} == {principal}
    assert "does not exist" in run("revoke", "t0", status=2).err
    monkeypatch.setenv("PARITY_DATABASE_URL", f"sqlite:///{settings.state_dir}/nowhere/parity.db")
    assert "PARITY_STATE_DIR" in run("list", status=2).err
