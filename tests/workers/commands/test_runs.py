"""Real trainers, started by a launcher at commits of a real repository: recorded, reused, killed,
refused.
"""

import sys
import threading
import time

import psutil
import pytest

from server.database.tables import Attempt
from server.errors import InvalidError
from server.jobs import forecasts
from server.jobs.lifecycle import cancel_job
from tests.workers.commands.conftest import STEPS, head_of
from workers import supervisor
from workers.patience import Patience

REPORT = (
    'import json, sys\nlog = open(sys.argv[3].removeprefix("--out=") + "/metrics.jsonl", "w")\n'
)


def test_each_arm_trains_its_own_commit_and_recipe(stack, repository, base):
    head = repository.commit(
        {
            "train/loop.py": (repository.path / "train/loop.py")
            .read_text()
            .replace("SKIPPED = 1", "SKIPPED = 4")
        }
    )
    service = stack()
    service.submit(
        base, head_of(head), head_of(base, "quantized", "nvfp4"), parameters={"width": 8}
    )
    runs = {run.arm.name: run for run in (service.train() for _ in range(3))}
    assert {(run.state, run.code, run.steps_done, run.attempt_number) for run in runs.values()} == {
        ("finished", None, STEPS, 1)
    }
    steps, columns = service.steps(runs["base"].id)
    assert steps.tolist() == list(range(STEPS))
    assert set(columns) == {"lm_loss", "learning_rate"}
    losses = {name: service.steps(run.id)[1]["lm_loss"] for name, run in runs.items()}
    assert losses["base"][1] == losses["head"][1]
    assert losses["base"][2] != losses["head"][2]
    assert losses["base"][2] != losses["quantized"][2]
    manifest = runs["head"].manifest
    assert (manifest["code_revision"], manifest["launcher"], manifest["parameters"]) == (
        head,
        "loop",
        '{"width": "8"}',
    )
    assert (
        manifest["code_digest"]
        != runs["base"].manifest["code_digest"]
        == runs["quantized"].manifest["code_digest"]
    )
    assert not any((service.settings.state_dir / "commands").iterdir())


def test_a_replicate_has_a_seed_of_its_own(stack, base, repository):
    head = repository.commit({"train/more.py": ""})
    service = stack()
    service.submit(base, head_of(head, replicates=2), steps=8)
    runs = [service.train() for _ in range(3)]
    assert sorted((run.arm.name, run.seed) for run in runs) == [
        ("base", 0),
        ("head", 0),
        ("head", 1),
    ]
    firsts = {run.seed: service.steps(run.id)[1]["lm_loss"][0] for run in runs}
    assert firsts[0] != firsts[1]


def test_a_commit_of_the_readme_trains_nothing(stack, base, repository):
    service = stack()
    first = repository.commit({"train/more.py": "x = 1\n"})
    service.submit(first, head_of(first, "quantized", "nvfp4"))
    trained = [service.train() for _ in range(2)]
    readme = repository.commit({"README.md": "changed"})
    service.submit(readme, head_of(readme, "quantized", "nvfp4"))
    reused = [service.train() for _ in range(2)]
    assert [run.reused_from for run in trained] == [None, None]
    assert [run.reused_from for run in reused] == [run.id for run in trained]
    assert reused[1].manifest["code_revision"] == readme != first
    another = repository.commit({"train/more.py": "x = 2\n"})
    service.submit(readme, head_of(another))
    assert [service.train().reused_from for _ in range(2)] == [trained[0].id, None]


