"""docs/golden.md: its commands in one shell, one after the other, print what the page shows and
exit as it says; its table is the rule's.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.golden.check import RunFacts
from parity.golden.rule import LINES
from parity.golden.update import Request, update_golden
from server.settings import CHECKOUT
from tests.documentation import run_by

PAGE = "docs/golden.md"
CODES = [0, 0, 1, 0, 0]


def test_the_commands(tmp_path):
    shutil.copytree(CHECKOUT / "examples" / "golden", tmp_path / "golden")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    shells = run_by(PAGE, __file__)
    assert len(shells) == len(CODES)
    for block, code in zip(shells, CODES, strict=True):
        done = subprocess.run(
            ["bash", "-ec", block.text],
            cwd=tmp_path / "golden",
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        assert block.output
        assert block.shows(done.stdout), (block.text, done.stdout)


def test_the_test_in_python_passes_and_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(CHECKOUT / "examples" / "golden")
    golden = tmp_path / "tiny.golden.jsonl"
    update_golden(str(golden), "old.csv", RunFacts(recipe="bf16"), Request(reason="", date="d"))
    (block,) = run_by(PAGE, __file__, "python")
    names: dict[str, Any] = {}
    exec(block.text.replace("tiny.golden.jsonl", str(golden)), names)  # noqa: S102
    names["test_numerics"](parity.assert_golden)
    exec(block.text.replace("tiny.golden.jsonl", str(golden)).replace("new.", "worse."), names)  # noqa: S102
    with pytest.raises(AssertionError, match="WORSE"):
        names["test_numerics"](parity.assert_golden)


def test_the_table_of_the_rule_has_its_lines_in_order():
    text = (CHECKOUT / PAGE).read_text(encoding="utf-8").partition("## The rule")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)[1:]
    listed = [(name, answer) for names, answer in rows for name in names.split(", ")]
    expected: list[tuple[str, str]] = []
    for line in LINES:
        if expected and expected[-1][0] == line.name:  # a level is worse or better
            expected[-1] = (line.name, f"{expected[-1][1]}, {line.answer}")
        else:
            expected.append((line.name, line.answer))
    assert [one for one in listed if one[0] != "---"] == expected
