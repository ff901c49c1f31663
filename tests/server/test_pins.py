"""The command that says what a job file pins."""

import shlex

import pytest
import yaml

from server import pins
from server.jobs.pinned_fields import FREE
from server.jobs.pinned_question import digest_of, read_question
from tests.documentation import run_by

CONTENT = {
    "job": {"name": "x", "baseline": {"recipe": "bf16"}, "candidates": [{"recipe": "nvfp4"}]},
    "policy": {"margin": "1%"},
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "parity.yaml"
    path.write_text(yaml.safe_dump(CONTENT))
    return path


def test_the_command_of_the_page_prints_the_digest_and_what_is_free(file, capsys):
    (block,) = run_by("docs/gate.md", __file__)
    (command,) = block.commands
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "server.pins"]
    assert pins.main(words[3:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == digest_of(read_question(file))
    assert [line.split("\t")[0] for line in printed[1:]] == [
        f"{part}.{name}" for part, names in FREE.items() for name in names
    ]


def test_a_label_changes_no_digest_and_a_rate_does(file):
    before = digest_of(read_question(file))
    for change, same in (({"name": "y"}, True), ({"schedule": {"learning_rate": 1e-9}}, False)):
        file.write_text(yaml.safe_dump({**CONTENT, "job": {**CONTENT["job"], **change}}))
        assert (digest_of(read_question(file)) == before) is same


def test_a_file_that_cannot_be_read_is_refused_in_one_line(file, capsys):
    file.write_text("job: {}\n")
    assert pins.main([str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
