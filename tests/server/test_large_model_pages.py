"""The pages of the two large models, as far as a machine without GPUs can follow them: settings,
script, sizes and times, and the job that is tried first.
"""

import json
import os
import re
import shutil
import subprocess
import time

import pytest
import yaml

from server.database.tables import Worker
from server.settings import CHECKOUT, Settings
from tests.compose import PASSWORDS, services
from tests.documentation import run_by
from training.spec import SPEC_VERSION
from workers.slots import environment, slots

EIGHT, LARGE = "docs/llama-8b.md", "docs/llama-405b.md"
# page, job file, nodes
MODELS = [
    (EIGHT, "examples/llama3-8b-nvfp4.yaml", [8]),
    (LARGE, "examples/llama3-405b-nvfp4.yaml", [8] * 16),
]
SCRIPT = next(
    block.text for block in run_by(LARGE, __file__, "sh") if block.text.startswith("#!/bin/bash")
)
GIB_OF_JAX = 134  # of a B200's 178


def _settings(page):
    (block,) = run_by(page, __file__, "ini")
    return dict(line.split("=", 1) for line in block.text.splitlines())


def _gpu_worker():
    """What compose gives the GPU worker with the lines of the page in `.env`."""
    return services(PASSWORDS | _settings(EIGHT))["worker-gpu"]


def test_compose_passes_every_line_of_the_small_page_on():
    worker = _gpu_worker()
    assert worker["environment"]["PARITY_CAPABILITY"] == "sm100"
    assert {"/data:/data:ro", "/checkpoints:/checkpoints"} <= set(worker["volumes"])
    assert worker["environment"]["PARITY_CHECKPOINT_DIR"] == "/checkpoints"


@pytest.mark.parametrize(("is_wrapped", "gpus"), [(True, None), (False, "0")])
def test_a_run_sees_all_gpus_of_the_node_under_the_wrapper_of_the_page_alone(
    monkeypatch, is_wrapped, gpus
):
    passed = _gpu_worker()["environment"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("PARITY_CAPABILITY", "PARITY_SLOTS", *(["PARITY_WRAPPER"] * is_wrapped)):
        monkeypatch.setenv(name, passed[name])
    settings = Settings()
    (slot,) = slots(settings)
    assert environment(settings, slot, {}).get("CUDA_VISIBLE_DEVICES") == gpus


def test_the_wrapper_of_the_small_page_starts_a_command_unchanged():
    wrapper = _gpu_worker()["environment"]["PARITY_WRAPPER"]
    ended = subprocess.run([wrapper, "cat"], input="x", capture_output=True, text=True, check=True)
    assert ended.stdout == "x"


@pytest.fixture
def started(tmp_path):
    """The environment and the arguments with which the script of the large page starts its worker;
    `scontrol` and the worker's Python are stand-ins.
    """
    addresses = tmp_path / "parity.env"
    addresses.write_text("PARITY_DATABASE_URL=sqlite:///x\nPARITY_REDIS_URL=redis://x\n")
    told = tmp_path / "told.json"
    programs = {
        tmp_path / "bin" / "scontrol": "#!/bin/sh\necho node-07\necho node-08\n",
        tmp_path / ".venv" / "bin" / "python": (
            f"#!{shutil.which('python3')}\nimport json, os, sys\n"
            f"json.dump([dict(os.environ), sys.argv[1:]], open({str(told)!r}, 'w'))\n"
        ),
    }
    for path, text in programs.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    script = tmp_path / "worker.sh"
    script.write_text(SCRIPT.replace("/shared/parity.env", str(addresses)))
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "SLURM_JOB_NODELIST": "node-[07-22]"}
    subprocess.run(["bash", "-eu", script], cwd=tmp_path, env=given, check=True)
    return json.loads(told.read_text())


