"""Two revisions of one recipe whose runs are too short to judge: what the rule of goldens says of
them, and that a gate takes it only where its operator pinned that.
"""

import copy
import time
from typing import Any

import numpy as np
import pytest
import yaml
from fastapi.testclient import TestClient

from server.database.metrics import store
from server.database.tables import Job
from server.jobs.conclude import conclude
from server.web.access import api_tokens
from tests.parity.golden.curves import losses, rerun_of

ROWS = 50
BASE, HEAD = "a" * 40, "b" * 40
JOB: dict[str, Any] = {
    "name": "main",
    "engine": "command",
    "command": {"launcher": "loop"},
    "schedule": {"steps": ROWS, "warmup_steps": 0},
    "baseline": {"recipe": "bf16", "revision": "base", "name": "base"},
    "candidates": [{"recipe": "bf16", "revision": "head", "name": "head"}],
}
OF_BOTH: dict[str, Any] = {
    **JOB,
    "candidates": [
        {"recipe": "bf16", "revision": "head", "name": "head"},
        {"recipe": "nvfp4", "revision": "head", "name": "nvfp4", "against": "head"},
    ],
}
POLICY = {"margin": "1.0%"}
RAMP = np.minimum(1.0, np.arange(ROWS) / 30.0)
# Of runs of the job's seed, and of the next one.
GOLDENS = (losses(ROWS, seed=1), losses(ROWS, seed=2))


def commits(job):
    """The job as a gate sends it, with whole ids of commits."""
    sent = copy.deepcopy(job)
    for arm in (sent["baseline"], *sent["candidates"]):
        arm["revision"] = {"base": BASE, "head": HEAD}[arm["revision"]]
    return sent


@pytest.fixture
def client(application, api_settings, database, tmp_path):
    """A client of a server with rules for several repositories, and the headers of their tokens."""
    rules = ""
    for name, job, pinned in (
        ("closed", JOB, ""),
        ("open", JOB, 'on_same_numerics = "pass"\n'),
        ("both", OF_BOTH, 'on_same_numerics = "pass"\n'),
        ("loose", JOB, 'on_inconclusive = "pass"\n'),
    ):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"job": job, "policy": POLICY}))
        rules += f'[repository."team/{name}"]\njob = "{name}.yaml"\n{pinned}'
    (tmp_path / "rules.toml").write_text(rules)
    tokens = {}
    with database.write() as session:
        for name in ("closed", "open", "both", "loose"):
            secret = api_tokens.create_token(
                session, name, ["submit"], None, repository=f"team/{name}"
            )[1]
            tokens[name] = {"Authorization": f"Bearer {secret}"}
    settings = {"gate_rules": tmp_path / "rules.toml", "require_tokens": True}
    app = application(api_settings.model_copy(update=settings))
    with TestClient(app, base_url="http://127.0.0.1") as connected:
        yield connected, tokens


@pytest.fixture
def rules_of(tmp_path):
    """A function that writes the operator's job file of a repository anew."""

    def write(name, job, policy=POLICY):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"job": job, "policy": policy}))

    return write


@pytest.fixture
def gated(client, database):
    """A function that has a gate ask, trains the arms on paper, and judges: the job's document and
    how the gate leaves.
    """
    connected, tokens = client

    def ask(name, curves, job=JOB, facts=None, columns=None, policy=POLICY):
        sent = {"job": commits(job), "policy": policy, "revision": HEAD}
        answer = connected.post("/api/v1/jobs:gate", json=sent, headers=tokens[name])
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["job"]["id"]
        _train(database, job_id, curves, facts or {}, columns or {})
        conclude(database, job_id)
        document = connected.get(f"/api/v1/jobs/{job_id}", headers=tokens[name]).json()
        left = connected.get(f"/api/v1/jobs/{job_id}/gate", headers=tokens[name])
        assert left.status_code == 200, left.text
        return document, left.json()

    return ask


def _train(database, job_id, curves, facts, columns):
    """Give each run of an arm a curve, as a worker would: one of each seed."""
    with database.write() as session:
        job = session.get_one(Job, job_id)
        seeds = sorted({run.seed for run in job.runs})
        for run in job.runs:
            loss = np.round(curves[run.arm.name][seeds.index(run.seed)], 5)
            steps = np.arange(len(loss))
            recorded = {"lm_loss": loss, "loss": loss, **columns.get(run.arm.name, {})}
            store.append(session, run.id, "train", 1, steps, recorded)
            run.state, run.attempt_number, run.steps_done = "finished", 1, len(loss)
            run.manifest = {
                "engine": "command",
                "device_class": "h100",
                "code_digest": f"digest-{run.arm.name}",
                **facts.get(run.arm.name, {}),
            }
            run.finished_at = time.time()


