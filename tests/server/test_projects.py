"""Runs without a job file: the first run of an arm makes what it needs, and the project is judged
when its owner says so.
"""

import dataclasses
import json
import re
import threading
import time

import httpx2
import numpy as np
import pytest

import parity
from parity import cli
from parity.client.rest import Client, ClientError
from parity.client.run import RunError
from server.database.metrics import store
from server.database.tables import Job, Run
from server.jobs import forecasts

STEPS = 500
FAST = {"flush_seconds": 0.02, "finish_seconds": 60.0}


@pytest.fixture
def client(served):
    with Client(served) as client:
        yield client


def _losses(arm, seed, steps=STEPS):
    t = np.arange(steps)
    batch = np.random.default_rng(seed).normal(0, 0.05, steps)
    own = np.random.default_rng([seed, *arm.encode()])
    return 2.0 + 3.0 * np.exp(-t / 50) + batch + own.normal(0, 0.004, steps), 1e-3 * 0.5 * (
        1 + np.cos(np.pi * (t + 1) / steps)
    )


def _train(served, folder, arm, seed, steps=STEPS, project="mine", before_end=lambda: None, **more):
    stated = {"planned_steps": STEPS, "manifest": {"device_class": "h100"}, **more}
    with parity.Run(
        project=project,
        arm=arm,
        seed=seed,
        server=served,
        folder=folder,
        strict=True,
        **stated,
        **FAST,
    ) as run:
        for step, (loss, rate) in enumerate(zip(*_losses(arm, seed, steps), strict=True)):
            run.log(step, loss=loss, learning_rate=rate)
        before_end()


def _refused(call, status):
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.status == status
    return str(caught.value)


def _only_job(database):
    with database.read() as session:
        return session.query(Job).one().id


