"""The fixture `assert_parity` in a repository of one's own: verdicts fail tests, and are noted."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = """
import numpy as np
import pytest

T = np.arange(1200)
BASE = 2.0 + np.exp(-T / 80) + np.random.default_rng(0).normal(0, 0.05, 1200)
OWN = np.random.default_rng(1).normal(0, 0.005, 1200)
POLICY = {"margin": "1%", "planned_steps": 1200, "rounding": "nearest", "schedule": "decayed"}


def test_good(assert_parity):
    assert assert_parity(BASE, BASE + OWN, **POLICY).verdict == "pass"


def test_bad(assert_parity):
    assert_parity(BASE, BASE + OWN + 0.1, **POLICY)


def test_none():
    pass
"""


def test_verdicts_fail_tests_and_are_noted(tmp_path: Path) -> None:
    (tmp_path / "test_training.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "parity.pytest_plugin",
        "--junitxml=junit.xml",
    ]
    # other plugins take longer to import than this one
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "test_training.py::test_bad - AssertionError: ■ FAIL  Do not switch" in done.stdout
    section = done.stdout.partition(" parity ==")[2]
    assert "test_training.py::test_good: ● PASS You may switch to candidate. It ends 0.0" in section
    assert "test_training.py::test_bad: ■ FAIL Do not switch to candidate. It ends " in section
    noted = re.findall(
        r'<property name="parity.(\w+)" value="([^"]*)"', (tmp_path / "junit.xml").read_text()
    )
    good, bad = dict(noted[:4]), dict(noted[4:])
    assert (good["verdict"], bad["verdict"], bad["code"]) == ("pass", "fail", "GAP_EXCEEDS_MARGIN")
    assert float(bad["gap_nats"]) == pytest.approx(0.1, abs=0.01)


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"parity": "parity.pytest_plugin"}
