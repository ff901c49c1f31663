"""What an owner states of external runs after the fact: where the record holds nothing, once, and
what it costs.
"""

import dataclasses
import html
import json
import re

import httpx2
import numpy as np
import pytest

from parity import cli
from parity.cards.card import Card
from parity.cards.card_file import read_card
from parity.client.rest import Client, ClientError
from parity.client.whole_run import send_run
from parity.judging.bundles.verification import verify
from parity.judging.curves.curve import curve_from_arrays
from server.database.tables import Job, Statement
from server.jobs import applied_statements
from server.jobs.judge_claim import claim

STEPS = 600


def _spec(**changes):
    baseline, candidate = (
        {"recipe": "fp8_current", "replicates": 2},
        {"recipe": "other:myfp4", "name": "myfp4", "replicates": 2},
    )
    spec = {
        "name": "mine",
        "engine": "external",
        "schedule": {"steps": STEPS},
        "baseline": baseline,
        "candidates": [candidate],
    }
    return spec | changes


def _curve(arm, replicate, steps=STEPS):
    t = np.arange(steps)
    batch = np.random.default_rng(replicate).normal(0, 0.05, steps)
    noise = np.random.default_rng([replicate, len(arm)])
    loss = (
        2.0
        + 3.0 * np.exp(-t / 60)
        + batch
        + noise.normal(0, 0.004, steps)
        + noise.normal(0, 0.0005)
    )
    rate = 1e-3 * 0.5 * (1 + np.cos(np.pi * (t + 1) / steps))
    return curve_from_arrays(t, loss, columns={"learning_rate": rate})


@pytest.fixture
def client(served):
    with Client(served) as client:
        yield client


def _trained(client, spec, finish=True):
    job = client.submit(spec, {"margin": "1%"})
    if finish:
        for arm in job["arms"]:
            for run in arm["runs"]:
                assert (
                    send_run(
                        client,
                        run["id"],
                        _curve(arm["name"], run["replicate"]),
                        {"device_class": "h100"},
                        None,
                    )
                    is None
                )
    return job["id"]


def _rounding(verdict):
    return {run.get("rounding") for run in verdict["inputs"]["candidate"]}


def _refused(client, job, facts, status):
    with pytest.raises(ClientError) as caught:
        client.state(job, facts)
    assert caught.value.status == status
    return str(caught.value)


def test_the_record_has_only_what_was_stated(client):
    job = client.submit(_spec(), {"margin": "1%"})
    assert {name: job["spec"][name] for name in ("engine", "schedule")} == {
        "engine": "external",
        "schedule": {"steps": STEPS},
    }
    assert not {"model", "data", "seed", "layer_policy", "devices"} & job["spec"].keys()
    assert (
        job["planned_steps"],
        job["tokens_per_step"],
        job["layer_policy"],
        job["parameters"],
    ) == (STEPS, None, None, None)
    spec = {name: value for name, value in _spec().items() if name != "schedule"} | {
        "data": {"batch_size": 8, "sequence_length": 512}
    }
    other = client.submit(spec, {"margin": "1%"})
    assert (other["planned_steps"], other["tokens_per_step"], other["spec"]["data"]) == (
        None,
        4096,
        spec["data"],
    )
    assert {run["planned_steps"] for arm in other["arms"] for run in arm["runs"]} == {None}
    page = httpx2.get(client.page(other["id"]), timeout=60).text
    assert "length not stated of 4,096 tokens" in page
    assert "1,500" not in page  # the steps of our own trainer's schedule
    assert "1,500" not in httpx2.get(client.page(job["id"]), timeout=60).text