def test_nothing_is_reused_where_the_launcher_does_not_say_which_libraries_it_has(
    stack, base, repository
):
    service = stack(pinned='""')
    head = repository.commit({"README.md": "changed"})
    service.submit(base, head_of(head))
    assert [service.train().reused_from for _ in range(2)] == [None, None]


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        pytest.param(
            'raise SystemExit("broken trainer")', "failed", "TRAINER_FAILED", id="it fails"
        ),
        pytest.param('print("hello")', "failed", "NO_LOSS", id="it reports nothing"),
        pytest.param(
            f"{REPORT}for step in range(20):\n    print(json.dumps(dict(step=step, loss=3.0 - "
            "step / 100)), file=log)",
            "finished",
            "ENDED_EARLY",
            id="it stops early and says that it is done",
        ),
        pytest.param(
            f"{REPORT}for step in range(1, 63):\n    print(json.dumps(dict(step=step, loss=3.0 - "
            "step / 100)), file=log)",
            "finished",
            None,
            id="it counts from 1 and logs its end once more",
        ),
        pytest.param(
            f"{REPORT}for step in range(120):\n    print(json.dumps(dict(step=step, loss=3.0 - "
            "step / 100)), file=log)",
            "finished",
            "STEPS_ABOVE_PLAN",
            id="it trains another plan",
        ),
        pytest.param(
            f'{REPORT}for loss in (3.0, float("nan")):\n    print(json.dumps(dict(step=int(loss != '
            "3.0), loss=loss)), file=log)\n"
            'log.close()\nsys.exit("NaN")',
            "finished",
            "DIVERGED",
            id="it stops at a NaN",
        ),
        pytest.param(
            'import os, sys; os.symlink("/etc/hostname", sys.argv[3][6:] + '
            '"/metrics.jsonl")\nimport time; time.sleep(600)',
            "failed",
            "LOG_REFUSED",
            id="its report is a link",
        ),
        pytest.param(
            'import os, sys; os.mkfifo(sys.argv[3][6:] + "/metrics.jsonl")\nimport time; '
            "time.sleep(600)",
            "failed",
            "LOG_REFUSED",
            id="its report is a pipe",
        ),
    ],
)
def test_how_a_trainer_ends_is_told(stack, base, repository, script, state, code):
    service = stack()
    service.submit(repository.commit({"train/loop.py": script}), head_of(base))
    run = service.train()
    assert (run.state, run.code) == (state, code)
    if code == "TRAINER_FAILED":
        assert "broken trainer" in run.message
    if code == "ENDED_EARLY":
        sentence, _, log = run.message.partition("\n")
        assert sentence == (
            "the trainer ended at step 19 of 60, and said that it had succeeded; the end of its "
            "output:"
        )
        assert log == "(empty)"
    if code == "STEPS_ABOVE_PLAN":
        assert "step 76 of 60" in run.message
        assert service.steps(run.id)[0].tolist() == list(range(76))


def test_a_launcher_that_does_not_run_the_commit_is_refused(stack, base, repository, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text((repository.path / "train/loop.py").read_text())
    service = stack(
        command=f'["{sys.executable}", "{elsewhere}", "--steps={{steps}}", "--seed={{seed}}", '
        '"--out={output}"]'
    )
    service.submit(base, head_of(repository.commit({"train/more.py": ""})))
    refused = service.train()
    assert (refused.state, refused.code, refused.steps_done) == ("failed", "LAUNCHER_REFUSED", 0)
    assert service.train().code == "LAUNCHER_REFUSED"  # remembered


def test_a_worker_takes_only_jobs_of_its_launchers_and_refuses_what_they_do_not_have(
    stack, base, repository
):
    service = stack()
    head = head_of(repository.commit({"train/more.py": ""}))
    service.submit(base, head, launcher="another")
    assert service.claim() is None
    service.submit(base, head, parameters={"width": 1000})
    assert service.train().code == "PARAMETER_REFUSED"
    assert service.train().code == "PARAMETER_REFUSED"
    service.submit("0" * 40, head_of("0" * 40, "quantized", "mxfp8"))
    assert {run.arm.name: run.code for run in (service.train() for _ in range(2))} == {
        "base": "REVISION_NOT_FOUND",
        "quantized": "RECIPE_REFUSED",
    }


def test_a_job_says_nothing_of_a_model(stack, base, repository):
    with pytest.raises(InvalidError, match=r"job\.model"):
        stack().submit(base, head_of(repository.commit({"train/more.py": ""})), sent={"model": {}})


def test_the_trainer_has_none_of_the_workers_secrets(stack, base, repository, monkeypatch):
    monkeypatch.setenv("PARITY_DATABASE_URL", "postgresql://planted")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    head = repository.commit(
        {"train/loop.py": "import os\nraise SystemExit(repr(sorted(os.environ.items())))"}
    )
    service = stack()
    service.submit(head, head_of(base))
    message = service.train().message
    assert "PATH" in message
    assert "planted" not in message
    assert "PARITY" not in message


def test_a_trainer_that_replaces_what_it_printed_shows_nothing_else(
    stack, base, repository, tmp_path
):
    secret = tmp_path / "secret"
    secret.write_text("the secret of somebody else")
    script = (
        "import os, sys\nout = os.path.dirname(sys.argv[3][6:]) + "
        f"'/stdout'\nos.unlink(out)\nos.symlink({str(secret)!r}, out)\n"
    )
    service = stack()
    service.submit(repository.commit({"train/loop.py": script + "sys.exit('over')"}), head_of(base))
    message = service.train().message
    assert "over" in message
    assert "secret of somebody" not in message


def test_a_trainer_that_changes_its_files_is_told(stack, base, repository):
    text = (
        (repository.path / "train/loop.py")
        .read_text()
        .replace("    main()\n", "    main()\n    open(__file__, 'a').write('#')\n")
    )
    service = stack()
    service.submit(base, head_of(repository.commit({"train/loop.py": text})))
    runs = [service.train() for _ in range(2)]
    with service.database.read() as session:
        messages = [session.get_one(Attempt, (run.id, 1)).message for run in runs]
    assert runs[1].state == "finished"
    assert messages[0] is None
    assert "train/loop.py" in messages[1]


def _slow(repository, seconds=0.02):
    text = (repository.path / "train/loop.py").read_text()
    return repository.commit(
        {
            "train/loop.py": text.replace(
                "            log.write(",
                f"            __import__('time').sleep({seconds})\n            log.write(",
            )
        }
    )


def _once_it_trains(service, claim, act):
    def watch():
        deadline = time.monotonic() + 300
        while service.run(claim.run_id).steps_done < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def _trainers():
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "train/loop.py" in " ".join(child.cmdline())
    ]


