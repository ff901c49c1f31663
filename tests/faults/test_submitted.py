"""The short form of `tests.faults.submitted`; `make test-faults` kills a hundred workers on each
database and with each scheduler.
"""

import subprocess
import sys

from server.settings import CHECKOUT


def test_four_workers_that_die_between_two_writes_leave_nothing_behind():
    """In a process of its own: it forks, which one that has loaded jax must not."""
    command = [
        sys.executable,
        "-m",
        "tests.faults.submitted",
        "--kills",
        "4",
        "--seed",
        "7",
        "--database",
        "postgresql",
    ]
    ended = subprocess.run(
        command, cwd=CHECKOUT, check=False, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 killed" in ended.stdout
    assert "wrong: nothing" in ended.stdout
