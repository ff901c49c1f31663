"""parity preflight: hands its options to the trainer's checks and their exit code back; says what is missing without a trainer."""

import subprocess
import sys

import pytest

from parity.cli import verify
from parity.cli.application import run


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [([], []), (["--engine", "emulated", "--json"], ["--engine", "emulated", "--json"])],
)
def test_it_runs_the_trainers_checks(monkeypatch, arguments, passed_on):
    commands = []

    def stand_in(command, check):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", stand_in)
    assert run(["preflight", *arguments]) == 1
    assert commands == [[sys.executable, "-m", "training.preflight", *passed_on]]


def test_without_the_trainer_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(verify, "find_spec", lambda _name: None)
    assert run(["preflight"]) == 2
    assert "needs the trainer" in capsys.readouterr().err


def test_an_engine_that_has_no_kernels_here_is_a_usage_error(capsys):
    assert run(["preflight", "--engine", "maxtext"]) == 2
    assert "transformer_engine" in capsys.readouterr().err
