"""The examples for users' own training scripts, from the job file to the judged job, as a user runs
them.
"""

import importlib.util
import os
import subprocess
import sys

import httpx2
import pytest
import yaml

from parity import cli
from parity.client.rest import Client
from server.settings import CHECKOUT


def _parity(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "script",
    [
        "optax_loop.py",
        pytest.param(
            "torch_loop.py",
            marks=pytest.mark.skipif(
                not importlib.util.find_spec("torch"), reason="torch is not installed"
            ),
        ),
    ],
)
def test_a_loop_brings_its_curve(served, tmp_path, capsys, script):
    job = _parity(
        capsys, "submit", str(CHECKOUT / "examples" / "external.yaml"), "--server", served
    ).split()[0]
    with Client(served) as client:
        run = client.job(job)["arms"][0]["runs"][0]["id"]
        assert run in _parity(capsys, "status", job, "--server", served)
        environment = os.environ | {"PARITY_RUN": run, "PARITY_URL": served, "JAX_PLATFORMS": "cpu"}
        script_path = str(CHECKOUT / "examples" / script)
        script = subprocess.run(
            [sys.executable, script_path],
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert (script.returncode, script.stderr) == (0, "")
        record = client.run(run)
        assert (record["state"], record["covered"]["recorded"], record["covered"]["missing"]) == (
            "finished",
            200,
            0,
        )
        assert "version.numpy" not in record["manifest"]
        assert client.job(job)["arms"][0]["loss"] < 10


def test_every_job_file_can_reach_a_pass(served):
    for file in sorted((CHECKOUT / "examples").glob("*.yaml")):
        asked = yaml.safe_load(file.read_text())
        with Client(served) as client:
            plan = client.plan(asked["job"], asked["policy"])
        for candidate in plan["candidates"]:
            assert candidate["plan"] is not None, (file.name, candidate["line"])
            assert candidate["plan"]["power"][0]["pass_chance"] > 0.2, (
                file.name,
                candidate["name"],
                candidate["line"],
            )


def test_every_job_file_is_taken_and_a_maxtext_page_says_what_it_tells_by_layer(served, capsys):
    for file in sorted((CHECKOUT / "examples").glob("*.yaml")):
        job = _parity(capsys, "submit", str(file), "--server", served).split()[0]
        is_mentioned = (
            "maxtext.record_internal_nn_metrics" in httpx2.get(f"{served}/jobs/{job}").text
        )
        assert is_mentioned == ("engine: maxtext" in file.read_text())