@pytest.mark.both_databases
def test_from_two_scripts_to_a_verdict(served, client, database, tmp_path, capsys):
    for seed in (1, 2):
        _train(served, tmp_path, "fp8", seed, recipe="fp8_current")
        _train(served, tmp_path, "nvfp4", seed, recipe="nvfp4")
    job = _only_job(database)
    document = client.job(job)
    assert (
        document["is_open"],
        document["status"],
        document["engine"],
        document["planned_steps"],
    ) == (True, "running", "external", STEPS)
    assert [
        (arm["name"], arm["role"], arm["recipe"], len(arm["runs"])) for arm in document["arms"]
    ] == [
        ("fp8", "baseline", "fp8_current", 2),
        ("nvfp4", "candidate", "nvfp4", 2),
    ]
    assert document["spec"]["candidates"][0]["name"] == "nvfp4"
    assert not {"model", "data", "seed"} & document["spec"].keys()
    with database.read() as session:
        for run in session.query(Run):
            assert run.state == "finished"
            expected = _losses(run.arm.name, run.seed)[0]
            assert (
                store.read(session, run.id, "train")[1]["lm_loss"].tobytes() == expected.tobytes()
            )
    (now,) = client.rejudge(job)["verdicts"]
    assert [run["seed"] for run in now["inputs"]["candidate"]] == [1, 2]
    with pytest.raises(SystemExit) as left:
        cli.main(["runs", "conclude", job, "--server", served, "--json"])
    (recorded,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert recorded == now
    assert left.value.code == {"pass": 0, "fail": 1, "inconclusive": 3}[now["verdict"]]
    assert (client.job(job)["status"], client.job(job)["awaits_conclusion"]) == ("concluded", False)
    assert httpx2.get(client.page(job), timeout=60).status_code == 200
    _train(served, tmp_path, "fp8", 1)  # the baseline's own run begins another job of that name
    with database.read() as session:
        assert session.query(Job).count() == 2


def test_a_run_of_a_concluded_project_never_becomes_the_baseline_in_silence(
    served, client, database, tmp_path, capsys, caplog
):
    for arm in ("fp8", "nvfp4"):
        _train(served, tmp_path, arm, 1, recipe=arm if arm == "nvfp4" else "fp8_current")
    job = _only_job(database)
    client.conclude(job)
    with pytest.raises(RunError, match=rf'job {job}.*give the run baseline="fp8"'):
        _train(served, tmp_path, "nvfp4", 2)
    assert _only_job(database) == job, "no job was begun"

    (refused,) = tmp_path.rglob("*.refused")
    with pytest.raises(SystemExit) as left:
        cli.main(["resend", str(refused), "--server", served, "--baseline", "fp8"])
    printed = capsys.readouterr()
    begun = client.jobs(2)["items"][0]
    assert (left.value.code, begun["id"] == job) == (0, False), printed.err
    assert f"begins job {begun['id']}, whose baseline is fp8" in printed.err
    arms = client.job(begun["id"])["arms"]
    assert [(arm["name"], arm["role"], len(arm["runs"])) for arm in arms] == [
        ("fp8", "baseline", 0),
        ("nvfp4", "candidate", 1),
    ]

    caplog.clear()
    _train(served, tmp_path, "nvfp4", 3, project="other")  # a project's first run is its baseline
    assert not caplog.messages


@pytest.mark.parametrize(("arm", "baseline"), [("nvfp4", "fp8"), ("nvfp4", "nvfp4"), ("fp8", None)])
def test_a_run_that_names_its_baseline_begins_another_job_and_says_so(
    arm, baseline, served, client, database, tmp_path, caplog
):
    for ended in ("fp8", "nvfp4"):
        client.run_of({"project": "mine", "arm": ended, "seed": 1})
    job = _only_job(database)
    client.cancel(job)
    _train(served, tmp_path, arm, 2, steps=20, baseline=baseline)
    begun = client.jobs(2)["items"][0]["id"]
    named = baseline or arm
    assert client.job(begun)["arms"][0]["name"] == named
    assert [f"job {begun}, whose baseline is {named}" in line for line in caplog.messages] == [True]
    client.run_of({"project": "mine", "arm": "nvfp4", "seed": 5})  # which is there by now
    assert len(client.jobs(9)["items"]) == 2


def test_a_project_whose_runs_have_ended_asks_to_be_concluded(
    served, client, database, tmp_path, capsys
):
    def awaits():
        return client.job(_only_job(database))["awaits_conclusion"]

    _train(served, tmp_path, "fp8", 1, recipe="fp8_current")
    assert not awaits(), "there is no candidate"
    while_it_trains = []
    _train(
        served,
        tmp_path,
        "nvfp4",
        1,
        recipe="nvfp4",
        before_end=lambda: while_it_trains.append(awaits()),
    )
    assert while_it_trains == [False]
    assert awaits()
    job = _only_job(database)
    forecasts.watch(database, job)  # whose forecast is none any more
    for command, code in (("status", 0), ("report", 2)):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, job, "--server", served])
        printed = "".join(capsys.readouterr())
        assert (ended.value.code, f"parity runs conclude {job}" in printed) == (code, True)
        if command == "status":
            assert re.search(r"nvfp4 .* [+-]0\.0\d+", printed)  # the gap
    with pytest.raises(SystemExit) as ended:
        cli.main(["watch", job, "--server", served, "--json", "--timeout", "60"])
    printed = capsys.readouterr()
    assert (ended.value.code, json.loads(printed.out)["verdicts"]) == (3, [])
    assert f"parity runs conclude {job}" in printed.err
    page = httpx2.get(f"{served}/jobs/{job}", trust_env=False).text
    assert "Open until it is concluded." in page
    assert f"parity runs conclude {job} records the verdict" in page
    assert "All its runs have ended; it takes further runs." in page
    assert "A forecast is never a verdict. " not in page  # the note of the picture


