"""Attacks of a pull request on a gate with pinned rules, over REST: each is refused in one line,
and its honest twin works.
"""

import copy
import json
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.database.tables import Job, Run, Token
from server.jobs.conclude import conclude
from server.web.access import api_tokens

JOB: dict[str, Any] = {
    "name": "main",
    "baseline": {"recipe": "fp8_current", "replicates": 2},
    "candidates": [{"recipe": "nvfp4", "replicates": 2}],
    "schedule": {"steps": 400},
}
POLICY = {"margin": "1.0%"}
EXTERNAL: dict[str, Any] = {
    "name": "own",
    "engine": "external",
    "baseline": {"recipe": "bf16"},
    "candidates": [
        {"recipe": "nvfp4_no_sr", "name": "nvfp4_no_sr"},
        {"recipe": "other:mine", "name": "mine"},
    ],
    "schedule": {"steps": 400},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.yaml").write_text(yaml.safe_dump({"job": JOB, "policy": POLICY}))
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"job": EXTERNAL, "policy": POLICY}))
    (tmp_path / "rules.toml").write_text(
        '[repository."team/model"]\njob = "model.yaml"\n'
        '[repository."team/own"]\njob = "own.yaml"\nexternal = true\n'
        'statements = {rounding = {nvfp4_no_sr = "nearest"}, tokens_per_step = 4096}\n'
        '[repository."team/closed"]\njob = "own.yaml"\n'
        '[repository."team/old"]\nmargin = "1%"\nrecipes = ["fp8_current", "nvfp4"]\n'
    )
    return tmp_path


@pytest.fixture
def ask(application, api_settings, database, folder):
    """A function that sends a request with the token of a repository; also of a person and of an
    admin.
    """
    made = {}
    with database.write() as session:
        for name in ("model", "own", "closed", "old", "none"):
            made[name] = api_tokens.create_token(
                session, name, ["submit"], None, repository=f"team/{name}"
            )[1]
        made["person"] = api_tokens.create_token(session, "person", ["submit"], None)[1]
        made["admin"] = api_tokens.create_token(session, "admin", ["admin"], None)[1]
        same = session.scalars(select(Token).where(Token.name == "own")).one()
        made["own without repository"] = api_tokens.create_token(
            session, "own 2", ["submit"], None, principal_id=same.id
        )[1]
    app = application(
        api_settings.model_copy(
            update={"gate_rules": folder / "rules.toml", "require_tokens": True}
        )
    )
    with TestClient(app, base_url="http://127.0.0.1") as client:

        def send(who, path, body=None, method="POST"):
            return client.request(
                method,
                f"/api/v1/{path}",
                json=body,
                headers={"Authorization": f"Bearer {made[who]}"},
            )

        yield send


@pytest.fixture
def gate(ask):
    def send(who="model", job=JOB, policy=POLICY, **more):
        return ask(who, "jobs:gate", {"job": job, "policy": policy, "revision": "a" * 40, **more})

    return send


def changed(job=JOB, candidate=None, **more):
    made = copy.deepcopy(job) | more
    made["candidates"][0] |= candidate or {}
    return made


