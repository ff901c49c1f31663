"""Every code block of the documentation runs: here, in the test that its page or its marker names,
or its marker says why it does not.

Here, `parity` and `python -m server.tokens` run in this process against one server, Python by
`exec`; YAML is checked as a part of a job file, and JSON is judged. Where the page shows an output,
it is the one that was printed.
"""

import io
import itertools
import json
import re
import shlex
import shutil
import webbrowser
from contextlib import redirect_stdout
from pathlib import Path

import httpcore2
import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import TypeAdapter

from parity import cli
from parity.gate.exit_codes import EXIT_CODES
from server import tokens
from server.api.service.job_schema import job_file_schema
from server.settings import CHECKOUT
from tests.documentation import PAGES, blocks
from training.spec import JobSpec

CURVES = CHECKOUT / "examples" / "curves"
VERDICTS = {EXIT_CODES["pass"], EXIT_CODES["fail"], EXIT_CODES["inconclusive"]}


BLOCKS = [block for path in PAGES for block in blocks(path.relative_to(CHECKOUT).as_posix())]
RUN_HERE = [block for block in BLOCKS if not block.marker]


def test_a_marker_names_a_test_that_reads_the_page_or_a_reason():
    for block in BLOCKS:
        kind, _, rest = block.marker.partition(
            "run by " if block.marker.startswith("run by") else "not run: "
        )
        assert kind == ""
        if block.marker.startswith("run by "):
            test = CHECKOUT / rest
            assert test.exists(), block
            own = [
                test,
                *CHECKOUT.glob("tools/tables/*.py"),
            ]
            named = Path(block.page).name
            assert any(named in source.read_text("utf-8") for source in own if source.is_file()), (
                block.page,
                rest,
            )
        elif block.marker:
            assert len(rest) > 10, block
    languages = {"sh", "python", "toml", "yaml", "json", "ini"}
    assert {block.language for block in BLOCKS} == languages
    assert len(RUN_HERE) >= 15


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the blocks name."""
    folder = tmp_path_factory.mktemp("blocks")
    for name in ("fp8", "nvfp4", "mxfp8"):
        shutil.copy(CURVES / f"{name}.csv", folder)
        lines = (CURVES / f"{name}.csv").read_text().splitlines(keepends=True)
        (folder / f"{name}-half.csv").write_text("".join(lines[:751]))
    steps, loss, rate = np.loadtxt(CURVES / "nvfp4.csv", delimiter=",", skiprows=1, unpack=True)
    pq.write_table(
        pa.table({"step": steps.astype(int), "train/ce": loss, "learning_rate": rate}),
        folder / "nvfp4.parquet",
    )
    shutil.copy(CHECKOUT / "examples" / "public" / "llama31-8b" / "curves.csv", folder / "runs.csv")
    shutil.copy(CHECKOUT / "examples" / "public" / "quest-sizes" / "runs.csv", folder / "sizes.csv")
    (folder / "reruns").symlink_to(CURVES / "reruns")
    (folder / "examples").symlink_to(CHECKOUT / "examples")
    method = (CHECKOUT / "docs" / "method.md").read_text("utf-8")
    for name in ("fp8", "nvfp4"):
        steps = np.loadtxt(
            CURVES / f"{name}.csv", delimiter=",", skiprows=1, usecols=(0, 1)
        ).tolist()
        (folder / f"{name}.log").write_text(
            "".join(f"it={step:.0f} L={loss}\n" for step, loss in steps) + "held out 2.5\n"
        )
    (folder / "noise.csv").write_text(
        "\n".join([*re.findall(r"^family,group,.*$|^my-700M,.*$", method, re.MULTILINE), ""])
    )
    return folder


@pytest.fixture
def shell(files, served, database, monkeypatch, capsys):
    """A function that runs one command of a page in this process; its exit code, what it printed,
    and what it said aside.
    """
    monkeypatch.chdir(files)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.setenv("PARITY_DATABASE_URL", database.url)
    monkeypatch.setattr(webbrowser, "open", lambda _: True)
    replaced = {"step=iteration": "step=step", "nvfp4:loss=train/ce": "nvfp4:loss=loss"}

    def run(line):
        words = [replaced.get(word, word) for word in shlex.split(line, comments=True)]
        if words[:3] == ["python", "-m", "server.tokens"]:
            made = [word for word in ("ID", "PRINCIPAL") if word in words]
            if made:
                tokens.main(["create", "first", "--scope", "submit"])
                tokens.main(["list"])
                cells = capsys.readouterr().out.splitlines()[-1].split()
                words = [{"ID": cells[0], "PRINCIPAL": cells[1]}.get(word, word) for word in words]
            return tokens.main(words[3:]), *capsys.readouterr()
        assert words[0] == "parity", line
        with pytest.raises(SystemExit) as ended:
            cli.main(words[1:])
        return ended.value.code, *capsys.readouterr()

    return run


def test_commands(shell):
    for block in RUN_HERE:
        if block.language == "sh":
            printed = ""
            for line in block.commands:
                code, out, err = shell(line)
                printed += out
                expected = VERDICTS if line.startswith(("parity compare", "parity card")) else {0}
                assert code in expected, (block.page, line, out, err)
                found = set(re.findall(r"\b[A-Z_]{4,}\b", out + err))
                assert not {"FAMILY_UNUSED", "INCOMPLETE"} & found, (block.page, line, out, err)
                assert "cannot pass" not in err, (block.page, line, err)
            assert not block.output or block.shows(printed), (block.page, block.text, printed)


def test_python(files, served, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.setenv("PARITY_TOKEN", "none is needed here")
    for block in RUN_HERE:
        if block.language == "python":
            with redirect_stdout(io.StringIO()) as output:
                exec(compile(block.text, f"{block.page}:{block.line}", "exec"), {})  # noqa: S102
            assert output.getvalue(), block.page
            assert not block.output or block.shows(output.getvalue()), (
                block.page,
                output.getvalue(),
            )


def _merged(base, changes):
    """`base` with the keys of `changes`, mappings merged."""
    both = {
        key: _merged(base[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return base | changes | both


def test_yaml_is_part_of_a_job_file():
    schema, arms = (
        job_file_schema(),
        {"baseline": {"recipe": "fp8_current"}, "candidates": [{"recipe": "mxfp8"}]},
    )
    for block in RUN_HERE:
        if block.language == "yaml":
            content = yaml.safe_load(block.text)
            rest = {"job": {"name": "page", **arms}, "policy": {"margin": "1 %"}}
            whole = _merged(
                rest, content if content.keys() <= schema["properties"].keys() else {"job": content}
            )
            jsonschema.validate(whole, schema)
            TypeAdapter(JobSpec).validate_python(whole["job"])


def test_json_is_the_body_of_the_request_that_its_page_names_above_it(served):
    answers = {}
    for block in RUN_HERE:
        if block.language == "json":
            above = (CHECKOUT / block.page).read_text("utf-8").partition(block.text)[0]
            path = re.findall("`POST (/api/v1/[^`]+)`", above)[-1]
            body, headers = block.text.encode(), {"Content-Type": "application/json"}
            response = httpcore2.request("POST", served + path, headers=headers, content=body)
            assert response.status in (200, 201), (block.page, response.content)
            verdicts = json.loads(response.content)["verdicts"]
            answers[path] = [document["verdict"] for document in verdicts]
    assert answers == {
        "/api/v1/evaluations": ["fail"],  # its loss is NaN
        "/api/v1/jobs:evaluations": ["pass"],
    }


def test_every_block_that_has_no_marker_is_run():
    assert {block.language for block in RUN_HERE} == {"sh", "python", "yaml", "json"}
    for block, line in itertools.product(RUN_HERE, ("make ", "docker ", "pip ")):
        assert not block.text.startswith(line), block
