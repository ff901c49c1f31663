"""Every command of docs/gate.md and of examples/ci runs as it stands there, against a real
server.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from parity.gate.exit_codes import EXIT_CODES
from parity.gate.rules import gate_rules_from_mapping
from server.api.service.job_schema import job_file_schema
from server.settings import CHECKOUT
from tests.documentation import run_by

PAGE = (CHECKOUT / "docs" / "gate.md").read_text()
EXAMPLES = CHECKOUT / "examples" / "ci"
WORKFLOWS = [
    *sorted(EXAMPLES.glob("github*.yml")),
    *sorted((CHECKOUT / ".github" / "workflows").glob("*.yml")),
]


@pytest.fixture
def shell(served, judged, register, tmp_path):
    """A function that runs a line in a repository with parity.yaml, whose question is answered
    already; the exit code and what was said.
    """
    register()
    _, request = judged({"mxfp8": 0.0})
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "recipe.py").write_text("x = 1\n")
    (tmp_path / "parity.yaml").write_text(
        yaml.safe_dump(request | {"gate": {"timeout_seconds": 0.1}})
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "PARITY_"))
    }
    identity = {
        f"GIT_{who}_{what}": "n" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = (
        kept
        | identity
        | {"PARITY_URL": served, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    )

    def run(line, **more):
        words = ["sh", "-e", "-c", line]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment | more, check=False, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    assert run("git init -q && git add . && git commit -qm first")[0] == 0
    return run


def test_the_commands_of_the_page(shell, tmp_path):
    blocks = run_by("docs/gate.md", __file__)
    lines = [line for block in blocks for line in block.commands]
    for arm in ("fp8", "nvfp4"):
        shutil.copy(CHECKOUT / "examples" / "curves" / f"{arm}.csv", tmp_path)
    # The nightly gate runs half a day after the others, not in the same second: here it is a second
    # look.
    shell("sed -i 's/looks: 1/looks: 2/' parity.yaml")
    outcomes, printed = [], []
    for line in lines:
        # A real wait is not the page's point here.
        code, output = shell(line.replace("--timeout 20000", "--timeout 0.1"))
        printed.append(" ".join(output.split()))
        outcomes.append(
            (
                code,
                (
                    re.findall(
                        r"^(?:NO VERDICT|NOTHING WAS JUDGED) \((\w+)\)|^(FAIL): ",
                        output,
                        re.MULTILINE,
                    )
                    or [("", "")]
                )[0],
            )
        )
    waited, unrecorded = (5, ("timeout", "")), (0, ("unrecorded", ""))
    assert outcomes == [(0, ("", "")), (1, ("", "FAIL")), waited, waited, unrecorded, waited]
    assert " ".join(blocks[0].output.split()) in printed[1]
    assert {path.name for path in tmp_path.glob("gate.*")} == {"gate.xml", "gate.json", "gate.md"}


def test_the_table_of_codes_is_the_commands_own():
    rows = re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(EXIT_CODES.values())


def test_the_gate_of_the_page_is_read_and_fits_the_schema():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    content = yaml.safe_load(block)
    assert gate_rules_from_mapping(content["gate"]).confirm_marginal_fail
    schema = job_file_schema()
    demo = yaml.safe_load((CHECKOUT / "examples" / "demo.yaml").read_text())
    jsonschema.validate(demo | content, schema)
    for gate in ({"max_age": 1}, {"max_age_days": -1}, {"on_infra": "maybe"}, {"advisory": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(demo | {"gate": gate}, schema)


def test_the_shell_example(shell):
    shell("cp parity.yaml other.yaml")
    code, output = shell(f"GITHUB_SHA= {EXAMPLES / 'gate.sh'} other.yaml", GATE_TIMEOUT="0.1")
    assert (code, "not decided in time" in output) == (5, True), output


def test_the_gitlab_example(shell, tmp_path):
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["parity"]
    install, gate = job["script"]
    assert install.startswith("pip install")
    code, output = shell(gate.replace("--timeout 20000", "--timeout 0.1"), CI_COMMIT_SHA="")
    assert (code, output.startswith("PASS")) == (0, True), output
    assert {
        (tmp_path / name).exists()
        for name in [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    } == {True}


def test_the_github_example(shell):
    workflow = yaml.safe_load((EXAMPLES / "github.yml").read_text())
    _, revision, gate = workflow["jobs"]["gate"]["steps"]
    action = yaml.safe_load((CHECKOUT / "action.yml").read_text())
    assert gate["with"].keys() <= action["inputs"].keys()
    assert gate["with"]["options"].split("||")[-1].split("'")[1] == "--lookup --advisory", (
        "what a pull request without the label does"
    )
    assert shell(revision["run"], GITHUB_OUTPUT="tree.txt")[0] == 0
    assert re.fullmatch(r"tree=[0-9a-f]{40}\n", shell("cat tree.txt")[1])
    assert shell("git rm -rq train && git commit -qm 'no folder train'")[0] == 0
    assert shell(revision["run"], GITHUB_OUTPUT="tree.txt")[0] != 0, (
        "a constant instead of a revision would serve old verdicts"
    )


def test_the_github_example_without_a_server(shell, tmp_path):
    workflow = yaml.safe_load((EXAMPLES / "github-files.yml").read_text())
    gate = workflow["jobs"]["compare"]["steps"][-1]
    for arm in workflow["jobs"]["train"]["strategy"]["matrix"]["arm"]:
        shutil.copy(CHECKOUT / "examples" / "curves" / f"{arm}.csv", tmp_path)
    assert shell(f"parity compare {gate['with']['compare']}")[0] == EXIT_CODES["fail"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_keeps_no_credentials(file):
    text = file.read_text()
    used = re.findall(r"uses: (\S+)@(\S+)(.*)", text)
    assert used
    for action, commit, comment in used:
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-actions", "action.yml"),
        ("github-workflows", "examples/ci/github.yml"),
        ("github-workflows", "examples/ci/github-files.yml"),
        ("github-workflows", "examples/ci/github-command.yml"),
        ("github-workflows", "examples/ci/github-golden.yml"),
        ("github-workflows", ".github/workflows/release.yml"),
        ("gitlab-ci", "examples/ci/gitlab-ci.yml"),
    ],
)
def test_the_files_are_what_their_systems_read(schema, file):
    words = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        str(CHECKOUT / file),
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
