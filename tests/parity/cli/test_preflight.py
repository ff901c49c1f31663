"""parity preflight: hands its options to the trainer's checks and their exit code back; says what
is missing without a trainer.
"""

import json
import subprocess
import sys

import pytest

from parity.cli import preflight
from parity.cli.application import run


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [([], []), (["--engine", "emulated", "--json"], ["--engine", "emulated", "--json"])],
)
def test_it_runs_the_trainers_checks(monkeypatch, arguments, passed_on):
    commands = []

    def stand_in(command, check, **sent):
        commands.append(command)
        assert sent == {"input": "", "text": True}
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", stand_in)
    assert run(["preflight", *arguments]) == 1
    assert commands == [[sys.executable, "-m", "training.preflight", *passed_on]]


def test_without_the_trainer_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(preflight, "find_spec", lambda _name: None)
    assert run(["preflight"]) == 2
    assert "needs the trainer" in capsys.readouterr().err


def test_an_engine_that_has_no_kernels_here_is_a_usage_error(capsys):
    assert run(["preflight", "--engine", "maxtext"]) == 2
    assert "transformer_engine" in capsys.readouterr().err


def test_a_job_is_sent_as_json_and_names_its_engine(monkeypatch, tmp_path, capsys):
    sent = []

    def stand_in(command, **more):
        sent.append((command[3:], json.loads(more["input"])))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", stand_in)
    file = tmp_path / "parity.yaml"
    file.write_text("job: {name: j, engine: emulated}\npolicy: {margin: 1%}\n")
    assert run(["preflight", "--job", str(file)]) == 0
    assert sent == [(["--job"], {"name": "j", "engine": "emulated"})]
    assert run(["preflight", "--job", str(file), "--engine", "emulated"]) == 2
    assert "a job names its engine" in capsys.readouterr().err
    assert run(["preflight", "--job", str(tmp_path / "none.yaml")]) == 2
