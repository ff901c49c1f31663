"""A command ends with the process that started it, however that one dies."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.environment.parent_death import ends_with_parent

PARENT = """
import signal, subprocess, sys
from training.environment.parent_death import ends_with_parent
child = subprocess.Popen(ends_with_parent(["sleep", "600"], signal.SIGKILL))
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_child_of_a_killed_process_is_gone():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as parent:
        child = Path("/proc") / parent.stdout.readline().decode().strip()
        wait_until(lambda: (child / "cmdline").read_bytes().startswith(b"sleep\0"))
        parent.kill()
        parent.wait()
        wait_until(lambda: not child.exists() or ") Z " in (child / "stat").read_text())


def test_the_command_is_started_with_its_own_arguments_and_status():
    ran = subprocess.run(
        ends_with_parent(["sh", "-c", 'echo "$0 $1"; exit 3', "a b", "*"], signal.SIGKILL),
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (3, b"a b *\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Popen raises")
def test_a_command_that_is_not_there_is_named():
    ran = subprocess.run(
        ends_with_parent(["/no/such"], signal.SIGKILL), capture_output=True, check=False, text=True
    )
    assert ran.returncode == 1
    assert "/no/such can't be started: [Errno 2]" in ran.stderr


def wait_until(happened) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