def of(head, base=GOLDENS, **more):
    return {"base": base, "head": head, **more}


HONEST = tuple(rerun_of(loss, seed=50 + at) for at, loss in enumerate(GOLDENS))
WORSE = tuple(loss * (1.0 + 0.01 * RAMP) for loss in HONEST)


def test_too_short_runs_that_differ_by_rounding_have_their_own_answer_and_no_pass(gated):
    document, left = gated("closed", of(HONEST))
    (verdict,) = document["verdicts"]
    assert (verdict["verdict"], verdict["codes"][0]) == ("inconclusive", "TOO_FEW_STEPS")
    assert document["numerics"]["head"]["answer"] == "numerics only"
    assert "another precision" in document["numerics"]["head"]["scope"]
    assert (left["result"], left["exit_code"]) == ("inconclusive", 3)


@pytest.mark.parametrize("nats", [0.0, 0.0015])
def test_the_jobs_page_says_that_it_is_no_verdict(gated, client, nats):
    connected, tokens = client
    document, _ = gated("open", of(tuple(loss + nats for loss in HONEST)))
    page = connected.get(f"/jobs/{document['id']}", headers=tokens["open"])
    assert page.status_code == 200
    assert "Too short to judge" in page.text
    assert ("no gate takes it" in page.text) is (nats > 0.0)


def test_a_gate_takes_it_where_the_operator_pinned_that_and_says_so(gated):
    document, left = gated("open", of(HONEST))
    assert document["verdicts"][0]["verdict"] == "inconclusive"
    assert (left["result"], left["exit_code"]) == ("inconclusive", 0)
    assert left["note"].startswith("same numerics, no verdict")
    assert "on_same_numerics: pass" in left["note"]


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (WORSE, "worse"),
        (tuple(loss * (1.0 - 0.01 * RAMP) for loss in HONEST), None),
        (tuple(loss + 0.01 * (np.arange(ROWS) < 3) for loss in HONEST), "set-up changed"),
        ((losses(ROWS, seed=8), losses(ROWS, seed=9)), None),
    ],
)
def test_a_change_that_is_no_rounding_passes_no_gate(gated, head, answer):
    document, left = gated("open", of(head))
    found = document["numerics"].get("head", {}).get("answer")
    assert found == answer
    assert left["exit_code"] != 0  # where there is none, the judge has a reason of its own


def test_loosened_options_of_a_pull_request_cannot_turn_it_on(client, gated):
    connected, tokens = client
    _, left = gated("closed", of(HONEST))
    assert left["exit_code"] == 3
    sent = {"job": commits(JOB), "policy": POLICY, "revision": HEAD, "on_same_numerics": "pass"}
    refused = connected.post("/api/v1/jobs:gate", json=sent, headers=tokens["closed"])
    assert refused.status_code == 422


def test_a_candidate_of_another_recipe_has_no_such_answer(gated):
    nvfp4 = tuple(rerun_of(loss, seed=70) for loss in HONEST)
    document, left = gated("both", of(HONEST, nvfp4=nvfp4), job=OF_BOTH)
    assert {verdict["verdict"] for verdict in document["verdicts"]} == {"inconclusive"}
    assert [*document["numerics"]] == ["head"]
    assert left["exit_code"] == 3


@pytest.mark.parametrize(
    "facts",
    [
        {"head": {"device_class": "b200"}},
        {"head": {"parameters": "{}"}},
        {"base": {"data_digest": "d1"}, "head": {"data_digest": "d2"}},
        {"base": {"recorded_recipe": "bf16"}, "head": {"recorded_recipe": "nvfp4"}},
        {"head": {"recorded_recipe": "nvfp4"}},
        {"base": {"pinned": "jax 1"}, "head": {"pinned": "jax 2"}},
    ],
)
def test_a_fact_on_record_that_differs_leaves_no_answer(gated, facts):
    document, left = gated("open", of(HONEST), facts=facts)
    assert document["numerics"].get("head", {}).get("answer") not in ("identical", "numerics only")
    assert left["exit_code"] != 0


