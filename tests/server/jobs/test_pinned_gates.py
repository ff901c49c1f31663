"""What an operator pins for the gates of a repository: one rule a key, each with a job that asks
for enough and one that does not.
"""

import json
import re
from dataclasses import replace

import pytest
import yaml
from fastapi.testclient import TestClient

from parity.judging.policy import policy_from_mapping
from server.errors import InvalidError
from server.jobs import pinned_gates
from server.jobs.pinned_gates import RULES, PinnedRules, RulesError, pinned, read_rules
from server.jobs.pinned_question import AskedQuestion
from server.settings import CHECKOUT
from server.web.access import api_tokens
from training.command import Command
from training.spec import ArmSpec, JobSpec, Schedule

WHOLE = """
[repository."team/model"]
job = "model.yaml"
margin = "1%"
replicates = 2
steps = 1000
looks = 1
launcher = "loop"
parameters = {layers = 4}
recipes = ["bf16", "nvfp4"]
questions = ["revision", "recipe"]
policy = {as_of = "accept"}
on_inconclusive = "fail"
on_infra = "pass"
advisory = false
"""
BASE, HEAD = "a" * 40, "b" * 40


def _arm(recipe="bf16", revision=HEAD, name="head", replicates=2):
    return ArmSpec(recipe=recipe, revision=revision, name=name, replicates=replicates)


JOB = JobSpec(
    name="pull-request",
    engine="command",
    command=Command(launcher="loop", parameters={"layers": 4}),
    schedule=Schedule(steps=1000, warmup_steps=0),
    baseline=_arm(revision=BASE, name="base"),
    candidates=(_arm(), _arm("nvfp4", name="head-nvfp4")),
)
ASKED = {"margin": "1%", "as_of": "accept"}


def _words(job):
    """The job as an operator writes it, with words for its commits."""
    text = json.dumps(job.document()).replace(BASE, "base").replace(HEAD, "head")
    return json.loads(text)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(WHOLE)
    (tmp_path / "model.yaml").write_text(
        yaml.safe_dump({"job": _words(JOB), "policy": {"margin": "1%", "as_of": "accept"}})
    )
    return path


def _asked(job, policy):
    return AskedQuestion(spec=job, policy=policy)


def _pin(folder, request, keys=""):
    """A file of rules that pins the question of a request."""
    (folder / "job.yaml").write_text(
        yaml.safe_dump({"job": request["job"], "policy": request["policy"]})
    )
    path = folder / "rules.toml"
    path.write_text(f'[repository."team/model"]\njob = "job.yaml"\n{keys}\n')
    return path


def _policy(**changes):
    return policy_from_mapping(ASKED | changes)


def test_a_job_that_asks_for_as_much_or_more_is_accepted(file):
    told = pinned(file, "team/model", _asked(JOB, _policy()))
    assert (told.repository, told.on_inconclusive, told.on_infra, told.advisory) == (
        "team/model",
        "fail",
        "pass",
        False,
    )
    more = replace(JOB, baseline=_arm(revision=BASE, name="base", replicates=3))
    assert pinned(
        file, "team/model", _asked(more, _policy(margin="0.5%", checks=["loss", "grad_norm"]))
    )
    assert pinned(
        file,
        "team/model",
        _asked(JOB, policy_from_mapping({"profile": "nvfp4", "as_of": "accept"})),
    )
    # the smaller decides
    assert pinned(file, "team/model", _asked(JOB, _policy(margin="2%", profile="fp8-grade")))


@pytest.mark.parametrize(
    ("key", "changes", "policy"),
    [
        ("margin", {}, {"margin": "1.1%"}),
        ("margin", {}, {"margin": "0.001 nats"}),
        ("replicates", {"candidates": (_arm(replicates=1), _arm("nvfp4", name="q"))}, {}),
        ("steps", {"schedule": Schedule(steps=999, warmup_steps=0)}, {}),
        ("looks", {}, {"looks": 2}),
        ("launcher", {"command": Command(launcher="mine", parameters={"layers": 4})}, {}),
        (
            "parameters",
            {"command": Command(launcher="loop", parameters={"layers": 4, "rate": 0.0})},
            {},
        ),
        ("parameters", {"command": Command(launcher="loop", parameters={"layers": 1})}, {}),
        ("parameters", {"command": Command(launcher="loop")}, {}),
        ("recipes", {"candidates": (_arm(), _arm("mxfp8", name="q"))}, {}),
        ("questions", {"candidates": (_arm(),)}, {}),
        ("questions", {"candidates": (_arm("nvfp4", BASE, "q"),)}, {}),
        ("looks", {}, {"looks": 3}),
        ("policy", {}, {"may_differ": ["device_class"]}),
        ("policy", {}, {"confidence": 0.6}),
        ("policy", {}, {"baseline_run_noise": "0.0001 nats"}),
        ("policy", {}, {"validation": "advise"}),
        ("policy", {}, {"wide_margin": "accept"}),
    ],
)
def test_a_job_that_asks_for_less_is_refused_by_the_rule_of_that_key(file, key, changes, policy):
    job, rules = replace(JOB, **changes), read_rules(file)["team/model"]
    broken = [
        name for name, rule in RULES.items() if rule(rules, job, _policy(**policy)) is not None
    ]
    assert broken == [key]
    with pytest.raises(InvalidError, match="team/model"):
        pinned(file, "team/model", _asked(job, _policy(**policy)))


def test_every_key_has_a_rule_or_is_one_of_the_exit_code():
    assert {*RULES} == set(PinnedRules.__dataclass_fields__) - {
        *("on_inconclusive", "on_same_numerics", "on_infra", "advisory", "job", "free"),
        *("external", "statements"),
    }
    assert {*pinned_gates._READ} == {*PinnedRules.__dataclass_fields__}


