"""SKILL.md: each command in it runs, in the order of the page, and exits as it says; its exit codes
and its codes are those of the code.
"""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from parity import cli
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.codes import BY_CODE
from server.settings import CHECKOUT

TEXT = (CHECKOUT / "parity" / "SKILL.md").read_text("utf-8")
COMMANDS = re.findall(r"^(parity .+?)   # exits (\d)$", TEXT, re.MULTILINE)
JOB_FILE = """\
job:
  name: skill
  baseline: {recipe: fp8_current}
  candidates: [{recipe: nvfp4}]
policy: {margin: 1 %}
"""


@pytest.fixture
def run(tmp_path, served, database, monkeypatch, capsys):
    for name in ("curves", "golden"):
        shutil.copytree(CHECKOUT / "examples" / name, tmp_path, dirs_exist_ok=True)
    (tmp_path / "parity.yaml").write_text(JOB_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.setenv("COLUMNS", "80")

    def call(words):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        return ended.value.code, *capsys.readouterr()

    return call


def test_each_command_runs_and_exits_as_the_page_says(run):
    job, left = "", []
    for line, code in COMMANDS:
        words = shlex.split(line.replace("$JOB", job))[1:]
        exited, out, err = run(words)
        left.append((line, exited, out, err))
        assert exited == int(code), left[-1]
        if "--push" in words:
            job = out.rpartition("/jobs/")[2].strip()
    assert job


def test_every_line_of_a_shell_says_how_it_exits():
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == len(COMMANDS)
    assert {code for _, code in COMMANDS} >= {"0", "1", "2", "3", "4", "5", "7"}


def test_exit_codes_and_codes_are_all_there():
    rows = dict(re.findall(r"^\| (\d) \| ([\w ]+) \|", TEXT, re.MULTILINE))
    assert rows == {str(code): name for name, code in EXIT_CODES.items()}
    assert set(re.findall(r"^- `([A-Z_]+)`: .", TEXT, re.MULTILINE)) == set(BY_CODE)


def test_options_that_the_page_names_exist(run):
    helps = "".join(
        run([*words, "--help-all" if words == ["compare"] else "-h"])[1]
        for words in (
            *(["compare"], ["gate"], ["card"], ["verify"], ["plan"], ["status"]),
            *(["golden", "check"], ["golden", "update"], ["sign-off"], ["new-question"]),
        )
    )
    for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)):
        assert option in helps, option


def test_the_command_prints_the_page(run):
    assert run(["skill"])[:2] == (0, TEXT)