def test_while_a_run_trains_nothing_names_a_command_that_would_fail(
    served, client, database, tmp_path, capsys
):
    for arm in ("fp8", "nvfp4"):
        _train(served, tmp_path, arm, 1)
    job, printed = _only_job(database), []

    def look():
        while sum(len(arm["runs"]) for arm in client.job(job)["arms"]) < 3:
            time.sleep(0.01)  # the trainer's own thread makes the run
        with pytest.raises(SystemExit) as ended:
            cli.main(["report", job, "--server", served])
        assert ended.value.code == 2
        printed.append(capsys.readouterr().err)
        printed.append(httpx2.get(f"{served}/jobs/{job}", trust_env=False).text)
        with pytest.raises(SystemExit) as ended:
            cli.main(["watch", job, "--server", served, "--timeout", "0"])
        assert ended.value.code == 5, "a run trains"

    _train(served, tmp_path, "nvfp4", 2, before_end=look)
    assert [f"runs conclude {job}" in text for text in printed] == [False, False]
    assert [f"parity runs judge {job}" in text for text in printed] == [True, True]
    assert client.rejudge(job)["verdicts"]


def test_a_project_with_an_arm_that_never_finished_says_what_it_lacks(
    served, client, database, capsys
):
    for arm in ("fp8", "nvfp4"):
        run = client.run_of({"project": "mine", "arm": arm, "seed": 1})["id"]
        attempt = client.attach(run, {})["attempt"]
        client.finish(run, attempt, "failed", "the node died")
    job = _only_job(database)
    with pytest.raises(SystemExit) as ended:
        cli.main(["watch", job, "--server", served, "--timeout", "60"])
    printed = capsys.readouterr().err
    assert (ended.value.code, f"parity cancel {job}" in printed) == (3, True), printed
    assert "conclude" not in printed
    assert "runs conclude" not in httpx2.get(f"{served}/jobs/{job}", trust_env=False).text
    assert client.cancel(job)["status"] == "cancelled"


def test_who_judges_until_it_passes_has_looked_more_than_once(served, client, database, tmp_path):
    for arm in ("fp8", "nvfp4"):
        _train(served, tmp_path, arm, 1)
    job = _only_job(database)
    shares = [client.rejudge(job)["verdicts"][0]["multiplicity"] for _ in range(2)]
    assert [(each["look"], each["looks"]) for each in shares] == [(1, 1), (1, 1)]  # the same runs
    _train(served, tmp_path, "nvfp4", 2)
    _train(served, tmp_path, "fp8", 2)
    (second,) = client.rejudge(job)["verdicts"]
    assert (
        second["multiplicity"]["look"],
        second["multiplicity"]["looks"],
        second["multiplicity"]["registered"],
    ) == (2, 2, True)
    assert second["multiplicity"]["confidence"] > shares[0]["confidence"]
    _train(served, tmp_path, "nvfp4", 3)
    client.conclude(job)
    with Client(served) as own:
        while (document := own.job(job))["status"] != "concluded":
            pass
    assert (
        document["verdicts"][0]["multiplicity"]["look"],
        document["verdicts"][0]["multiplicity"]["looks"],
    ) == (3, 3)


def test_an_open_project_has_pages_from_its_first_run_on(served, client, tmp_path, database):
    _train(served, tmp_path, "fp8", 1, steps=40)
    job = _only_job(database)
    document = client.job(job)
    assert document["arms"][0]["recipe"] == "other:unstated"
    for path in (
        f"/jobs/{job}",
        "/jobs",
        f"/jobs/{job}/compare",
        f"/api/v1/jobs/{job}/remarks",
        f"/api/v1/jobs/{job}/gaps",
    ):
        assert httpx2.get(f"{served}{path}", timeout=60).status_code == 200, path
    for name in ("gap", "live"):
        assert httpx2.get(f"{served}/api/v1/jobs/{job}/{name}", timeout=60).status_code == 404
    assert "one arm, fp8" in _refused(lambda: client.conclude(job), 409)
    assert _refused(lambda: client.rejudge(job), 422)
    run = client.run_of({"project": "mine", "arm": "nvfp4", "seed": 1})
    assert "nvfp4 has no finished run" in _refused(lambda: client.conclude(job), 409)
    client.attach(run["id"], {})
    assert run["id"] in _refused(lambda: client.conclude(job), 409)  # it trains


