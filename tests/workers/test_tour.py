"""docs/tutorial-service.md: each of its commands in the order of the page, on a copy of the
checkout whose demo is a tiny model and loses its Redis.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
from functools import reduce
from pathlib import Path

import pytest
import yaml

from server.settings import CHECKOUT
from tests.documentation import run_by
from tests.workers.conftest import part_of

PAGE = "docs/tutorial-service.md"
FOLDERS = ("ci", "examples", "migrations", "parity", "parity_lab", "server", "training", "workers")
FILES = (
    ".npmrc",
    "Makefile",
    "alembic.ini",
    "package-lock.json",
    "pyproject.toml",
    "locks/standalone.lock",
)
TINY = {
    "  model:": "  model: {d_model: 32, n_layers: 1, n_heads: 1, n_kv_heads: 1, d_ff: 32}",
    "  data:": "  data: {sequence_length: 32, batch_size: 2}",
    "  schedule:": "  schedule: {steps: 200, warmup_steps: 10}",
    "  keep_checkpoints:": "  keep_checkpoints: [120]",
    "  baseline:": "  baseline: {recipe: fp8_current}",
    "    - {recipe: nvfp4": "    - {recipe: nvfp4}",
    "  margin:": "  margin: 20 %",
}


@pytest.fixture
def checkout(tmp_path_factory):
    """A copy of what `make demo` needs; its set-up is the real one's, which is there."""
    copy = tmp_path_factory.mktemp("t") / "parity"
    copy.mkdir()
    for name in FOLDERS:
        shutil.copytree(CHECKOUT / name, copy / name)
    for name in FILES:
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, copy / name)
        os.utime(copy / name, (1, 1))  # older than the stamps of the set-up
    for name in (".venv", "node_modules"):
        (copy / name).symlink_to(CHECKOUT / name)
    (copy / ".state").mkdir()
    (copy / ".state" / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
    demo = copy / "examples" / "demo.yaml"
    lines = [
        next((tiny for start, tiny in TINY.items() if line.startswith(start)), line)
        for line in demo.read_text().splitlines()
    ]
    demo.write_text("\n".join(lines) + "\n")
    assert len(set(lines) & set(TINY.values())) == len(TINY)
    return copy


@pytest.fixture
def environment():
    """That of a user with a port of their own and an identity for Git."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PARITY_", "GITHUB_", "GIT_")) and name != "CI"
    }
    variables = {
        "PARITY_PORT": str(port),
        "PARITY_URL": f"http://127.0.0.1:{port}",
        "PARITY_FLUSH_SECONDS": "0.2",
    }
    identity = {
        f"GIT_{who}_{what}": "n" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return inherited | variables | identity | {"NO_COLOR": "1", "COLUMNS": "80"}


def _outputs(
    lines: list[str], folder: Path, environment: dict[str, str]
) -> list[tuple[str, int, str]]:
    """Run lines in one shell: (line, exit code, its output) of each."""
    script = "".join(f"{line}\nprintf '\\n::%s::\\n' $?\n" for line in lines)
    done = subprocess.run(
        ["bash"],
        input=script,
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    parts = re.split(r"\n::(\d+)::\n", done.stdout)
    assert len(parts) == 2 * len(lines) + 1, (done.stdout, done.stderr)
    return [
        (line, int(code), output)
        for line, output, code in zip(lines, parts[::2], parts[1::2], strict=False)
    ]


def _submit_a_job_with_a_long_name(checkout: Path, environment: dict[str, str]) -> None:
    """The newest job of the list, too long for a terminal's line."""
    job_file = yaml.safe_load((checkout / "examples" / "external.yaml").read_text())
    job_file["job"]["name"] = "a job with a name of many words, demo in it " * 3
    (checkout / "long.yaml").write_text(yaml.safe_dump(job_file))
    subprocess.run(
        [".venv/bin/parity", "submit", "long.yaml"],
        cwd=checkout,
        env=environment,
        check=True,
        capture_output=True,
    )


def _workflow(repository: Path, environment: dict[str, str]) -> int:
    """The exit code of the copied workflow's gate, run in the repository of the page as for a pull
    request without a label.
    """
    _, revision, gate = yaml.safe_load(
        (repository / ".github" / "workflows" / "parity.yml").read_text()
    )["jobs"]["gate"]["steps"]
    github = environment | {"GITHUB_OUTPUT": "outputs.txt"}
    subprocess.run(["bash", "-e", "-c", revision["run"]], cwd=repository, env=github, check=True)
    tree = re.fullmatch(r"tree=([0-9a-f]{40})\n", (repository / "outputs.txt").read_text()).group(1)
    options = gate["with"]["options"].split("||")[-1].split("'")[1]
    assert options == "--timeout 20000", "a pull request that fails is to be stopped"
    words = ["parity", "gate", "parity.yaml", "--revision", tree, "--timeout", "120"]
    bin_ = repository.parent / "parity" / ".venv" / "bin"
    found = environment | {"PATH": f"{bin_}:{environment['PATH']}"}
    return subprocess.run(
        words, cwd=repository, env=found, check=False, capture_output=True, timeout=200
    ).returncode


def test_the_tour(checkout, environment):
    (demo,), *rest = (block.commands for block in run_by(PAGE, __file__))
    assert demo == "make demo"
    with subprocess.Popen(
        demo.split(),
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as serving:
        try:
            printed = []
            while not (printed and printed[-1].startswith("serving ")):
                line = serving.stdout.readline()
                assert line, "".join(printed)
                printed.append(line)
                if "submitted, job j" in line:  # so early that all else happens after it
                    # the demo starts it again, and says so
                    part_of(checkout / ".state", "valkey").kill()
            _submit_a_job_with_a_long_name(checkout, environment)
            # A model this small may have a gap that forks do not see, and then the plan asks for
            # --anyway.
            shown = {"parity gate": "parity gate --timeout 120", "--plan": "--plan --anyway"}
            lines = [
                reduce(lambda text, of: text.replace(*of), shown.items(), line)
                for block in rest
                for line in block
            ]
            results = _outputs(lines, checkout, environment)
            repository = checkout.parent / "my-model"
            stopped = _workflow(repository, environment)
        finally:
            os.killpg(serving.pid, signal.SIGINT)
            serving.wait(30)
    demo_output = "".join(printed)
    assert "demo.yaml: submitted, job j" in demo_output
    assert "redis ended with status -9" in demo_output
    assert "cannot predict an 8 B run" in demo_output
    assert f"Charts and curves: {environment['PARITY_URL']}/jobs/j" in demo_output
    reported_lines = [
        line
        for line in demo_output.splitlines()
        if line.startswith(("PASS: ", "FAIL: ", "INCONCLUSIVE: "))
    ]
    assert all(
        any(candidate in line for line in reported_lines) for candidate in ("nvfp4", "mxfp8")
    )
    codes = {line: code for line, code, _ in results}
    judged = {line for line in codes if line.startswith(("parity gate", "parity report"))}
    assert {codes[line] for line in judged} <= {0, 1, 3}, results
    assert {code for line, code in codes.items() if line not in judged} == {0}, results
    output = "".join(text for _, _, text in results)
    (plan,) = (text for line, _, text in results if line.startswith("parity why"))
    assert re.search(r"at step 120 of 1 run of the baseline", plan), "the demo keeps no checkpoint"
    assert "demo-fp8@1: fp8_current (engine emulated), 1 run of job j" in output
    first, again, nvfp4 = (text for line, _, text in results if line.startswith("parity gate"))
    assert "mxfp8" in first
    assert first == again
    assert "nvfp4" in nvfp4
    assert re.search(r"### parity: (pass|fail|inconclusive)", output)
    assert "reused: fp8_current replicate 0: trained as run" in output
    assert yaml.safe_load((repository / "parity.yaml").read_text())["baseline"] == {
        "name": "demo-fp8"
    }
    assert (repository / "gate.xml").read_text().startswith("<?xml")
    assert stopped == {line: code for line, code, _ in results if "--junit" in line}.popitem()[1], (
        "the workflow answers as the gate did"
    )
