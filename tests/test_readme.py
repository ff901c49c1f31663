"""README.md: every line of "Your own runs" works, the plans are those of `parity plan`, the set-up
is what CI runs.
"""

import functools
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.cli import main
from parity.gate.exit_codes import EXIT_CODES
from parity.readers.tables.growing_table import GrowingTable
from parity.readers.trackers import sources
from parity.readers.trackers.run import TrackerRun
from server.settings import CHECKOUT

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
CURVES = CHECKOUT / "examples" / "curves"
OWN_RUNS = README.partition("## Your own runs")[2].partition("\n## ")[0]
ROWS = [line for _, line in re.findall(r"^\| (\[.+?) \| `([^`]+)`.* \|$", OWN_RUNS, re.MULTILINE)]
COMMANDS = dict(zip(ROWS, ("pass", "fail", "fail"), strict=False))


@pytest.fixture
def command(capsys):
    """A function that runs a line of the README in this process: exit code and stdout."""

    def run(line):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        out, err = capsys.readouterr()
        assert ended.value.code in EXIT_CODES.values(), err
        return ended.value.code, out

    return run


@pytest.fixture
def own_runs(tmp_path, monkeypatch):
    """The files that the lines of the table name, in the current folder, and runs in trackers."""
    monkeypatch.chdir(tmp_path)
    many = ["recipe,seed,step,loss"]
    for arm in ("fp8", "mxfp8", "nvfp4"):
        shutil.copy(CURVES / f"{arm}.csv", f"{arm}.csv")
        steps, loss, _ = np.loadtxt(CURVES / f"{arm}.csv", delimiter=",", skiprows=1, unpack=True)
        if arm != "mxfp8":
            many += [f"{arm},0,{step:.0f},{value}" for step, value in zip(steps, loss, strict=True)]
    Path("many.csv").write_text("\n".join(many))
    in_trackers = {"0f3c5e": "fp8.csv", "9be17d": "nvfp4.csv"}

    def tracked(source, path, wanted):
        return TrackerRun(
            columns=GrowingTable(source, wanted).read(Path(in_trackers[path]).read_text()),
            config={},
        )

    monkeypatch.setattr(sources, "SOURCES", dict.fromkeys(sources.SOURCES, tracked))


def test_there_are_six_ways_in():
    assert len(ROWS) == 6
    assert [line.partition(" ")[0] for line in COMMANDS] == ["parity"] * 3


@pytest.mark.parametrize(("line", "verdict"), COMMANDS.items())
def test_a_command_of_the_table_gives_a_verdict(own_runs, command, line, verdict):
    assert command(line)[0] == EXIT_CODES[verdict]


def test_the_line_in_python_gives_a_verdict(own_runs):
    (line,) = (line for line in ROWS if line.startswith("parity.compare"))
    assert eval(line, {"parity": parity}).verdict == "fail"  # noqa: S307


def test_the_line_of_a_golden_checks_a_run(command, tmp_path, monkeypatch):
    (line,) = (line for line in ROWS if line.startswith("parity golden"))
    monkeypatch.chdir(tmp_path)
    runs = CHECKOUT / "examples" / "golden"
    shutil.copy(runs / "new.csv", "run.csv")
    first = f"parity golden update llama.golden.jsonl {runs / 'old.csv'} --recipe bf16"
    assert command(first)[0] == EXIT_CODES["pass"]
    assert command(line)[0] == EXIT_CODES["pass"]
    shutil.copy(runs / "worse.csv", "run.csv")
    assert command(line)[0] == EXIT_CODES["fail"]


def test_the_lines_of_a_script_log_a_run(tmp_path, monkeypatch):
    (line,) = (line for line in ROWS if line.startswith("with parity.Run"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARITY_URL", raising=False)
    # else it waits a minute for a server
    monkeypatch.setattr(parity, "Run", functools.partial(parity.Run, finish_seconds=0.0))
    exec(line, {"parity": parity, "step": 0, "loss": 2.0})  # noqa: S102
    (spool,) = (tmp_path / "parity-spool").iterdir()
    assert "llama-1b" in spool.name or b"llama-1b" in spool.read_bytes()


def test_the_plans_are_those_of_the_command(command):
    rows = re.findall(
        r"^\| ([\d.]+) % \| (\d+) \+ (\d+) runs \| (\d+) \+ (\d+) runs \|$", README, re.MULTILINE
    )
    assert len(rows) == 3
    for margin, *numbers in rows:
        planned = []
        for candidate in ("mxfp8", "nvfp4"):
            recipes = f"--baseline-recipe fp8_current --candidate-recipe {candidate}"
            plan = json.loads(
                command(f"parity plan --planned-steps 10000 --margin {margin}% {recipes} --json")[1]
            )
            cheapest = plan["design"] if plan["decides"] else plan["cheapest"]
            planned += [cheapest["baseline_runs"], cheapest["candidate_runs"]]
        assert planned == [int(number) for number in numbers], margin


def test_the_wheel_that_the_documentation_names_is_the_one_that_is_built():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (CHECKOUT / "docs" / "development.md").read_text(encoding="utf-8")
    assert f"{project['name']}-{project['version']}-py3-none-any.whl" in page


def test_it_names_what_ci_runs():
    section = README.partition("## Tests")[2].partition("\n## ")[0]
    commands = {
        line.partition(" #")[0].strip()
        for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        for line in block.splitlines()
    }
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    assert {line for line in script.splitlines() if line.startswith("make ")} <= commands
    assert "chromium" in script
    assert "chromium" in section


@pytest.mark.parametrize("name", ["fp8", "nvfp4", "mxfp8"])
def test_the_example_curves_are_small_and_whole(name):
    file = CURVES / f"{name}.csv"
    steps, loss, rate = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)
    assert rate[-1] < 0.2 * rate.max()
    assert file.stat().st_size <= 60_000
    assert steps.tolist() == list(range(1500))
    assert np.isfinite(loss).all()