def test_equal_facts_leave_the_answer(gated):
    equal = {"parameters": "{}", "data_digest": "d", "pinned": "jax 1"}
    revisions = {"base": {"code_revision": BASE}, "head": {"code_revision": HEAD}}
    facts = {arm: equal | revisions[arm] for arm in revisions}
    document, left = gated("open", of(HONEST), facts=facts)
    assert document["numerics"]["head"]["answer"] == "numerics only"
    assert left["exit_code"] == 0


@pytest.mark.parametrize(
    ("name", "factor", "code"),
    [("grad_norm", 1.0, 0), ("grad_norm", 2.0, 3), ("learning_rate", 1.0, 0)],
)
def test_recorded_norms_and_rates_count_too(gated, name, factor, code):
    values = np.full(ROWS, 0.5)
    columns = {"base": {name: values}, "head": {name: values * factor}}
    assert gated("open", of(HONEST), columns=columns)[1]["exit_code"] == code


def test_of_several_pairs_the_worst_counts(gated):
    two = copy.deepcopy(JOB)
    for arm in (two["baseline"], *two["candidates"]):
        arm["replicates"] = 2
    document, left = gated("open", of((HONEST[0], WORSE[1])), job=two)
    assert document["numerics"]["head"]["answer"] == "worse"
    assert left["exit_code"] == 3


def test_both_pairs_being_fine_is_taken(gated):
    two = copy.deepcopy(JOB)
    for arm in (two["baseline"], *two["candidates"]):
        arm["replicates"] = 2
    document, left = gated("open", of(HONEST), job=two)
    assert document["numerics"]["head"]["answer"] == "numerics only"
    assert left["exit_code"] == 0


def test_a_run_of_a_seed_without_its_reference_has_no_answer(gated):
    """Another seed reads other batches, and nothing says of the second run whether it is fine."""
    more = copy.deepcopy(JOB)
    more["candidates"][0]["replicates"] = 2
    document, left = gated("open", of(HONEST), job=more)
    assert document["numerics"] == {}
    assert left["exit_code"] == 3


@pytest.mark.parametrize(
    ("recipe", "nats", "code"),
    [
        ("bf16", 0.0, 0),
        ("bf16", 0.0003, 0),  # as reruns in bf16
        ("bf16", 0.0015, 3),  # as fp8 for bf16
        ("f32", 0.0, 0),
        ("f32", 0.0003, 3),  # as bf16 for f32
        ("fp8_current", 0.0, 3),
        ("nvfp4", 0.0, 3),
        ("other:mine", 0.0, 3),
    ],
)
def test_what_may_be_another_precision_in_the_code_is_taken_by_no_gate(
    gated, recipe, nats, code, rules_of
):
    """Differences of the first steps that come back, so that the level at the end is the same."""
    job = copy.deepcopy(JOB)
    for arm in (job["baseline"], *job["candidates"]):
        arm["recipe"] = recipe
    rules_of("open", job)
    signs = np.where(np.arange(ROWS) % 2, -1.0, 1.0)
    head = tuple(loss + nats * signs for loss in HONEST)
    document, left = gated("open", of(head), job=job)
    assert document["numerics"]["head"]["answer"] in ("identical", "numerics only")
    assert bool(document["numerics"]["head"]["blocked"]) is (code == 3)
    assert left["exit_code"] == code


@pytest.mark.parametrize(("margin", "code"), [("1.0%", 0), ("0.35%", 0), ("0.2%", 3)])
def test_a_margin_that_is_finer_than_the_rule_is_not_met_by_it(gated, rules_of, margin, code):
    rules_of("open", JOB, {"margin": margin})
    document, left = gated("open", of(HONEST), policy={"margin": margin})
    assert document["numerics"]["head"]["answer"] == "numerics only"
    assert ("the margin" in (document["numerics"]["head"]["blocked"] or "")) is (code == 3)
    assert left["exit_code"] == code


def test_runs_that_the_judge_can_decide_have_no_such_answer(gated):
    """A gap beyond the margin fails, however short the runs are."""
    document, left = gated("open", of(tuple(loss * 1.2 for loss in HONEST)))
    assert document["numerics"] == {}
    assert left["exit_code"] != 0