def test_the_script_starts_a_worker_whose_runs_have_a_task_for_each_device(started, monkeypatch):
    variables, arguments = started
    for name, value in variables.items():
        if name.startswith("PARITY_"):
            monkeypatch.setenv(name, value)
    settings = Settings()
    (slot,) = slots(settings)
    program, *words = settings.wrapper
    tasks = next(int(word.partition("=")[2]) for word in words if word.startswith("--ntasks="))
    devices = yaml.safe_load((CHECKOUT / MODELS[1][1]).read_text())["job"]["devices"]
    nodes, per_node = map(int, re.search(r"--nodes=(\d+) --ntasks-per-node=(\d+)", SCRIPT).groups())
    assert (program, tasks, nodes * per_node) == ("srun", devices, devices)
    assert [per_node] * nodes == MODELS[1][2]
    assert (settings.capability, settings.slots, str(settings.data_roots[0])) == (
        "sm100",
        1,
        "/data",
    )
    assert (settings.database_url, settings.redis_url) == ("sqlite:///x", "redis://x")
    passed = environment(settings, slot, variables)
    assert passed["PARITY_COORDINATOR"] == "node-07:8476"
    assert passed["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.9"
    assert passed["PARITY_MAXTEXT_PYTHON"] == "/usr/bin/python3"
    assert arguments[:4] == ["-m", "celery", "-A", "workers.app"]


def test_each_variable_of_the_script_is_a_setting():
    listed = (CHECKOUT / "docs" / "settings.md").read_text()
    names = set(re.findall(r"\bPARITY_\w+(?==)", SCRIPT))
    assert len(names) > 7
    assert {name for name in names if f"`{name}`" not in listed} == set()


def test_the_nodes_of_the_large_page_reach_what_compose_publishes():
    variables = _settings(LARGE)
    assert all((CHECKOUT / name).is_file() for name in variables["COMPOSE_FILE"].split(":"))
    page = (CHECKOUT / LARGE).read_text()
    address = variables["PARITY_PRIVATE_ADDRESS"]
    assert f"parity_worker:PASSWORD@{address}/parity" in page
    assert f"@{address}:6379/0" in page


@pytest.fixture
def plan(api, database):
    """A function that plans a job on a server whose worker stands for the page's nodes."""

    def ask(content, nodes):
        device = {
            "device_class": "gpu:sm100",
            "threads_per_run": 1,
            "spec_version": SPEC_VERSION,
            "devices": sum(nodes),
            "processes": len(nodes),
            "slices": nodes,
            "memory_bytes": GIB_OF_JAX * 2**30,
        }
        now = time.time()
        with database.write() as session:
            worker = Worker(id="w-b200", name="b200", capability="sm100", slots=1, device=device)
            worker.started_at = worker.heartbeat_at = now
            session.add(worker)
        answer = api.post("/api/v1/jobs:plan", json=content)
        assert answer.status_code == 200, answer.text
        assert answer.json()["refused"] is None
        return answer.json()["needs"]

    return ask


@pytest.mark.parametrize(("page", "job", "nodes"), MODELS)
def test_sizes_and_times_are_those_of_the_plan(plan, page, job, nodes):
    needs = " ".join(plan(yaml.safe_load((CHECKOUT / job).read_text()), nodes)).split()
    text = (CHECKOUT / page).read_text()
    shown = text.partition("<!-- plan: ")[2].partition("```\n")[2].partition("```")[0]
    for sentence in re.split(r"(?<=\.)\n(?=[A-Z\d])", shown.strip()):
        assert " ".join(sentence.split()) in " ".join(needs)
    estimates = text.partition("| --- |")[2].partition("\n\n")[0]
    for number in re.findall(r"[\d,.]*\d (?:GB|TB|h|device hours|B tokens)\b", estimates):
        assert number in shown.replace("\n", " "), number


@pytest.mark.parametrize(("page", "job", "nodes"), MODELS)
def test_the_trial_is_the_same_job_with_twenty_steps(plan, tmp_path, page, job, nodes):
    (command,) = (
        block.text for block in run_by(page, __file__, "sh") if block.text.startswith("sed ")
    )
    shutil.copytree(CHECKOUT / "examples", tmp_path / "examples", ignore=lambda *_: ["public"])
    subprocess.run(["bash", "-eu", "-c", command], cwd=tmp_path, check=True)
    trial = yaml.safe_load((tmp_path / "trial.yaml").read_text())
    whole = yaml.safe_load((CHECKOUT / job).read_text())
    schedule = whole["job"]["schedule"] | {"steps": 20, "warmup_steps": 2}
    name = re.sub("nvfp4$", "trial", whole["job"]["name"])
    assert trial == whole | {"job": whole["job"] | {"schedule": schedule, "name": name}}
    assert plan(trial, nodes)