@pytest.mark.both_databases
def test_a_statement_before_the_end_is_part_of_the_verdict(client, ended, served):
    spec = _spec()
    del spec["schedule"]
    job = _trained(client, spec, finish=False)
    remarks = client.state(
        job, {"rounding": {"myfp4": "nearest"}, "planned_steps": STEPS, "tokens_per_step": 4096}
    )
    assert {
        (statement["fact"], statement["arm"], statement["value"], statement["is_late"])
        for statement in remarks["statements"]
    } == {
        ("rounding", "myfp4", "nearest", False),
        ("planned_steps", "", STEPS, False),
        ("tokens_per_step", "", 4096, False),
    }
    for arm in client.job(job)["arms"]:
        for run in arm["runs"]:
            assert run["planned_steps"] == STEPS
            send_run(
                client,
                run["id"],
                _curve(arm["name"], run["replicate"]),
                {"device_class": "h100"},
                None,
            )
    with httpx2.Client(base_url=served, timeout=60) as raw:
        document = ended(raw, job)
    (verdict,) = document["verdicts"]
    assert _rounding(verdict) == {"nearest"}
    assert verdict["window"]["last"] == STEPS - 1
    notes = verdict["inputs"]["candidate"][0]["notes"]
    assert {note.split(", by ")[0] for note in notes} == {
        "stated later: rounding of myfp4: nearest",
        f"stated later: planned steps: {STEPS}",
        "stated later: tokens per step: 4096",
    }
    assert client.rejudge(job)["verdicts"] == [verdict]
    page = httpx2.get(client.page(job), timeout=60).text
    assert "600 steps" in page
    card = read_card(httpx2.get(f"{served}/api/v1/jobs/{job}/card.yaml", timeout=60).text, "card")
    assert isinstance(card, Card)
    stated = {(one.fact, one.arm): (one.value, one.by) for one in card.statements}
    for fact, arm, value in (
        ("rounding", "myfp4", "nearest"),
        ("planned_steps", None, str(STEPS)),
        ("tokens_per_step", None, "4096"),
    ):
        assert (stated[fact, arm][0], stated[fact, arm][1].partition(", ")[0]) == (
            value,
            notes[0].partition(", by ")[2].partition(", ")[0],
        )


@pytest.mark.both_databases
def test_without_a_plan_there_is_a_verdict_that_asks_for_it(client, ended, served):
    spec = _spec()
    del spec["schedule"]
    job = _trained(client, spec)
    with httpx2.Client(base_url=served, timeout=60) as raw:
        (before,) = ended(raw, job)["verdicts"]
    assert before["verdict"] == "inconclusive"
    assert (before["codes"][0], before["schedule"]["finished"]) == ("AS_OF", False)
    client.state(job, {"planned_steps": STEPS})
    (now,) = client.rejudge(job)["verdicts"]
    assert ("AS_OF" in now["codes"], now["schedule"]["finished"]) == (False, True)


