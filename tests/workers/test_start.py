"""A worker that its settings do not let start says so in one line of its log, without a
traceback.
"""

import os
import subprocess
import sys

import pytest

from server.settings import CHECKOUT


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"PARITY_CAPABILITY": "command"}, "PARITY_LAUNCHERS is not set; expected the path"),
        (
            {"PARITY_CAPABILITY": "command", "PARITY_LAUNCHERS": "/absent.toml"},
            "/absent.toml: No such file or directory; expected a TOML file",
        ),
        (
            {"PARITY_WRAPPER": "no-such-srun --ntasks=8"},
            (
                "'no-such-srun' cannot be started (No such file or directory); expected a program "
                "on this machine: check PARITY_WRAPPER"
            ),
        ),
        # what the program itself says
        ({"PARITY_WRAPPER": "false"}, "`python -m training.device` ended with status 1"),
    ],
    ids=["no launchers", "absent launchers", "absent wrapper", "failing wrapper"],
)
def test_a_worker_that_can_not_start_says_why_in_one_line(tmp_path, variables, why):
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
    }
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--without-mingle"],
        cwd=CHECKOUT,
        env=inherited
        | {"PARITY_STATE_DIR": str(tmp_path), "PARITY_LOG": "text", "C_FORCE_ROOT": "1"}
        | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 1, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "could not start" in line]
    assert "the worker could not start: " in line
    assert why in line
    assert "Traceback" not in ended.stderr