JOB_ATTACKS = {
    "a switch to bf16 through the window": {
        "candidate": {"then": {"recipe": "bf16", "from_step": 40}}
    },
    "an override to bf16": {"candidate": {"overrides": [{"recipe": "bf16"}]}},
    "a switch without stochastic rounding": {
        "candidate": {"switches": {"stochastic_rounding": False}}
    },
    "another recipe under the name": {"candidate": {"recipe": "mxfp8", "name": "nvfp4"}},
    "a learning rate of nothing": {"schedule": {"steps": 400, "learning_rate": 1e-9}},
    "invented curves": {"engine": "external"},
    "a shorter run": {"schedule": {"steps": 60}},
    "a longer run": {"schedule": {"steps": 500}},
    "blocks in bf16": {"keep_first": 1, "keep_last": 1},
    "layers in bf16": {"projections": {"down": "bf16"}},
    "fewer layers quantized": {"layer_policy": "mlp_only"},
    "a smaller model": {"model": {"n_layers": 1}},
    "other data": {"data": {"source": "markov"}},
    "shorter sequences": {"data": {"sequence_length": 64}},
    "a chosen seed": {"seed": 12},
    "fewer replicates": {"candidate": {"replicates": 1}},
    "short reruns": {"short_reruns": {"runs": 3}},
    "accumulation": {"gradient_accumulation": 2},
    "kept checkpoints": {"keep_checkpoints": [100]},
    "an easier second candidate": {"candidates": [*JOB["candidates"], {"recipe": "bf16"}]},
    "an easier candidate": {"candidates": [{"recipe": "bf16", "replicates": 2}]},
}
POLICY_ATTACKS = {
    "a wider margin": {"margin": "1.1%"},
    "a margin in another unit": {"margin": "0.001 nats"},
    "lower confidence": {"confidence": 0.6},
    "another window": {"window_fraction": 0.3},
    "a confound allowed": {"may_differ": ["learning_rate"]},
    "no veto": {"validation": "advise"},
    "invented noise": {"baseline_run_noise": "0.0001 nats"},
    "a stated end of the schedule": {"schedule": "decayed"},
    "stated weights": {"start": "loaded"},
    "a pass as of a point": {"as_of": "accept"},
    "more looks": {"looks": 5},
    "another question": {"question": "again"},
    "unpaired": {"pairing": "unpaired"},
    "an early stop": {"early_stop": "stop"},
    "another unit of the loss": {"loss_unit": "other"},
}
AROUND = {
    "a limit that ends the candidate": {"max_run_seconds": 1.0},
    "a verdict of years ago": {"max_age_days": 3650},
    "a baseline of one's own": {"baseline": {"name": "mine"}},
    "a baseline that is not reused": {"baseline": {"reuse": False}},
}


def refused(reply, *words):
    assert reply.status_code == 422, reply.text
    detail = reply.json()["detail"]
    assert "\n" not in detail
    for word in (*words, "team/"):
        assert word in detail, detail


@pytest.mark.parametrize("change", JOB_ATTACKS.values(), ids=[*JOB_ATTACKS])
@pytest.mark.parametrize("lookup", [False, True])
def test_a_changed_job_is_refused(gate, change, lookup):
    refused(gate(job=changed(**change), lookup=lookup), "job.")


@pytest.mark.parametrize("change", POLICY_ATTACKS.values(), ids=[*POLICY_ATTACKS])
def test_a_changed_policy_is_refused(gate, change):
    refused(gate(policy=POLICY | change), "policy.")


@pytest.mark.parametrize("change", AROUND.values(), ids=[*AROUND])
def test_a_request_that_loosens_what_is_around_is_refused(gate, change):
    refused(gate(**change))


HONEST = {
    "the operator's job": {},
    "another name, tags and branch": {
        "job": changed(name="pull request 7"),
        "tags": ["pr"],
        "branch": "fix",
    },
    "defaults written out": {
        "job": changed(engine="emulated", seed=0, model={"preset": "llama3-0.3m"})
    },
    "more replicates": {"job": changed(candidate={"replicates": 3})},
    "a smaller margin": {"policy": {"margin": "0.5%"}},
    "a further check": {"policy": POLICY | {"checks": ["loss", "grad_norm"]}},
    "a smaller priority": {"priority": -5},
    "a younger verdict": {"max_age_days": 0.5},
    "trained again": {"fresh": True},
    "a group": {"group": "team/model#7"},
}


@pytest.mark.parametrize("change", HONEST.values(), ids=[*HONEST])
def test_what_helps_no_worse_candidate_is_free(gate, change):
    assert gate(**change).status_code == 202


def test_each_free_choice_is_in_the_table(gate):
    reply = gate()
    assert reply.json()["pinned"]["repository"] == "team/model"


def test_rules_of_before_pass_nothing_and_say_what_to_type(gate):
    refused(gate("old"), 'job = "FILE"')
    refused(gate("none"), "ask the operator")


def test_external_curves_count_only_where_the_operator_allows_them(gate):
    refused(gate("closed", EXTERNAL), "external = true")
    assert gate("own", EXTERNAL).status_code == 202


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": {"steps": 200}},
        {"data": {"sequence_length": 128, "batch_size": 8}},  # states the tokens of a step
        {"model": {"preset": "llama3-8b"}},  # states the size
        {"family": "any decoder"},
        {"seed": 5},
    ],
)
def test_what_the_file_of_external_runs_does_not_state_is_not_stated(gate, change):
    refused(gate("own", EXTERNAL | change), "job.")