def _next_of(client, job):
    page = httpx2.get(client.page(job), timeout=60).text
    shown = re.search(r'class="next"[^>]*>(.*?)</section>', page, re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", shown[1])).replace("`", "").split())


def test_the_next_step_of_external_runs_is_stated_on_the_page_and_judged(
    client, ended, served, capsys
):
    spec = _spec()
    del spec["schedule"]
    job = _trained(client, spec)
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    step = _next_of(client, job)
    assert f"state it on the job's page (planned steps: {STEPS})" in step
    assert "--" not in step
    assert "this would be a pass" in step
    sent = httpx2.post(
        f"{served}/jobs/{job}/statements",
        data={"what": ["planned_steps"], "value": [str(STEPS)]},
        timeout=60,
    )
    assert sent.status_code == 303, sent.text
    command = re.search(r"parity (runs judge [^\s)]+)", step)
    assert command
    with pytest.raises(SystemExit) as left:
        cli.main([*command[1].split(), "--server", served])
    captured = capsys.readouterr()
    assert left.value.code == 0, captured.out + captured.err
    assert "PASS" in captured.out


def test_what_a_policy_states_needs_a_new_job_of_external_runs(client, ended, served):
    """Without rates nothing shows the end of the schedule; a job keeps its policy."""

    def trained(policy):
        job = client.submit(_spec(), policy)
        for arm in job["arms"]:
            for run in arm["runs"]:
                curve = dataclasses.replace(_curve(arm["name"], run["replicate"]), columns={})
                assert send_run(client, run["id"], curve, {"device_class": "h100"}, None) is None
        with httpx2.Client(base_url=served, timeout=60) as raw:
            return ended(raw, job["id"])

    job = trained({"margin": "1%"})
    assert job["verdicts"][0]["verdict"] == "inconclusive"
    step = _next_of(client, job["id"])
    assert "as_of: accept in the policy" in step
    again = trained({"margin": "1%", "as_of": "accept"})
    assert again["verdicts"][0]["verdict"] == "pass"


def test_a_plan_that_is_shorter_than_the_runs_is_refused(client, ended, served):
    spec = _spec()
    del spec["schedule"]
    job = _trained(client, spec)
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    assert "599" in _refused(client, job, {"planned_steps": STEPS // 2}, 422)
    client.state(job, {"planned_steps": STEPS - 1})  # of a trainer that counts from 1


def test_while_a_job_is_judged_nothing_is_stated(client, database):
    job = _trained(client, _spec(), finish=False)
    with database.write() as session:
        assert claim(session, job, "a judge")
    assert "judged" in _refused(client, job, {"rounding": {"myfp4": "nearest"}}, 409)
    with database.write() as session:
        session.get_one(Job, job).judging_until = None
    client.state(job, {"rounding": {"myfp4": "nearest"}})


def test_a_late_statement_changes_the_answer_and_not_the_record(client, ended, served, tmp_path):
    job = _trained(client, _spec())
    with httpx2.Client(base_url=served, timeout=60) as raw:
        before = ended(raw, job)["verdicts"]
        assert _rounding(before[0]) == {None}
        client.state(job, {"rounding": {"myfp4": "nearest"}, "tokens_per_step": 4096})
        (now,) = client.rejudge(job)["verdicts"]
        assert _rounding(now) == {"nearest"}
        assert now["gap"]["hi"] - now["gap"]["lo"] < before[0]["gap"]["hi"] - before[0]["gap"]["lo"]
        assert now["multiplicity"]["look"] == 1
        assert client.job(job)["verdicts"] == before
        bundle = tmp_path / "evidence.zip"
        bundle.write_bytes(raw.get(f"/api/v1/jobs/{job}/evidence.zip").content)
    assert not verify(str(bundle)).differences


def test_a_second_late_statement_of_a_fact_is_a_look(client, ended, served):
    job = _trained(
        client, _spec(baseline={"recipe": "other:mine", "name": "base", "replicates": 2})
    )
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    client.state(job, {"rounding": {"myfp4": "nearest"}})
    client.state(job, {"tokens_per_step": 512})
    assert client.rejudge(job)["verdicts"][0]["multiplicity"]["looks"] == 1
    client.state(job, {"rounding": {"base": "nearest"}})
    shared = client.rejudge(job)["verdicts"][0]["multiplicity"]
    assert (shared["look"], shared["looks"]) == (2, 2)


def test_both_arms_in_one_request_are_one_statement(client, ended, served):
    job = _trained(
        client, _spec(baseline={"recipe": "other:mine", "name": "base", "replicates": 2})
    )
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    client.state(
        job,
        {
            "rounding": {"myfp4": "nearest", "base": "nearest"},
            "seeds": {"myfp4": [1, 2], "base": [1, 2]},
        },
    )
    (verdict,) = client.rejudge(job)["verdicts"]
    assert verdict["multiplicity"]["looks"] == 1
    assert [run["seed"] for run in verdict["inputs"]["candidate"]] == [1, 2]


@pytest.mark.both_databases
def test_nothing_on_record_is_overwritten(client, database):
    job = _trained(client, _spec(family="modded-nanogpt-124M/track3", seed=7), finish=False)
    assert "600" in _refused(client, job, {"planned_steps": 700}, 409)
    assert "other:myfp4" in _refused(client, job, {"recipe": {"myfp4": "nvfp4"}}, 409)
    # as the recipe does
    assert "nearest" in _refused(client, job, {"rounding": {"fp8_current": "stochastic"}}, 409)
    assert "7, 7" in _refused(client, job, {"seeds": {"myfp4": [1, 2]}}, 409)
    assert "modded" in _refused(client, job, {"family": "any-decoder"}, 409)
    client.state(job, {"rounding": {"myfp4": "nearest"}})
    assert "nearest" in _refused(
        client, job, {"rounding": {"myfp4": "stochastic"}, "tokens_per_step": 5}, 409
    )
    with database.read() as session:
        # all of a request or nothing
        assert [statement.fact for statement in session.query(Statement)] == ["rounding"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "nothing is stated"),
        ({"rounding": {"nvfp5": "nearest"}}, "fp8_current, myfp4"),
        ({"seeds": {"myfp4": [1]}}, "2 runs"),
        ({"family": "no such family"}, "no such family"),
        ({"rounding": {"myfp4": "up"}}, "up"),
        ({"planned_steps": 0}, "0"),
    ],
)
def test_what_cannot_be_is_refused(client, database, facts, words):
    job = _trained(client, _spec(), finish=False)
    assert words in _refused(client, job, facts, 422)
    with database.read() as session:
        assert session.query(Statement).count() == 0


def test_runs_of_workers_record_everything_themselves(client, make_job, database):
    job = client.submit(json.loads(json.dumps(make_job(100).document())), {"margin": "1%"})["id"]
    assert "engine emulated" in _refused(client, job, {"rounding": {"fp8_current": "nearest"}}, 422)


def test_the_command_states_and_judges(client, served, ended, capsys):
    job = _trained(client, _spec())
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    with pytest.raises(SystemExit) as left:
        cli.main(["runs", "state", job, "--rounding", "myfp4=nearest", "--server", served])
    captured = capsys.readouterr()
    assert left.value.code == 0, captured.err
    assert "stated: rounding of myfp4 nearest, by this machine" in captured.err
    assert "myfp4" in captured.out
    for words, code in (
        (["--rounding", "myfp4=nearest"], 2),
        ([], 2),
        (["--seeds", "myfp4=a"], 2),
        (["--rounding", "nearest"], 2),
    ):
        with pytest.raises(SystemExit) as left:
            cli.main(["runs", "state", job, *words, "--server", served])
        assert left.value.code == code


def test_the_noise_of_a_stated_family_is_borrowed(client, served, ended, database):
    job = _trained(client, _spec())
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    client.state(job, {"family": "any-decoder"})
    (verdict,) = client.rejudge(job)["verdicts"]
    assert verdict["tau"]["baseline"]["borrowed"]["family"] == "any-decoder"
    with database.read() as session:
        row = session.get_one(Job, job)
        assert (applied_statements.family(row), applied_statements.family(row, late=False)) == (
            "any-decoder",
            None,
        )


@pytest.mark.both_databases
def test_the_page_states_what_is_not_on_record(client, served, database):
    job = _trained(client, _spec(), finish=False)
    page = httpx2.get(client.page(job), timeout=60).text
    offered = [line.split('"')[0] for line in page.split('name="what" value="')[1:]]
    assert offered == [
        "seeds fp8_current",
        "rounding myfp4",
        "seeds myfp4",
        "tokens_per_step",
        "family",
    ]
    values = ["1, 2", "nearest", "1,2", "4,096", ""]
    sent = httpx2.post(
        f"{served}/jobs/{job}/statements", data={"what": offered, "value": values}, timeout=60
    )
    assert sent.status_code == 303, sent.text
    with database.read() as session:
        stated = {
            (statement.fact, statement.arm): statement.value
            for statement in session.query(Statement)
        }
    expected = {
        ("seeds", "fp8_current"): [1, 2],
        ("rounding", "myfp4"): "nearest",
        ("seeds", "myfp4"): [1, 2],
        ("tokens_per_step", ""): 4096,
    }
    assert stated == expected
    page = httpx2.get(client.page(job), timeout=60).text
    assert "rounding of myfp4: nearest" in page
    assert page.count('name="what"') == 1  # the family alone is left
    for what, value in (
        ("seeds myfp4", "1, x"),
        ("rounding myfp4", "up"),
        ("planned_steps", "many"),
        ("planned_steps", "9"),
        ("odd", "1"),
    ):
        wrong = httpx2.post(
            f"{served}/jobs/{job}/statements", data={"what": [what], "value": [value]}, timeout=60
        )
        assert wrong.status_code in (409, 422), (what, wrong.text)


def test_a_default_that_is_written_out_asks_the_same_question(client):
    policy = {"margin": "1%", "question": "release 2"}
    client.submit(_spec(), policy)
    for changes in (
        {"devices": 1},
        {"keep_first": 0},
        {"model": {}},
        {"schedule": {"steps": STEPS, "warmup_steps": 50}},
    ):
        with pytest.raises(ClientError) as caught:
            client.submit(_spec(**changes), policy)
        assert caught.value.status == 409, changes


def test_short_reruns_keep_their_length(client):
    spec = _spec(short_reruns={"runs": 2, "stop_at": 0.5})
    assert [
        run["planned_steps"]
        for run in client.submit(spec, {"margin": "1%"})["arms"][0]["short_reruns"]
    ] == [STEPS // 2] * 2
    del spec["schedule"]
    job = client.submit(spec, {"margin": "1%"})
    assert [run["planned_steps"] for run in job["arms"][0]["short_reruns"]] == [None] * 2
    client.state(job["id"], {"planned_steps": 400})
    arm = client.job(job["id"])["arms"][0]
    assert [[run["planned_steps"] for run in arm[kind]] for kind in ("runs", "short_reruns")] == [
        [400] * 2,
        [200] * 2,
    ]


def test_a_trainer_and_a_statement_agree_or_the_later_one_is_refused(client):
    job = client.submit(
        _spec(baseline={"recipe": "other:unstated", "name": "base", "replicates": 2}),
        {"margin": "1%"},
    )
    base, cand = (arm["runs"][0]["id"] for arm in job["arms"])
    client.state(job["id"], {"recipe": {"base": "nvfp4"}, "rounding": {"myfp4": "stochastic"}})
    for run in (base, cand):
        with pytest.raises(ClientError) as caught:
            client.attach(run, {}, rounding="nearest")
        assert caught.value.status == 422


def test_a_late_family_leaves_a_gate_its_verdict(client, served, ended):
    job = {"job": _spec(), "policy": {"margin": "1%"}, "revision": "abc"}
    made = client.gate(job, "one")["job"]
    for arm in made["arms"]:
        for run in arm["runs"]:
            send_run(
                client,
                run["id"],
                _curve(arm["name"], run["replicate"]),
                {"device_class": "h100"},
                None,
            )
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, made["id"])
    assert client.gate(job, "one")["found"] == "concluded"
    client.state(made["id"], {"family": "any-decoder"})
    assert client.gate(job, "one")["found"] == "concluded"
    del job["job"]["schedule"]
    assert client.gate(job, "one")["found"] == "new"  # its runs have no length


def test_a_baseline_whose_length_was_stated_later_has_that_length(client, served, ended):
    spec = _spec()
    del spec["schedule"]
    job = _trained(client, spec)
    with httpx2.Client(base_url=served, timeout=60) as raw:
        ended(raw, job)
    client.state(job, {"planned_steps": STEPS})
    assert client.promote("mine", job, "it is good")["version"] == 1
    later = client.submit(_spec(), {"margin": "1%"}, order={"baseline": {"name": "mine"}})
    assert later["baseline"]["name"] == "mine"