@pytest.mark.parametrize("victim", ["the process that follows it", "the trainer"])
def test_each_step_is_recorded_once_whoever_is_killed(stack, base, repository, victim):
    service = stack()
    service.submit(base, head_of(_slow(repository)))
    whole = service.train()
    claim = service.claim()

    def kill():
        trainer = _trainers()[0]
        (trainer if victim == "the trainer" else trainer.parent()).kill()

    thread = _once_it_trains(service, claim, kill)
    first = service.train(claim=claim, flush_seconds=0.05)
    thread.join()
    assert (first.state, first.crashes) == ("queued", 1)
    assert _trainers() == []
    again = service.train()
    assert (again.id, again.state, again.attempt_number) == (first.id, "finished", 2)
    steps, columns = service.steps(again.id)
    assert steps.tolist() == list(range(STEPS))
    assert columns["lm_loss"].tobytes() == service.steps(whole.id)[1]["lm_loss"].tobytes()


def test_cancel_ends_the_trainer(stack, base, repository):
    service = stack()
    job = service.submit(_slow(repository, 0.05), head_of(base))
    claim = service.claim()

    def cancel():
        with service.owner_database.write() as session:
            cancel_job(session, job)

    thread = _once_it_trains(service, claim, cancel)
    run = service.train(claim=claim, flush_seconds=0.05)
    thread.join()
    assert run.state == "cancelled"
    assert _trainers() == []


def test_a_head_that_will_fail_is_stopped_where_the_policy_says_so(stack, base, repository):
    service = stack()
    _slow(repository, 0.02)
    slow = (repository.path / "train/loop.py").read_text()
    failing = repository.commit({"train/loop.py": slow.replace("SKIPPED = 1", "SKIPPED = 1000")})
    job = service.submit(base, head_of(failing), steps=400, early_stop="stop")
    service.train()
    claim = service.claim()

    def look():
        deadline = time.monotonic() + 300
        while not forecasts.watch(service.owner_database, job) and time.monotonic() < deadline:
            time.sleep(0.5)

    thread = _once_it_trains(service, claim, look)
    run = service.train(claim=claim, flush_seconds=0.05)
    thread.join()
    assert (run.state, run.code) == ("finished", "EARLY_STOP")
    assert run.steps_done < 400
    assert _trainers() == []
    # by how far it came, and never a pass
    assert service.judged(job)["head"]["verdict"] in ("fail", "inconclusive")


@pytest.mark.parametrize(
    ("limits", "code", "state"),
    [
        ("{seconds = 0.5}", "TIME_LIMIT", "failed"),
        ("{silent_seconds = 0.5}", "WORKER_CRASHED", "queued"),
        ("{output_bytes = 10}", "OUTPUT_LIMIT", "failed"),
    ],
)
def test_the_launchers_limits_hold(stack, base, repository, limits, code, state):
    service = stack(limits=limits)
    script = (
        (repository.path / "train/loop.py")
        .read_text()
        .replace(
            "            log.write(",
            "            __import__('time').sleep(2 * step)\n            log.write(",
        )
    )
    service.submit(repository.commit({"train/loop.py": script}), head_of(base))
    run = service.train()
    assert (run.state, run.code) == (state, code)
    assert _trainers() == []


def test_a_launcher_that_the_file_no_longer_has_is_named(stack, base):
    service = stack()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    file = service.settings.launchers
    file.write_text(file.read_text().replace("[launcher.loop]", "[launcher.other]"))
    run = service.train()
    assert (run.state, run.code) == ("failed", "LAUNCHER_UNKNOWN")
    assert "'loop'" in run.message