@pytest.mark.both_databases
def test_a_restart_with_its_seed_goes_on_and_one_without_is_a_run_of_its_own(
    served, client, database, tmp_path
):
    broken = parity.Run(project="p", arm="a", seed=3, server=served, folder=tmp_path, **FAST)
    broken.log(0, loss=2.0)
    broken.finish("broke_off", "boom")
    with parity.Run(
        project="p", arm="a", seed=3, server=served, folder=tmp_path, strict=True, **FAST
    ) as run:
        run.log(1, loss=1.0)
    with database.read() as session:
        (row,) = session.query(Run)
        assert (row.attempt_number, row.state, row.seed, row.planned_steps) == (
            2,
            "finished",
            3,
            None,
        )
        assert store.read(session, row.id, "train")[0].tolist() == [0, 1]
    for _ in range(2):
        with parity.Run(
            project="p", arm="a", server=served, folder=tmp_path, strict=True, **FAST
        ) as run:
            run.log(0, loss=2.0)
    with parity.Run(
        project="p", arm="a", seed=3, server=served, folder=tmp_path, strict=True, **FAST
    ) as run:
        run.log(0, loss=2.5)
    with database.read() as session:
        assert [
            (run.stated_seed, run.replicate) for run in session.query(Run).order_by(Run.position)
        ] == [
            (3, 0),
            (None, 0),
            (None, 1),
            (3, 1),
        ]


def test_a_request_whose_answer_was_lost_makes_one_run(client, database):
    first = client.run_of({"project": "p", "arm": "a"}, "key-1")["id"]
    assert client.run_of({"project": "p", "arm": "a"}, "key-1")["id"] == first
    assert client.run_of({"project": "p", "arm": "a"}, "key-2")["id"] != first


@pytest.mark.both_databases
def test_arms_that_begin_at_once_are_one_project(client, served, database):
    def begin(arm):
        with Client(served) as own:
            own.run_of({"project": "p", "arm": arm, "seed": 1})

    threads = [threading.Thread(target=begin, args=(arm,)) for arm in "abcdabcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    document = client.job(_only_job(database))
    assert sorted(arm["name"] for arm in document["arms"]) == ["a", "b", "c", "d"]
    assert [arm["role"] for arm in document["arms"]] == ["baseline", *["candidate"] * 3]
    assert [len(arm["runs"]) for arm in document["arms"]] == [1] * 4


def test_what_contradicts_the_record_is_refused(client, database):
    client.run_of({"project": "p", "arm": "a", "seed": 1, "recipe": "fp8", "planned_steps": 100})
    assert "fp8" in _refused(
        lambda: client.run_of({"project": "p", "arm": "a", "seed": 2, "recipe": "nvfp4"}), 409
    )
    assert "100" in _refused(
        lambda: client.run_of({"project": "p", "arm": "b", "seed": 1, "planned_steps": 200}), 409
    )
    assert "recipe" in _refused(
        lambda: client.run_of({"project": "p", "arm": "b", "recipe": "nvfp5"}), 422
    )
    assert _refused(lambda: client.run_of({"project": "p", "arm": "b b"}), 422)
    with database.read() as session:
        assert session.query(Run).count() == 1
        assert len(session.query(Job).one().arms) == 1
    unstated = client.run_of({"project": "p", "arm": "b", "seed": 1})
    # stated when it is known
    client.run_of({"project": "p", "arm": "b", "seed": 1, "recipe": "nvfp4"})
    assert "expected nvfp4" in _refused(lambda: client.attach(unstated["id"], {}, "mxfp8"), 422)
    client.attach(unstated["id"], {}, "nvfp4")


def test_a_job_that_is_no_open_project_is_not_concluded(client, make_job):
    spec = json.loads(json.dumps(make_job(100, engine="external").document()))
    job = client.submit(spec, {"margin": "1%"})["id"]
    assert "open project" in _refused(lambda: client.conclude(job), 409)


def test_without_a_server_the_steps_wait_in_the_spool(
    served, database, tmp_path, capsys, monkeypatch
):
    from parity.client import recorder

    monkeypatch.setattr(
        recorder, "PAUSES", dataclasses.replace(recorder.PAUSES, first_seconds=0.02)
    )
    with parity.Run(
        project="p",
        arm="a",
        seed=1,
        server="http://127.0.0.1:9",
        folder=tmp_path,
        finish_seconds=0.2,
    ) as run:
        run.log(0, loss=2.0)
        run.log(1, loss=1.5)
    with pytest.raises(SystemExit) as left:
        cli.main(["resend", *map(str, tmp_path.rglob("*.jsonl")), "--server", served])
    assert left.value.code == 0, capsys.readouterr().err
    with database.read() as session:
        (row,) = session.query(Run)
        assert (row.state, row.seed, row.job.name, row.arm.name) == ("finished", 1, "p", "a")
        assert store.read(session, row.id, "train")[1]["lm_loss"].tolist() == [2.0, 1.5]
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"project": "p"}, "arm is None"),
        ({"project": "p", "arm": "a b"}, "arm is 'a b'"),
        ({"project": "", "arm": "a"}, "project is ''"),
        ({"project": "p", "arm": "a", "seed": -1}, "seed is -1"),
        ({"project": "p", "arm": "a", "seed": True}, "seed is True"),
        ({"project": "p", "arm": "a", "seed": 2**53 + 1}, "seed is 9007199254740993"),
        ({"project": "p", "arm": "a", "baseline": "b c"}, "baseline is 'b c'"),
        ({"project": "p", "arm": "a", "planned_steps": 0}, "planned_steps is 0"),
        ({"project": "p", "arm": "a", "run": "r019aa5c1f2e0-8f3c1d2e4b"}, "both given"),
    ],
)
def test_what_is_wrong_with_a_project_is_said_at_once(options, words, tmp_path):
    with pytest.raises(RunError, match=words):
        parity.Run(**options, folder=tmp_path, strict=True)


