"""Every code block of the documentation runs: here, in the test that its page or its marker names, or its marker says why it does not.

A marker is a comment on the line above the fence: `<!-- run by tests/... -->` or `<!-- not run: the reason -->`. A fence without a language
is output. Here, `parity` and `python -m server.tokens` run in this process against one server, Python by `exec`, and YAML is checked as a
part of a job file.
"""

import io
import itertools
import re
import shlex
import shutil
import webbrowser
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import TypeAdapter

from parity import cli
from parity.cli.terminal import EXIT_CODES
from server import tokens
from server.api.service import job_file_schema
from server.settings import CHECKOUT
from training.spec import JobSpec

CURVES = CHECKOUT / "examples" / "curves"
PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    *sorted((CHECKOUT / "examples").glob("*/README.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
# Pages of which one test runs every block.
WHOLE = {
    "docs/baselines.md": "tests/server/test_baseline_verbs.py",
    "docs/ci.md": "tests/server/test_ci_page.py",
    "docs/jobs.md": "tests/server/test_job_pages.py",
    "docs/launchers.md": "tests/workers/commands/test_page.py",
    "docs/planning.md": "tests/tools/test_planning_page.py",
    "docs/public-verdicts.md": "tests/tools/test_public_verdicts.py",
    "docs/python.md": "tests/test_python_page.py",
    "docs/sign-off.md": "tests/server/test_job_pages.py",
    "docs/tour.md": "tests/workers/test_tour.py",
}
# README.md has no room for markers: its blocks by their first word but one.
README = {
    "python3 -m venv": "run by tests/tools/test_public_verdicts.py",
    "apt-get update": "not run: it is what CI runs, this test included",
}
_FENCE = re.compile(r"(?:^ *<!-- ((?:not run: |run by )[^\n]+?) -->\n+)?^( *)```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
VERDICTS = {EXIT_CODES["pass"], EXIT_CODES["fail"], EXIT_CODES["inconclusive"]}


class Block(NamedTuple):
    """One code block: its page, its first line's number, its language, its text and its marker."""

    page: str
    line: int
    language: str
    text: str
    marker: str


def _blocks():
    for path in PAGES:
        page, text = path.relative_to(CHECKOUT).as_posix(), path.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            marker, indent, language, code = match.groups()
            code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
            if page == "README.md":
                marker = next((how for start, how in README.items() if code.startswith(start)), None)
            elif page in WHOLE:
                marker = f"run by {WHOLE[page]}"
            yield Block(page, text[: match.start(4)].count("\n") + 1, language, code, marker or "")


BLOCKS = list(_blocks())
RUN_HERE = [block for block in BLOCKS if not block.marker]
_each = pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: f"{block.page}:{block.line}")


def test_a_marker_names_a_test_that_reads_the_page_or_a_reason():
    for block in BLOCKS:
        kind, _, rest = block.marker.partition("run by " if block.marker.startswith("run by") else "not run: ")
        assert kind == ""
        if block.marker.startswith("run by "):
            test = CHECKOUT / rest
            assert test.exists(), block
            own = [test, *CHECKOUT.glob("tools/*_page.py"), CHECKOUT / "tools" / "public_verdicts.py"]
            named = Path(block.page).name
            assert any(named in source.read_text("utf-8") for source in own if source.is_file()), (block.page, rest)
        elif block.marker:
            assert len(rest) > 10, block
    assert {block.language for block in BLOCKS} == {"sh", "python", "toml", "yaml"}
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
    pq.write_table(pa.table({"step": steps.astype(int), "train/ce": loss, "learning_rate": rate}), folder / "nvfp4.parquet")
    shutil.copy(CHECKOUT / "examples" / "public" / "llama31-8b" / "curves.csv", folder / "runs.csv")
    method = (CHECKOUT / "docs" / "method.md").read_text("utf-8")
    for name in ("fp8", "nvfp4"):
        steps = np.loadtxt(CURVES / f"{name}.csv", delimiter=",", skiprows=1, usecols=(0, 1)).tolist()
        (folder / f"{name}.log").write_text("".join(f"it={step:.0f} L={loss}\n" for step, loss in steps) + "held out 2.5\n")
    (folder / "floors.csv").write_text("\n".join([*re.findall(r"^family,group,.*$|^my-700M,.*$", method, re.MULTILINE), ""]))
    return folder


@pytest.fixture
def shell(files, served, database, monkeypatch, capsys):
    """A function that runs one command of a page in this process; its exit code and what it printed."""
    monkeypatch.chdir(files)
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
            return tokens.main(words[3:]), "".join(capsys.readouterr())
        assert words[0] == "parity", line
        with pytest.raises(SystemExit) as ended:
            cli.main(words[1:])
        return ended.value.code, "".join(capsys.readouterr())

    return run


def test_commands(shell):
    for block in RUN_HERE:
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                code, output = shell(line)
                expected = VERDICTS if line.startswith("parity compare") else {0}
                assert code in expected, (block.page, line, output)
                assert not {"FAMILY_UNUSED", "INCOMPLETE"} & set(re.findall(r"\b[A-Z_]{4,}\b", output)), (block.page, line, output)


def test_python(files, served, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setenv("PARITY_URL", served)
    monkeypatch.setenv("PARITY_TOKEN", "none is needed here")
    for block in RUN_HERE:
        if block.language == "python":
            with redirect_stdout(io.StringIO()) as output:
                exec(compile(block.text, f"{block.page}:{block.line}", "exec"), {})  # noqa: S102
            assert output.getvalue(), block.page


def _merged(base, changes):
    """`base` with the keys of `changes`, mappings merged."""
    both = {key: _merged(base[key], value) for key, value in changes.items() if isinstance(value, dict) and isinstance(base.get(key), dict)}
    return base | changes | both


def test_yaml_is_part_of_a_job_file():
    schema, arms = job_file_schema(), {"baseline": {"recipe": "fp8_current"}, "candidates": [{"recipe": "mxfp8"}]}
    for block in RUN_HERE:
        if block.language == "yaml":
            content = yaml.safe_load(block.text)
            rest = {"job": {"name": "page", **arms}, "policy": {"margin": "1 %"}}
            whole = _merged(rest, content if content.keys() <= schema["properties"].keys() else {"job": content})
            jsonschema.validate(whole, schema)
            TypeAdapter(JobSpec).validate_python(whole["job"])


def test_every_block_that_has_no_marker_is_run():
    assert {block.language for block in RUN_HERE} == {"sh", "python", "yaml"}
    for block, line in itertools.product(RUN_HERE, ("make ", "docker ", "pip ")):
        assert not block.text.startswith(line), block