def test_arms_that_a_changed_launcher_trained_are_no_pair(stack, base, repository):
    service = stack()
    job = service.submit(base, head_of(repository.commit({"README.md": "changed"})), steps=400)
    first = service.train()
    file = service.settings.launchers
    file.write_text(file.read_text().replace("libraries of the tests", "other libraries"))
    second = service.train()
    assert second.reused_from is None
    assert first.manifest["launcher_digest"] != second.manifest["launcher_digest"]
    assert (service.judged(job)["head"]["verdict"], service.judged(job)["head"]["codes"][0]) == (
        "inconclusive",
        "CONFOUNDED",
    )


def test_folders_of_attempts_whose_worker_was_killed_are_removed(stack, base):
    service = stack()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    claim = service.claim()
    commands = service.settings.state_dir / "commands"
    for name in (
        f"{claim.run_id}-{claim.attempt_number}",
        f"{claim.run_id}-99",
        "r0123456789ab-0123456789-1",
    ):
        (commands / name).mkdir(parents=True)
    patience = Patience(service.settings, service.database, threading.Event())
    supervisor.sweep(service.settings, patience)
    assert [path.name for path in commands.iterdir()] == [f"{claim.run_id}-{claim.attempt_number}"]


@pytest.mark.parametrize(
    ("changes", "trained", "as_of", "verdict"),
    [
        pytest.param({}, "range(steps)", "refuse", "pass", id="both reach their plan"),
        pytest.param({}, "range(steps * 9 // 10)", "refuse", "inconclusive", id="their data end"),
        pytest.param(
            {}, "range(steps * 9 // 10)", "accept", "pass", id="they end, and as of is accepted"
        ),
        pytest.param(
            {"SKIPPED = 1": "SKIPPED = 4"},
            "range(steps * 9 // 10)",
            "refuse",
            "fail",
            id="they end, and the change is worse",
        ),
    ],
)
def test_trainers_that_end_before_their_plan_are_judged_as_of_their_last_common_step(
    stack, base, repository, changes, trained, as_of, verdict
):
    service = stack()
    loop = (repository.path / "train/loop.py").read_text()
    ends = loop.replace("range(steps)", trained)
    start = repository.commit({"train/loop.py": ends + "# ends\n"}, "start", base)
    for old, new in changes.items():
        ends = ends.replace(old, new)
    head = repository.commit({"train/loop.py": ends + "# changed\n"}, "change", start)
    answer = service.verdicts(start, head_of(head), as_of=as_of)["head"]
    assert answer["verdict"] == verdict
    ends_early = trained != "range(steps)"
    ended = "the trainer ended at step 359 of 400, and said that it had succeeded"
    for arm in ("baseline", "candidate"):
        assert [run["notes"] for run in answer["inputs"][arm]] == [[ended] if ends_early else []]
    assert ("last 20 % of 360 steps (of 400, " in answer["window"]["rule"]) == ends_early


def test_a_change_is_judged_on_what_it_changes(stack, base, repository):
    service = stack()
    loop = (repository.path / "train/loop.py").read_text()
    broken = repository.commit(
        {"train/loop.py": loop.replace("SKIPPED = 1", "SKIPPED = 4")}, "change", base
    )
    mended = repository.commit(
        {"train/loop.py": loop.replace("SKIPPED = 1", "SKIPPED = 2 - 1")}, "change"
    )
    readme = repository.commit({"README.md": "changed"}, "change")
    worse = repository.commit(
        {"train/loop.py": loop.replace("round(gradient, 1)", "0.0")}, "change"
    )
    verdicts = {
        name: service.verdicts(base, head_of(commit))["head"]
        for name, commit in (("broken", broken), ("mended", mended), ("readme", readme))
    }
    assert {name: verdict["verdict"] for name, verdict in verdicts.items()} == {
        "broken": "fail",
        "mended": "pass",
        "readme": "pass",
    }
    assert {verdicts[name]["codes"][0] for name in ("mended", "readme")} == {"IDENTICAL"}
    assert {verdict["compares"] for verdict in verdicts.values()} == {"revision"}
    pair = service.verdicts(base, head_of(worse), head_of(worse, "head-nvfp4", "nvfp4"))
    assert {
        name: (verdict["verdict"], verdict["baseline"]["name"]) for name, verdict in pair.items()
    } == {
        "head": ("pass", "base"),
        "head-nvfp4": ("fail", "head"),
    }
    assert not any(
        name in sentence
        for sentence in pair["head-nvfp4"]["advice"]["sentences"]
        for name in ("mlp_only", "overrides")
    )
    assert "launcher" in pair["head-nvfp4"]["advice"]["sentences"][0]
