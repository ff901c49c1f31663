"""The report of the checks: its lines, its JSON and its exit codes."""

import io
import json

import pytest

from tests.parity.cli.schemas import check
from training.preflight import __main__
from training.preflight.checks import KernelCheck

GOOD, BAD = (
    KernelCheck(name="nvfp4: codes", passed=True, detail="0 differ"),
    KernelCheck(name="nvfp4: zeros", passed=False, detail="3 are not 0"),
)
ABSENT = KernelCheck(name="mxfp8", passed=True, detail="no GPU", ran=False)


@pytest.fixture
def examined(monkeypatch):
    def set_to(emulated, transformer_engine=(ABSENT,)):
        results = {"emulated": emulated, "transformer_engine": transformer_engine}
        monkeypatch.setattr(
            __main__, "examine", lambda kernels, _layers: iter(results[kernels.name])
        )

    return set_to


@pytest.mark.parametrize(
    ("emulated", "arguments", "code"),
    [
        ((GOOD,), [], 0),
        ((GOOD, BAD), [], 1),
        ((GOOD,), ["--engine", "transformer_engine"], 2),
        ((BAD,), ["--engine", "transformer_engine"], 2),
    ],
)
def test_the_exit_code_says_whether_a_check_failed_or_none_ran(
    examined, capsys, emulated, arguments, code
):
    examined(emulated)
    assert __main__.main(arguments) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (1 if arguments else len(emulated) + 1) + 1
    assert sum(line.startswith("FAIL ") for line in lines) == (code == 1)


def test_the_json_has_every_check(examined, capsys):
    examined((GOOD, BAD))
    assert __main__.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    check("preflight", document)
    assert document["emulated"][1] == {
        "name": "nvfp4: zeros",
        "passed": False,
        "detail": "3 are not 0",
        "ran": True,
    }
    assert document["transformer_engine"][0]["ran"] is False
    assert document["device_class"].startswith("cpu")


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [("{", 2, "not valid"), ({"engine": "external"}, 2, "job.engine is 'external'"), ({}, 0, "")],
)
def test_a_job_comes_on_stdin_and_names_its_engine(examined, monkeypatch, capsys, job, code, words):
    examined((GOOD,), (BAD,))
    whole = {
        "name": "j",
        "baseline": {"recipe": "fp8_current"},
        "candidates": [{"recipe": "nvfp4"}],
    }
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(job if isinstance(job, str) else json.dumps(whole | job))
    )
    assert __main__.main(["--job"]) == code
    assert words in capsys.readouterr().err
