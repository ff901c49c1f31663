"""The whole script as a process: a rehearsal on this machine's processor, and what it refuses at
once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.settings import CHECKOUT

SECONDS = "5"


def script(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "tools.gpu_evidence", *map(str, arguments)],
        cwd=CHECKOUT,
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("JAX_PLATFORMS", "PARITY_"))
            },
            **more,
        },
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_rehearsal_gives_a_result_of_every_step_and_verdicts_of_both_pairs(short):
    out = short / "out"
    done = script("--rehearse", SECONDS, "--minutes", 1000, "--out", out)
    results = {
        result["step"]: result
        for result in (json.loads(path.read_text()) for path in sorted(out.glob("*.json")))
    }
    assert done.returncode == 0, done.stdout + done.stderr
    assert [
        (name, result["outcome"]) for name, result in results.items() if result["outcome"] != "done"
    ] == [
        ("te_preflight", "not begun"),
        ("te_vectors", "not begun"),
    ]
    assert all(
        result["rehearsal"] and result["machine"]["versions"]["jax"]
        for name, result in results.items()
        if name != "device"
    )
    for name, arms in (("pair", ["fp8_current", "nvfp4"]), ("te_pair", ["fp8_current"])):
        facts = results[name]["facts"]
        assert facts["status"] == "concluded"
        assert [verdict["candidate"]["name"] for verdict in facts["verdicts"]] == arms
        assert {run["device_class"].partition(":")[0] for run in facts["runs"]} == {"cpu"}
        assert len(facts["runs"]) == 2 * (1 + len(arms))
        assert (out / name / "runs.csv").read_text().count("\n") == 1 + sum(
            run["steps"] for run in facts["runs"]
        )
        verified = subprocess.run(
            [sys.executable, "-m", "parity", "verify", out / name / "evidence.zip"],
            cwd=CHECKOUT,
            check=False,
        )
        assert verified.returncode == 0
    summary = (out / "summary.txt").read_text()
    assert len(summary.splitlines()) <= 40
    assert "REHEARSAL" in summary
    assert done.stdout.endswith(summary)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_trained_and_the_summary_says_why(short):
    done = script("--minutes", 25, "--out", short / "out")
    assert done.returncode == 2
    results = [json.loads(path.read_text()) for path in sorted((short / "out").glob("*.json"))]
    assert (results[0]["step"], results[0]["outcome"]) == ("device", "failed")
    assert {result["outcome"] for result in results[1:]} == {"not begun"}
    assert "jax sees no GPU" in (short / "out" / "summary.txt").read_text()
    assert not (short / "out" / "pair").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--minutes", "0", "--out", "new"), "--minutes is '0'"),
        (("--minutes", "-1", "--out", "new"), "--minutes is '-1'"),
        (("--minutes", "abc", "--out", "new"), "--minutes is 'abc'"),
        (("--minutes", "25"), "expected --minutes N and --out DIR"),
        (
            ("--minutes", "25", "--out", "new", "--prepared", "absent"),
            "has no readable manifest.json",
        ),
        (("--minutes", "25", "--out", "full"), "is not empty"),
        (
            ("--minutes", "25", "--out", "new", "--rehearse", "0"),
            "--rehearse is 0, expected a number above 0",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_written(
    arguments, message, short, monkeypatch, capsys
):
    from tools.gpu_evidence import __main__ as command

    monkeypatch.chdir(short)
    (short / "full").mkdir()
    (short / "full" / "01-device.json").write_text("{}")
    assert command.main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith("refused: ")
    assert message in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in short.rglob("*")) == ["01-device.json", "full"]