def test_a_repository_without_rules_passes_nothing(file, tmp_path):
    for path in (file, None, tmp_path / "nothing.toml"):
        with pytest.raises(InvalidError, match="team/other"):
            pinned(path, "team/other", _asked(JOB, _policy()))


@pytest.mark.parametrize(
    "line",
    [
        'margn = "1%"',
        "margin = 1",
        'margin = "much"',
        "replicates = 0",
        'replicates = "2"',
        "steps = true",
        "parameters = {layers = [4]}",
        'recipes = "bf16"',
        'questions = ["speed"]',
        'policy = {margin = "2%"}',
        'on_same_numerics = "accept"',
        "on_same_numerics = true",
        'policy = {as_off = "accept"}',
        'on_infra = "maybe"',
        'advisory = "no"',
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path, line):
    path = tmp_path / "rules.toml"
    path.write_text(f'[repository."team/model"]\n{line}\n')
    with pytest.raises(RulesError, match="rules") as refused:
        read_rules(path)
    assert re.search(r"team/model|margin|policy", str(refused.value))


def test_the_file_of_the_page_is_read(tmp_path):
    page = (CHECKOUT / "docs" / "gate.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "p.toml").write_text(text)
    (tmp_path / "model.yaml").write_text(yaml.safe_dump({"job": _words(JOB), "policy": ASKED}))
    assert read_rules(tmp_path / "p.toml")["team/model"].launcher == "loop"
    assert {*re.findall(r"^(\w+) = ", text, re.MULTILINE)} == {*PinnedRules.__dataclass_fields__}


@pytest.mark.both_databases
def test_a_gate_asks_under_the_rules_of_its_tokens_repository(
    application, api_settings, database, request_body, tmp_path
):
    path = _pin(tmp_path, request_body, "steps = 500\nadvisory = true\n")
    with database.write() as session:
        text = api_tokens.create_token(session, "ci", ["submit"], None, repository="team/model")[1]
        plain = api_tokens.create_token(session, "person", ["submit"], None)[1]
    app = application(api_settings.model_copy(update={"gate_rules": path, "require_tokens": True}))

    def ask(token, **job):
        body = {
            **request_body,
            "revision": "r",
            "job": {**request_body["job"], **job},
            "lookup": True,
        }
        return client.post(
            "/api/v1/jobs:gate", json=body, headers={"Authorization": f"Bearer {token}"}
        )

    with TestClient(app, base_url="http://127.0.0.1") as client:
        told = ask(text).json()["pinned"]
        refused = ask(text, schedule={"steps": 400})
        assert told == {
            "repository": "team/model",
            "on_inconclusive": "fail",
            "on_same_numerics": "fail",
            "on_infra": "fail",
            "advisory": True,
        }
        assert (refused.status_code, "at least 500" in refused.json()["detail"]) == (422, True)
        assert "job.schedule.steps is 400, expected 1500" in refused.json()["detail"]
        assert ask(plain, schedule={"steps": 400}).json()["pinned"] is None


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("gaps", "pinned_keys", "code", "result"),
    [
        ({"nvfp4": 0.0}, "", 0, "pass"),
        ({"nvfp4": 0.3}, "", 1, "fail"),
        ({"nvfp4": 0.3}, "advisory = true", 0, "fail"),
        ({"nvfp4": 0.0, "mxfp8": 0.3}, 'on_inconclusive = "pass"', 1, "fail"),
    ],
)
def test_the_server_says_how_a_gate_leaves(
    application, api_settings, database, judged, tmp_path, gaps, pinned_keys, code, result
):
    job, request = judged(gaps)
    path = tmp_path / "rules.toml"
    with database.write() as session:
        text = api_tokens.create_token(session, "ci", ["submit"], None, repository="team/model")[1]
        plain = api_tokens.create_token(session, "person", ["submit"], None)[1]
    app = application(api_settings.model_copy(update={"gate_rules": path, "require_tokens": True}))

    def ask(token, rules):
        _pin(tmp_path, request, rules)
        return client.get(f"/api/v1/jobs/{job}/gate", headers={"Authorization": f"Bearer {token}"})

    with TestClient(app, base_url="http://127.0.0.1") as client:
        told = ask(text, pinned_keys).json()
        assert (told["repository"], told["exit_code"], told["result"]) == (
            "team/model",
            code,
            result,
        )
        assert ("advisory" in told["note"]) is ("advisory" in pinned_keys)
        assert ask(text, "steps = 1000000").status_code == 422
        assert ask(plain, "").status_code == 403


@pytest.mark.both_databases
def test_a_job_that_goes_on_has_no_exit_code_yet(
    application, api_settings, database, request_body, tmp_path
):
    path = _pin(tmp_path, request_body, 'on_infra = "pass"')
    with database.write() as session:
        text = api_tokens.create_token(session, "ci", ["submit"], None, repository="team/model")[1]
    app = application(api_settings.model_copy(update={"gate_rules": path, "require_tokens": True}))
    with TestClient(
        app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {text}"}
    ) as client:
        job = client.post("/api/v1/jobs:gate", json={**request_body, "revision": "r"}).json()[
            "job"
        ]["id"]
        told = client.get(f"/api/v1/jobs/{job}/gate").json()
        assert (told["exit_code"], told["result"]) == (None, None)
        client.post(f"/api/v1/jobs/{job}:cancel")
        told = client.get(f"/api/v1/jobs/{job}/gate").json()
        assert (told["exit_code"], told["result"]) == (4, "infrastructure")
