"""README.md: its compare line of two files gives the verdict that it prints, every line of "Bring your own runs" works, it stays short."""

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parity.cli import main
from parity.cli.terminal import EXIT_CODES
from parity.readers import trackers
from parity.readers.table import GrowingTable
from parity.readers.trackers.run import TrackerRun
from server.settings import CHECKOUT

README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
CURVES = CHECKOUT / "examples" / "curves"
ROWS = re.findall(r"^\| ([^|]+) \| `(parity compare [^`]+)` \|$", README, re.MULTILINE)


@pytest.fixture
def compare(capsys):
    """A function that runs a line of the README in this process: exit code and stdout."""

    def run(line):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        out, err = capsys.readouterr()
        assert ended.value.code in (EXIT_CODES["pass"], EXIT_CODES["fail"], EXIT_CODES["inconclusive"]), err
        return ended.value.code, out

    return run


def test_the_line_of_two_files_gives_the_verdict_that_the_page_prints(compare, monkeypatch):
    monkeypatch.chdir(CHECKOUT)
    (line,) = re.findall(r"^parity compare examples/curves/.*$", README, re.MULTILINE)
    after = README.partition(line)[2].partition("```")[2]
    printed = next(text for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", after, re.DOTALL | re.MULTILINE) if not language)
    code, today = compare(line)
    (verdict,) = json.loads(compare(f"{line} --json")[1])["verdicts"]
    gap, margin = verdict["gap"], verdict["margin"]["nats"]
    values = [f"{gap['mean']:+.4f}", f"{gap['lo']:+.4f}", f"{gap['hi']:+.4f}", f"{margin:.4f}", verdict["verdict"].upper()]
    assert all(value in printed for value in values), values
    assert today.startswith(printed.rstrip())
    assert f"The exit code is {code}." in README


def test_the_line_without_a_clone_passes(compare, monkeypatch):
    monkeypatch.chdir(CURVES)
    (line,) = re.findall(r"^judge/bin/(parity compare .*?) +# PASS$", README, re.MULTILINE)
    assert compare(line)[0] == EXIT_CODES["pass"]


def test_the_wheel_that_the_page_names_is_the_one_that_is_built():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"{project['name']}-{project['version']}-py3-none-any.whl" in README


@pytest.fixture
def own_runs(tmp_path, monkeypatch):
    """The files that the lines of the table name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    archive, table, many = {}, ["run_id,key,value,step,timestamp"], ["recipe,seed,step,loss"]
    for arm in ("fp8", "nvfp4"):
        steps, loss, _ = np.loadtxt(CURVES / f"{arm}.csv", delimiter=",", skiprows=1, unpack=True)
        archive |= {f"{arm}/step": steps, f"{arm}/loss": loss}
        table += [f"{arm},loss,{value},{step:.0f},{step:.0f}" for step, value in zip(steps, loss, strict=True)]
        many += [f"{arm},0,{step:.0f},{value}" for step, value in zip(steps, loss, strict=True)]
        lines = (
            f"steps: {step:.0f} loss: {value:.4f} iter time (s): 0.5 samples/sec: 9.0" for step, value in zip(steps, loss, strict=True)
        )
        Path(f"{arm}.log").write_text("\n".join([*lines, ""]))
        for name in (f"{arm}.csv", f"{arm}-b.csv"):
            shutil.copy(CURVES / f"{arm}.csv", name)
        pq.write_table(pa.table({"step": steps, "loss": loss}), f"{arm}.parquet")
        Path(arm).mkdir()
        rows = ({"step": step, "learning/loss": value, "perf/step_time_seconds": 1.0} for step, value in zip(steps, loss, strict=True))
        Path(arm, "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        history = [{"step": int(step), "loss": value} for step, value in zip(steps, loss, strict=True)]
        Path(arm, "trainer_state.json").write_text(json.dumps({"log_history": history}))
        shutil.copy(CHECKOUT / "tests" / "data" / "events.out.tfevents.sample", f"{arm}/events.out.tfevents.1")
        results = {"results": {"arc": {"alias": "arc", "acc,none": 0.5}}, "n-samples": {"arc": {"original": 100, "effective": 100}}}
        Path(arm, "results.json").write_text(json.dumps(results | {"group_subtasks": {}, "n-shot": {"arc": 0}}))
    in_trackers = {"fp8": "fp8.csv", "nvfp4": "nvfp4.csv", "0f3c5e": "fp8.csv", "9be17d": "nvfp4.csv"}

    def tracked(source, path, wanted):
        text = Path(in_trackers[path.rpartition("/")[2]]).read_text()
        return TrackerRun(columns=GrowingTable(source, wanted).read(text), config={})

    monkeypatch.setattr(trackers, "SOURCES", dict.fromkeys(trackers.SOURCES, tracked))
    np.savez("runs.npz", **archive)
    Path("runs.csv").write_text("\n".join(table))
    Path("many.csv").write_text("\n".join(many))


@pytest.mark.parametrize(("runs", "line"), ROWS)
def test_a_line_of_the_table_gives_a_verdict(own_runs, compare, runs, line):
    line = line.replace("compare …", "compare fp8.csv nvfp4.csv --planned-steps 10000").replace("10000", "1500")
    expected = "inconclusive" if "TensorBoard" in runs else "fail"  # the sample of an event file has a NaN
    assert compare(line)[0] == EXIT_CODES[expected]


def test_the_line_about_columns_reads_them(own_runs, compare):
    (options, of_one_arm) = re.findall(r"the same, with `([^`]+)` \(of one arm: `([^`]+)`\)", README)[0]
    for arm in ("fp8", "nvfp4"):
        text = Path(f"{arm}.csv").read_text()
        Path(f"{arm}.csv").write_text(text.replace("step,loss", "iteration,train/ce", 1))
    assert compare(f"parity compare fp8.csv nvfp4.csv --planned-steps 1500 {options}")[0] == EXIT_CODES["fail"]
    by_arm = f"--column step=iteration --column fp8:loss=train/ce {of_one_arm}"
    assert compare(f"parity compare fp8.csv nvfp4.csv --planned-steps 1500 {by_arm}")[0] == EXIT_CODES["fail"]


def test_the_table_has_every_format():
    assert len(ROWS) == 15


def test_it_is_short_and_names_what_ci_runs():
    assert len(README.splitlines()) <= 132
    section = README.partition("## Tests")[2].partition("\n## ")[0]
    commands = {
        line.partition(" #")[0].strip() for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()
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
