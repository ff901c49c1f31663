"""A step's process ends with all that it started, whatever those do against it."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tools.gpu_evidence.process import StepProcess
from workers import watcher

# Starts a child in a session of its own, which ignores SIGTERM, and which starts another; all write
# their ids and wait.
STUBBORN = """
import os, signal, subprocess, sys, time
depth, folder = int(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.path.join(folder, f"part-{depth}"), "w").write(str(os.getpid()))
os.replace(os.path.join(folder, f"part-{depth}"), os.path.join(folder, f"pid-{depth}"))
if depth:
    program = sys.argv[3]
    subprocess.Popen([sys.executable, "-c", program, str(depth - 1), folder, program], start_new_session=True)
time.sleep(3600)
"""  # noqa: E501
POLITE = "import sys, time\nprint('begun', flush=True)\ntime.sleep(3600)"


def until(happened):
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started(command, tmp_path):
    return StepProcess(command, tmp_path / "log", os.environ, tmp_path)


def test_its_output_and_status_are_kept(tmp_path):
    process = started(
        [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"], tmp_path
    )
    until(lambda: process.status() is not None)
    assert (process.status(), process.lines()) == (3, ["one", "two"])


def test_a_polite_one_ends_by_sigterm(tmp_path):
    process = started([sys.executable, "-c", POLITE], tmp_path)
    until(lambda: process.lines() == ["begun"])
    process.end()
    assert process.status() == -signal.SIGTERM


def test_children_in_sessions_of_their_own_that_ignore_sigterm_are_killed_too(tmp_path):
    process = started([sys.executable, "-c", STUBBORN, "2", str(tmp_path), STUBBORN], tmp_path)
    until(lambda: all((tmp_path / f"pid-{depth}").exists() for depth in range(3)))
    family = [watcher.running(int((tmp_path / f"pid-{depth}").read_text())) for depth in range(3)]
    assert None not in family
    process.end(grace=0.2)
    assert not any(map(watcher.lives, family))


def test_another_process_is_left_alone(tmp_path):
    other = started([sys.executable, "-c", POLITE], tmp_path)
    (tmp_path / "below").mkdir()
    process = StepProcess(
        [sys.executable, "-c", POLITE], tmp_path / "below" / "log", os.environ, tmp_path
    )
    process.end(grace=1.0)
    assert other.status() is None
    other.end()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux only")
def test_a_command_that_is_not_there_is_a_failed_one(tmp_path):
    process = started([str(tmp_path / "no-python")], tmp_path)
    until(lambda: process.status() is not None)
    assert process.status() == 1
    assert process.lines()