def test_names_that_an_address_could_not_hold(served, client, database, tmp_path):
    for number, name in enumerate(("team/llama 8b", "..", "ä#?%2F")):
        _train(served, tmp_path / str(number), "a", np.int64(1), steps=3, project=name)
    with database.read() as session:
        assert {job.name for job in session.query(Job)} == {"team/llama 8b", "..", "ä#?%2F"}
        assert {run.state for run in session.query(Run)} == {"finished"}


def test_seed_0_is_a_seed_and_takes_over_no_run_without_one(client, database):
    without = client.run_of({"project": "p", "arm": "a"}, "key-1")["id"]
    with_one = client.run_of({"project": "p", "arm": "a", "seed": 0}, "key-2")["id"]
    assert with_one != without
    assert client.run_of({"project": "p", "arm": "a", "seed": 0}, "key-3")["id"] == with_one
    with database.read() as session:
        assert [
            (run.stated_seed, run.replicate) for run in session.query(Run).order_by(Run.position)
        ] == [(None, 0), (0, 0)]


def test_a_step_back_in_one_process_is_the_same_run(served, database, tmp_path):
    with parity.Run(
        project="p", arm="a", server=served, folder=tmp_path, strict=True, **FAST
    ) as run:
        for step in (*range(10), *range(5, 15)):
            run.log(step, loss=1.0 + step)
    with database.read() as session:
        (row,) = session.query(Run)
        assert (row.state, row.attempt_number) == ("finished", 2)
        assert store.read(session, row.id, "train")[0].tolist() == [*range(15)]


def test_who_is_the_baseline_can_be_said_by_any_arm(served, client, database, tmp_path):
    _train(served, tmp_path, "nvfp4", 1, baseline="fp8", steps=5)
    job = client.job(_only_job(database))
    assert [(arm["name"], arm["role"], len(arm["runs"])) for arm in job["arms"]] == [
        ("fp8", "baseline", 0),
        ("nvfp4", "candidate", 1),
    ]
    assert httpx2.get(client.page(job["id"]), timeout=60).status_code == 200
    assert "fp8" in _refused(
        lambda: client.run_of({"project": "mine", "arm": "nvfp4", "baseline": "nvfp4"}), 409
    )
    _train(served, tmp_path, "fp8", 1, steps=5)
    assert [len(arm["runs"]) for arm in client.job(job["id"])["arms"]] == [1, 1]