@pytest.fixture
def external(gate):
    """The id of a job of external runs that a gate asked for."""
    return gate("own", EXTERNAL).json()["job"]["id"]


@pytest.mark.parametrize(
    "statement",
    [
        {"rounding": {"mine": "nearest"}},
        {"rounding": {"nvfp4_no_sr": "stochastic"}},
        {"tokens_per_step": 1},
        {"seeds": {"mine": [1]}},
        {"family": "any decoder"},
        {"tokens_per_step": 4096, "rounding": {"mine": "nearest"}},
    ],
)
def test_a_statement_that_the_operator_does_not_make_is_refused(ask, external, statement):
    refused(ask("own", f"jobs/{external}/statements", statement), "stated as")


def test_a_statement_of_the_operator_is_taken(ask, external):
    assert ask("own", f"jobs/{external}/statements", {"tokens_per_step": 4096}).status_code == 201
    assert ask("own", f"jobs/{external}/gate", method="GET").status_code == 200


def test_a_statement_by_another_token_of_the_owner_ends_the_gate(ask, external):
    assert (
        ask(
            "own without repository",
            f"jobs/{external}/statements",
            {"rounding": {"mine": "nearest"}},
        ).status_code
        == 201
    )
    refused(
        ask("own", f"jobs/{external}/gate", method="GET"), "rounding of mine is stated as nearest"
    )


def _attach(ask, who, job, arm, **more):
    run = next(
        each for each in ask(who, f"jobs/{job}", method="GET").json()["arms"] if each["name"] == arm
    )["runs"][0]["id"]
    return ask(who, f"runs/{run}:attach", {"manifest": {}, **more})


def test_a_trainer_states_no_rounding_but_the_operators(ask, external):
    refused(_attach(ask, "own", external, "mine", rounding="nearest"), "by its trainer")
    # the operator states it
    assert _attach(ask, "own", external, "nvfp4_no_sr", rounding="nearest").status_code == 200
    # the wider noise
    assert _attach(ask, "own", external, "mine", rounding="stochastic").status_code == 200
    # by its definition
    assert _attach(ask, "own", external, "bf16", rounding="nearest").status_code == 200


def test_a_rounding_that_a_trainer_stated_with_another_token_ends_the_gate(ask, external):
    assert (
        _attach(ask, "own without repository", external, "mine", rounding="nearest").status_code
        == 200
    )
    refused(ask("own", f"jobs/{external}/gate", method="GET"), "by its trainer")


def test_a_project_is_no_job_of_a_gate(ask):
    run = ask("own", "runs", {"project": "p", "arm": "bf16"}).json()
    refused(ask("own", f"jobs/{run['job']}/gate", method="GET"), "project")


def test_a_job_that_was_submitted_past_the_gate_has_no_exit_code(ask):
    body = {
        "job": changed(candidate={"then": {"recipe": "bf16", "from_step": 40}}),
        "policy": POLICY,
    }
    job = ask("model", "jobs", body).json()["id"]
    refused(ask("model", f"jobs/{job}/gate", method="GET"), "then is")


def test_a_cancelled_job_is_no_trouble_of_the_infrastructure(ask, gate, folder):
    rules = folder / "rules.toml"
    rules.write_text(
        rules.read_text().replace('"model.yaml"\n', '"model.yaml"\non_infra = "pass"\n', 1)
    )
    job = gate().json()["job"]["id"]
    ask("model", f"jobs/{job}:cancel")
    assert ask("model", f"jobs/{job}/gate", method="GET").json()["exit_code"] == 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("baselines", {"name": "main", "job": "j", "reason": "a bad baseline"}),
        ("baselines/main/versions/1:expire", {"reason": "a good baseline"}),
        ("baselines/main/versions/1/controls", {"job": "j", "reason": "tight controls"}),
        ("noise-tables", {"table": "family,group"}),
    ],
)
def test_a_token_of_a_gate_writes_nothing_that_its_verdicts_rest_on(ask, path, body):
    assert ask("model", path, body).status_code == 403
    assert ask("person", path, body).status_code in (404, 409, 422)


def test_only_an_admin_registers_a_new_question(ask, external):
    for who, code in (("own", 403), ("person", 403), ("admin", 409)):
        assert (
            ask(who, f"jobs/{external}:new-question", {"reason": "a broken node"}).status_code
            == code
        )


