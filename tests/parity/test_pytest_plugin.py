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


GOLDEN_TESTS = """
import numpy as np

T = np.arange(100)
BATCH = np.random.default_rng(0).normal(0, 0.003, 100)
OLD = np.round((8 + 3 * np.exp(-T / 60)) * np.exp(BATCH), 5)
NEW = np.round(OLD * (1 + np.random.default_rng(1).normal(0, 2e-5, 100)), 5)
NEW[0] = OLD[0]
RUN = {"old": OLD, "new": NEW, "worse": NEW * (1 + 0.01 * T / 100)}


def test_run(assert_golden, request):
    assert_golden("a.golden.jsonl", {"step": T, "loss": RUN[open("run").read()]}, recipe="bf16")
"""


def golden_session(folder: Path, run: str, *options: str) -> tuple[int, str, str]:
    """Exit code and output of a session whose test trained `run`, and the JUnit property."""
    (folder / "test_golden.py").write_text(GOLDEN_TESTS)
    (folder / "run").write_text(run)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "parity.pytest_plugin", "--junitxml=junit.xml", *options]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env=alone, capture_output=True, text=True, check=False
    )
    noted = re.findall(r'name="parity.golden" value="([^"]*)"', (folder / "junit.xml").read_text())
    return done.returncode, done.stdout, "".join(noted)


def test_goldens_are_checked_and_taken_with_a_reason(tmp_path: Path) -> None:
    assert golden_session(tmp_path, "old")[0] == 1  # there is none
    first = golden_session(tmp_path, "old", "--update-goldens", "first golden")
    assert (first[0], first[2]) == (0, "updated")
    code, out, noted = golden_session(tmp_path, "new")
    assert (code, noted) == (0, "numerics only")
    assert "test_golden.py::test_run: ● NUMERICS ONLY" in out
    code, out, noted = golden_session(tmp_path, "worse")
    assert (code, noted) == (1, "worse")
    assert "AssertionError: ■ WORSE" in out
    before = (tmp_path / "a.golden.jsonl").read_text()
    code, out, _ = golden_session(tmp_path, "worse", "--update-goldens", "image 26.06")
    assert code == 1
    assert "--accept-golden 'worse'" in out
    assert (tmp_path / "a.golden.jsonl").read_text() == before
    accept = ("--update-goldens", "image 26.06", "--accept-golden", "worse")
    assert golden_session(tmp_path, "worse", *accept)[0] == 0
    assert golden_session(tmp_path, "worse")[2] == "identical"
    assert '"reason":"image 26.06"' in (tmp_path / "a.golden.jsonl").read_text()
