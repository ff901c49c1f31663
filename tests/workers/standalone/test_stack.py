"""The whole stack as a process: up, a job over REST to its verdict, down; and what it refuses."""

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import yaml
from rich.console import Console
from sqlalchemy import select

from parity.client.rest import Client, ClientError
from server import tokens
from server.database.sessions import Database
from server.database.tables import Attempt, Run
from server.settings import CHECKOUT, Settings
from tests.workers.conftest import part_of
from workers.standalone import demo
from workers.standalone import stack as standalone


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(state: Path, port: int) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PARITY_")
    }
    return inherited | {
        "PARITY_STATE_DIR": str(state),
        "PARITY_PORT": str(port),
        "PARITY_FLUSH_SECONDS": "0.2",
        "NO_COLOR": "1",
    }


def _standalone(what: str, state: Path, port: int, **more: str) -> subprocess.Popen:
    if state.is_dir() and not (state / "jax-cache").exists():
        (state / "jax-cache").symlink_to(os.environ["JAX_COMPILATION_CACHE_DIR"])
    return subprocess.Popen(
        [sys.executable, "-m", "workers.standalone", what],
        cwd=CHECKOUT,
        env=_environment(state, port) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _until(happened) -> None:
    deadline = time.monotonic() + 600  # a busy machine compiles for minutes
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def refused(monkeypatch, capsys):
    """A function that starts a stack in this process, which must refuse it; returns what it
    prints.
    """
    for name in [name for name in os.environ if name.startswith("PARITY_")]:
        monkeypatch.delenv(name)

    def start(what: str, state: Path, port: object) -> str:
        monkeypatch.setattr(sys, "argv", ["standalone", what])
        monkeypatch.setenv("PARITY_STATE_DIR", str(state))
        monkeypatch.setenv("PARITY_PORT", str(port))
        assert standalone.main() == 2
        return " ".join(capsys.readouterr().err.split())  # without the terminal's line breaks

    return start


# A worker's death is noticed soon, and its run resumes soon.
SHORT = {
    "PARITY_LEASE_SECONDS": "3",
    "PARITY_HEARTBEAT_SECONDS": "0.5",
    "PARITY_RECONCILE_SECONDS": "0.5",
    "PARITY_CHECKPOINT_SECONDS": "0.2",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A stack in a folder of its own that asks for tokens: (state folder, port). This process and
    its children have one, as the README says: the first is made on the machine itself.
    """
    state, port = tmp_path_factory.mktemp("s"), _free_port()
    process = _standalone("serve", state, port, **SHORT, PARITY_REQUIRE_TOKENS="true")
    printed = []
    while not (printed and "parity is up" in printed[-1]):
        line = process.stdout.readline()
        assert line, "".join(printed)
        printed.append(line)
    (state / "start.txt").write_text("".join(printed))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as made:
        patch.setenv("PARITY_STATE_DIR", str(state))
        assert tokens.main(["create", "first", "--scope", "admin"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_TOKEN", made.getvalue().strip())
        yield state, port
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    # Nothing is left behind: the port is free and Redis took its socket along.
    assert not (state / "redis.sock").exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def _client(port: int) -> Client:
    """A client of the stack, with the token that its fixture made."""
    return Client(f"http://127.0.0.1:{port}", os.environ.get("PARITY_TOKEN"))


def _parity(*arguments: str, port: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "parity", *arguments, "--server", f"http://127.0.0.1:{port}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "80"},
    )


JOB = {
    "name": "journey",
    "layer_policy": "mlp_only",
    "model": {"d_model": 32, "n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "d_ff": 32},
    "data": {"sequence_length": 32, "batch_size": 2},
    "schedule": {"steps": 300, "warmup_steps": 10},
    "baseline": {"recipe": "bf16"},
    "candidates": [{"recipe": "fp8_current"}],
}


def test_a_gpu_that_the_worker_leaves_alone_is_named(tmp_path):
    settings = Settings(state_dir=tmp_path)
    assert standalone.unused_gpu(settings, tmp_path / "absent") is None
    (tmp_path / "gpus" / "0000:17:00.0").mkdir(parents=True)
    assert "PARITY_CAPABILITY=gpu (engine emulated)" in (
        standalone.unused_gpu(settings, tmp_path / "gpus") or ""
    )
    for capability in ("gpu", "sm90"):
        assert (
            standalone.unused_gpu(
                Settings(state_dir=tmp_path, capability=capability), tmp_path / "gpus"
            )
            is None
        )


def test_a_job_from_the_command_line_to_its_verdict(stack, tmp_path):
    _, port = stack
    job_file = tmp_path / "parity.yaml"
    job_file.write_text(yaml.safe_dump({"job": JOB, "policy": {"margin": "20 %"}}))
    submitted = _parity("submit", str(job_file), "--watch", port=port)
    assert submitted.returncode in (0, 1, 3), submitted.stderr
    assert "fp8_current" in submitted.stdout
    assert submitted.stdout.split()[1] in ("PASS", "FAIL", "INCONCLUSIVE")
    with _client(port) as client:
        (job,) = client.jobs()["items"]
        (verdict,) = client.verdict(job["id"])["verdicts"]
        assert verdict["window"]["n"] == 60
    reported = _parity("report", job["id"], "--markdown", port=port)
    assert reported.returncode == submitted.returncode
    assert "fp8_current" in reported.stdout
    assert job["id"] in _parity("status", port=port).stdout


def test_bad_input_is_refused_before_anything_happens(stack, tmp_path):
    _, port = stack
    job_file = tmp_path / "parity.yaml"
    job_file.write_text(yaml.safe_dump({"job": JOB | {"stepz": 1}, "policy": {"margin": "1 %"}}))
    refused = _parity("submit", str(job_file), port=port)
    assert refused.returncode == 2
    assert "stepz" in refused.stderr
    with _client(port) as client, pytest.raises(ClientError, match="job 'j-none' does not exist"):
        client.job("j-none")


def test_a_second_stack_on_the_same_folder_is_refused(stack, refused):
    state, _ = stack
    assert "already uses" in refused("demo", state, _free_port())


def test_a_taken_port_is_refused(stack, tmp_path, refused):
    _, port = stack
    assert f"port {port}" in refused("serve", tmp_path, port)
    assert not (tmp_path / "parity.db").exists()


def test_a_folder_too_deep_for_a_socket_is_refused(tmp_path, refused):
    assert "too long for a unix socket" in refused("serve", tmp_path / ("x" * 100), _free_port())


def test_no_server_is_infrastructure(tmp_path):
    assert _parity("status", port=_free_port()).returncode == 4


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 * 2**20))
    with (
        pytest.raises(standalone.StackRefusedError, match="10 MiB free, expected at least 200 MiB"),
        standalone.running(Settings(state_dir=tmp_path), Console()),
    ):
        pytest.fail("the stack started on a full disk")
    assert not (tmp_path / "parity.db").exists()


def test_a_demo_whose_data_is_missing_says_so(stack, tmp_path, capsys):
    _, port = stack
    data = {"source": "text", "path": "/no/such/corpus", "sequence_length": 32, "batch_size": 2}
    job_file = tmp_path / "demo.yaml"
    job_file.write_text(yaml.safe_dump({"job": JOB | {"data": data}, "policy": {"margin": "20 %"}}))
    assert not demo.run(
        f"http://127.0.0.1:{port}",
        Console(stderr=True, width=80),
        lambda: None,
        lambda _job, _known: (),
        job_file,
    )
    assert "/no/such/corpus" in capsys.readouterr().err


def test_ctrl_c_ends_a_demo_that_is_starting_and_nothing_is_left(tmp_path):
    process = _standalone("demo", tmp_path, _free_port())
    _until((tmp_path / "parity.db").exists)  # the migrations run, and Redis does already
    parts = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 130, out
    assert "stopped" in out
    assert not (tmp_path / "redis.sock").exists()
    assert psutil.wait_procs(parts, timeout=0)[1] == []


def test_a_ctrl_c_during_the_migrations_waits_for_their_end():
    done = []

    @standalone.defer_ctrl_c()
    def migrate():
        os.kill(os.getpid(), signal.SIGINT)
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        migrate()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_stack_in_the_background_of_a_shell_goes_on_ignoring_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with standalone.defer_ctrl_c():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_killed_worker_is_started_again_and_resumes_its_run_until_it_is_cancelled(stack):
    state, port = stack
    with closing(Database(Settings(state_dir=state).database)) as database, _client(port) as client:
        job_id = client.submit(
            JOB | {"schedule": {"steps": 500_000}}, {"margin": "1 %"}, key="long"
        )["id"]

        def resumed():
            with database.read() as session:
                return session.scalar(
                    select(Attempt.first_step)
                    .join(Run)
                    .where(Run.job_id == job_id, Attempt.attempt_number == 2)
                )

        def can_resume():
            with database.read() as session:
                steps = {
                    run.id: run.steps_done
                    for run in session.scalars(select(Run).where(Run.job_id == job_id))
                }
            checkpoints = [
                path.parent for path in (state / "checkpoints").glob("*/step-*/complete.json")
            ]
            return all(
                any(
                    path.parent.name == run and 0 < int(path.name.removeprefix("step-")) <= done
                    for path in checkpoints
                )
                for run, done in steps.items()
            )

        _until(can_resume)
        worker = part_of(state, "celery")
        trainers = [
            child for child in worker.children(recursive=True) if "workers.child" in child.cmdline()
        ]
        assert len(trainers) == 2
        for trainer in trainers:  # which then cannot react to the end of its worker
            trainer.suspend()
        worker.kill()
        _until(lambda: resumed() is not None)
        assert client.job(job_id)["share_done"] > 0
        assert _parity("cancel", job_id, port=port).returncode == 0
        assert client.job(job_id)["status"] == "cancelled"
    assert resumed() > 0
    assert psutil.wait_procs(trainers, timeout=600)[1] == []


@pytest.mark.parametrize("part", ["valkey", "uvicorn"])
def test_a_killed_part_is_started_again(stack, part):
    state, port = stack
    killed = part_of(state, part)
    killed.kill()
    _until(lambda: part_of(state, part) not in (None, killed))
    with _client(port) as client:
        _until(client.ready)


def test_a_stack_that_asks_for_tokens_comes_up(stack):
    """As the README says: the first token is made on the machine itself."""
    _, port = stack
    with _client(port) as client:
        assert isinstance(client.jobs()["items"], list)
    with (
        Client(f"http://127.0.0.1:{port}") as stranger,
        pytest.raises(ClientError, match="PARITY_TOKEN"),
    ):
        stranger.jobs()


def test_a_start_says_what_it_waits_for_and_how_long_each_step_took(stack):
    state, port = stack
    lines = (state / "start.txt").read_text().splitlines()
    assert lines[0].startswith(f"starting parity in {state}")
    steps = [line.partition(", for ")[0] for line in lines if ": waiting until " in line]
    assert [line for number, line in enumerate(steps) if line not in steps[:number]] == [
        "broker: waiting until it answers",
        "migrations: waiting until they are applied",
        f"server: waiting until it answers at http://127.0.0.1:{port}",
        "worker: waiting until it has registered",
    ]
    ready = [line.partition(":")[0] for line in lines if ": ready after " in line]
    assert ready == ["broker", "migrations", "server", "worker"]


def test_a_folder_or_an_address_that_can_not_be_is_refused_by_its_setting(
    tmp_path, refused, monkeypatch
):
    file = tmp_path / "file"
    file.write_text("")
    assert f"PARITY_STATE_DIR is '{file}'; expected a folder" in refused(
        "serve", file, _free_port()
    )
    monkeypatch.setenv("PARITY_HOST", "192.0.2.1")  # of no machine (RFC 5737)
    assert "set PARITY_HOST to an address of this machine" in refused(
        "serve", tmp_path / "state", _free_port()
    )


def test_a_setting_that_can_not_be_is_refused_by_name(tmp_path, refused):
    assert "PARITY_PORT is 'abc'" in refused("serve", tmp_path, "abc")