def test_two_candidates_of_which_one_is_left_out_are_refused(gate):
    refused(gate("own", EXTERNAL | {"candidates": EXTERNAL["candidates"][:1]}), "job.candidates")
    refused(gate("own", EXTERNAL | {"candidates": EXTERNAL["candidates"][::-1]}), "job.candidates")


def test_free_fields_can_be_narrowed(gate, folder):
    rules = folder / "rules.toml"
    rules.write_text(
        rules.read_text().replace('"model.yaml"\n', '"model.yaml"\nfree = ["arm.replicates"]\n', 1)
    )
    refused(gate(job=changed(name="another")), "job.name is another")
    assert gate().status_code == 202


def test_a_late_switch_is_the_arms_name_on_every_surface_without_pins_too(ask, database):
    candidate = {"recipe": "nvfp4", "then": {"recipe": "bf16", "from_step": 1400}}
    job = ask(
        "person",
        "jobs",
        {"job": changed(candidate=candidate, schedule={"steps": 1500}), "policy": POLICY},
    ).json()
    arm = job["arms"][1]
    assert (arm["name"], arm["title"]) == (
        "nvfp4.then-bf16.from-step-1400",
        "nvfp4 then bf16 from step 1,400",
    )
    named = changed(candidate=candidate | {"name": "head"}, schedule={"steps": 1500})
    job = ask("person", "jobs", {"job": named, "policy": POLICY | {"question": "x"}}).json()
    assert job["arms"][1]["title"] == "head (nvfp4 then bf16 from step 1,400)"
    with database.read() as session:
        assert (
            session.get_one(Job, job["id"]).arms[1].stated_recipe
            == "nvfp4 then bf16 from step 1,400"
        )


@pytest.fixture
def judged_late(judged, owner_database):
    """A function that judges recorded runs as if their candidate had been asked for so."""

    def judge(**candidate):
        job_id, _ = judged({"nvfp4": 0.0}, verdict=False)
        with owner_database.write() as session:
            job = session.get_one(Job, job_id)
            job.spec = {**job.spec, "candidates": [job.spec["candidates"][0] | candidate]}
            if "name" in candidate:
                job.arms[1].name = candidate["name"]
        conclude(owner_database, job_id)
        with owner_database.read() as session:
            (row,) = session.get_one(Job, job_id).verdicts
            return json.loads(row.document), row.lead

    return judge


@pytest.mark.parametrize(
    ("candidate", "verdict", "shown"),
    [
        (
            {"then": {"recipe": "bf16", "from_step": 40}},
            "inconclusive",
            "nvfp4 (nvfp4 then bf16 from step 40)",
        ),
        (
            {"then": {"recipe": "bf16", "from_step": 1499}},
            "inconclusive",
            "nvfp4 (nvfp4 then bf16 from step 1,499)",
        ),
        ({"overrides": [{"recipe": "bf16"}]}, "inconclusive", "nvfp4 (bf16)"),
        (
            {"name": "nvfp4-then-bf16", "then": {"recipe": "bf16", "from_step": 40}},
            "pass",
            "nvfp4-then-bf16 (nvfp4 then bf16 from step 40)",
        ),
        (
            {"name": "nvfp4.then-bf16.from-step-40", "then": {"recipe": "bf16", "from_step": 40}},
            "pass",
            "nvfp4 then bf16 from step 40",
        ),
        (
            {"name": "head", "then": {"recipe": "bf16", "from_step": 40}},
            "pass",
            "head (nvfp4 then bf16 from step 40)",
        ),
        ({}, "pass", "nvfp4"),
    ],
)
def test_a_verdict_about_nvfp4_is_not_about_bf16(judged_late, candidate, verdict, shown):
    document, lead = judged_late(**candidate)
    assert document["verdict"] == verdict
    assert (document["codes"][0] == "WINDOW_OTHER_RECIPE") is (verdict == "inconclusive")
    assert shown in lead


def test_the_trainers_run_has_the_late_switch(gate, database):
    """The pinned job's own runs are as they were asked for: names and titles change nothing that
    trains.
    """
    job = gate().json()["job"]["id"]
    with database.read() as session:
        assert {run.arm.name for run in session.query(Run).where(Run.job_id == job)} == {
            "fp8_current",
            "nvfp4",
        }
