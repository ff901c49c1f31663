"""Training processes whose worker is gone: ended by their watcher or by the next worker, and never
another process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from server.settings import CHECKOUT
from workers import leftovers, watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
SECONDS = 0.3

# A worker: it starts a training process under a wrapper and stops it, so that it cannot react;
# prints its id, and waits.
WORKER = """
import os, pathlib, signal, sys, time
from server.settings import Settings
from workers import training_process
state, script = pathlib.Path(sys.argv[1]), sys.argv[2]
training_process._TERMINATE_SECONDS = 0.3
settings = Settings(state_dir=state, wrapper=(sys.executable, "-c", script))
with training_process.started(settings, {}, os.environ, state / "r-one-2.log") as trainer:
    next(trainer.messages(20.0))
    os.killpg(trainer._process.pid, signal.SIGSTOP)
    print(trainer._process.pid, flush=True)
    time.sleep(600)
"""
TRAINER = (
    "import subprocess, time; subprocess.Popen(['sleep', '600']); print('{\"kind\": \"alive\"}', "
    "flush=True); time.sleep(600)"
)


@pytest.fixture
def sleeper():
    """A process in a group of its own, as a training process is."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def dead():
    """A worker that has ended."""
    with subprocess.Popen(["true"]) as process:
        return watcher.Process(process.pid, 1)


def _until(happened, seconds=20):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _group(pid):
    names = [path.name for path in Path("/proc").iterdir()]
    return [name for name in names if name.isdecimal() and watcher._member(int(name), pid)]


def _record(folder, process, worker, **place):
    folder.mkdir(exist_ok=True)
    content = {**leftovers._place(), **place, "process": process, "worker": worker}
    (folder / "r-one-2.json").write_text(json.dumps(content))


def test_a_stopped_trainer_is_ended_with_its_group_when_its_worker_is_killed(tmp_path):
    command = [sys.executable, "-c", WORKER, str(tmp_path), TRAINER]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, start_new_session=True
    ) as worker:
        pid = int(worker.stdout.readline())
        assert len(_group(pid)) == 2
        os.killpg(worker.pid, signal.SIGKILL)
    _until(lambda: not _group(pid))
    _until(lambda: not (tmp_path / "processes" / "r-one-2.json").exists())
    assert "SIGKILL" in (tmp_path / "r-one-2.log").read_text()


def test_an_attempt_that_ends_leaves_neither_record_nor_watcher(tmp_path, sleeper):
    with (
        (tmp_path / "log").open("w") as log,
        leftovers.watched(sleeper.pid, "r-one-1", tmp_path, SECONDS, log),
    ):
        content = json.loads((tmp_path / "r-one-1.json").read_text())
        assert (content["process"][0], content["worker"][0]) == (sleeper.pid, os.getpid())
        sleeper.kill()
        sleeper.wait()
    assert not (tmp_path / "r-one-1.json").exists()
    assert (tmp_path / "log").read_text() == ""


def test_the_next_worker_ends_what_a_dead_one_left(tmp_path, sleeper, dead):
    sleeper.send_signal(signal.SIGSTOP)
    # of two signals that wait, SIGTERM would come first
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    _record(tmp_path, watcher.running(sleeper.pid), dead)
    assert leftovers.reap(tmp_path, SECONDS) == ["r-one-2"]
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_a_process_with_a_recycled_id_is_left_alone(tmp_path, sleeper, dead):
    now = watcher.running(sleeper.pid)
    earlier = watcher.Process(now.pid, now.started - 1)
    _record(tmp_path, earlier, dead)
    assert leftovers.reap(tmp_path, SECONDS) == []
    assert watcher.end(earlier, SECONDS)
    watcher._send(earlier, signal.SIGKILL)
    assert watcher.lives(now)
    assert not list(tmp_path.iterdir())


def test_the_process_of_a_worker_that_lives_is_left_alone(tmp_path, sleeper):
    _record(tmp_path, watcher.running(sleeper.pid), watcher.running(os.getpid()))
    assert leftovers.reap(tmp_path, SECONDS) == []
    assert sleeper.poll() is None
    assert (tmp_path / "r-one-2.json").exists()


@pytest.mark.parametrize(
    ("place", "remains"),
    [({"host": "another"}, True), ({"boot": "an earlier one"}, False), ({"ids": "pid:[1]"}, False)],
)
def test_ids_of_another_place_are_not_looked_at(tmp_path, sleeper, dead, place, remains):
    _record(tmp_path, watcher.running(sleeper.pid), dead, **place)
    assert leftovers.reap(tmp_path, SECONDS) == []
    assert sleeper.poll() is None
    assert (tmp_path / "r-one-2.json").exists() == remains


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"host": 1}', '{"host": "a", "process": [1], "worker": [1, 2]}']
)
def test_a_torn_record_is_removed(tmp_path, content):
    (tmp_path / "r-one-2.json").write_text(content)
    assert leftovers.reap(tmp_path, SECONDS) == []
    assert not list(tmp_path.iterdir())


def test_without_records_there_is_nothing_to_do(tmp_path):
    assert leftovers.reap(tmp_path / "none", SECONDS) == []


def test_without_handles_the_start_time_is_checked_as_well(monkeypatch, sleeper):
    def missing(_pid):
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(os, "pidfd_open", missing)
    now = watcher.running(sleeper.pid)
    watcher._send(watcher.Process(now.pid, now.started + 1), signal.SIGKILL)
    assert watcher.lives(now)
    assert watcher.end(now, 5.0)


def test_the_watcher_needs_only_the_standard_library():
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            watcher.__file__,
            str(os.getpid()),
            "1",
            "0.1",
            "/no/such/record",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd=Path("/"),
        timeout=30,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