def test_a_run_that_broke_off_with_steps_is_not_left_out_unseen(
    served, client, database, tmp_path, capsys
):
    for arm in ("fp8", "nvfp4"):
        _train(served, tmp_path, arm, 1)
    diverged = parity.Run(
        project="mine", arm="nvfp4", seed=2, server=served, folder=tmp_path, **FAST
    )
    for step in range(50):
        diverged.log(step, loss=9.0)
    diverged.finish("broke_off", "it diverged")
    job = _only_job(database)
    lost = client.job(job)["arms"][1]["runs"][1]["id"]
    assert lost in _refused(lambda: client.conclude(job), 409)
    with pytest.raises(SystemExit) as left:
        cli.main(["runs", "fail", lost, "--reason", "it diverged", "--server", served])
    assert left.value.code == 0, capsys.readouterr().err
    (verdict,) = client.rejudge(job)["verdicts"]
    assert (
        "left out: replicate 0 of nvfp4 failed at step 50"
        in verdict["inputs"]["candidate"][0]["notes"]
    )
    client.conclude(job)


def test_a_refused_project_keeps_what_is_logged(served, client, database, tmp_path, capsys):
    first = client.run_of({"project": "p", "arm": "a", "seed": 1, "planned_steps": 100})["id"]
    with parity.Run(
        project="p", arm="a", seed=1, planned_steps=10, server=served, folder=tmp_path, **FAST
    ) as run:
        run.log(0, loss=2.0)
        while not [*tmp_path.rglob("*.refused")]:
            pass
        for step in range(1, 100):
            run.log(step, loss=1.0)
    (kept,) = tmp_path.rglob("*.refused")
    with pytest.raises(SystemExit) as left:
        cli.main(["resend", str(kept), "--as-run", first, "--server", served])
    assert left.value.code == 0, capsys.readouterr().err
    with database.read() as session:
        assert store.read(session, first, "train")[0].tolist() == [*range(100)]


def test_an_empty_spool_keeps_no_other_from_being_sent(served, database, tmp_path, capsys):
    from parity.client.spool import Spool

    about = {
        "run": None,
        "server": served,
        "recipe": None,
        "manifest": {},
        "project": "p",
        "arm": "a",
        "seed": None,
        "planned_steps": None,
    }
    Spool(tmp_path / "a", about).close()
    full = Spool(tmp_path / "b", about | {"seed": 4})
    full.write([{"step": 0, "loss": 2.0}, {"end": "finished", "message": None}])
    full.close()
    with pytest.raises(SystemExit) as left:
        cli.main(["resend", str(tmp_path), "--server", served])
    assert left.value.code == 0, capsys.readouterr().err
    with database.read() as session:
        assert [run.stated_seed for run in session.query(Run)] == [4]


def test_what_is_stated_after_a_look_makes_the_next_judging_a_look(
    served, client, database, tmp_path
):
    for arm in ("fp8", "nvfp4"):
        _train(served, tmp_path, arm, 1)
    job = _only_job(database)
    assert client.rejudge(job)["verdicts"][0]["multiplicity"]["look"] == 1
    client.state(job, {"rounding": {"nvfp4": "nearest"}})
    assert client.rejudge(job)["verdicts"][0]["multiplicity"]["look"] == 2


def test_a_command_follows_a_project_whose_length_nobody_stated(
    served, client, database, tmp_path, capsys
):
    _train(served, tmp_path, "fp8", 1, steps=5, planned_steps=None)
    job = _only_job(database)
    for words in (["status", job], ["status"]):
        with pytest.raises(SystemExit) as left:
            cli.main([*words, "--server", served])
        captured = capsys.readouterr()
        assert (left.value.code, "None" in captured.out) == (0, False), captured.err
    assert httpx2.get(f"{served}/jobs/{job}/why/ablations", timeout=60).status_code == 404
