"""A real Slurm cluster of one node in a temporary folder: munged, slurmctld and slurmd, started by
hand, without systemd.

`make test-slurm` runs these tests; every other run of the tests skips them. They need Debian's
packages slurm-wlm and munge. The node has two cores and two GPUs, device files without a GPU behind
them, so that Slurm can allot and constrain them.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol")

_CONF = """
ClusterName=parity
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# Without control groups, which a container may not have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1
PartitionName=patient Nodes=ALL State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF
"""  # noqa: E501


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := _missing():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> str | None:
    """Why there is no cluster, or None."""
    if os.environ.get("PARITY_TEST_SLURM") != "1":
        return "`make test-slurm` runs these"
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return (
            f"Slurm is not installed: {', '.join(missing)} not found (on Debian: apt-get install "
            "slurm-wlm munge)"
        )
    return "slurmd needs two cores" if (os.cpu_count() or 1) < 2 else None


def _path() -> str:
    """Where the programs are; daemons are in sbin."""
    return os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running cluster; `folder` has its logs, `daemons` the processes of munged, slurmctld and
    slurmd.
    """

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]]

    def call(self, *command: str, check: bool = True) -> str:
        """The output of a Slurm command, both streams."""
        ended = subprocess.run(
            command,
            env=self.environment,
            check=False,
            text=True,
            timeout=120,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert not check or ended.returncode == 0, f"{command}: {ended.stdout}\n{self.logs()}"
        return ended.stdout

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, *daemon: str) -> None:
        """Start a daemon, anew if it was killed."""
        self.daemons[daemon[0]] = subprocess.Popen(
            daemon,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """Kill a daemon, and the processes that it has of ours, without a warning."""
        self.daemons[name].kill()
        self.daemons[name].wait(30)

    def is_up(self) -> bool:
        """Whether the controller answers and the node takes jobs."""
        return any(
            state in self.call("sinfo", "--noheader", "--format=%t", check=False)
            for state in ("idle", "mix", "alloc")
        )

    def state(self, job: str) -> str:
        """The state of a batch job, such as RUNNING."""
        fields = dict(
            field.partition("=")[::2] for field in self.call("scontrol", "show", "job", job).split()
        )
        return fields["JobState"]

    def worker(self, job: str) -> psutil.Process:
        """The process of a batch job's worker: the script ends in `exec`."""
        listed = [
            int(line.split()[0])
            for line in self.call("scontrol", "listpids", job, check=False).splitlines()[1:]
        ]
        (worker,) = (
            process for process in map(psutil.Process, listed) if "celery" in process.cmdline()
        )
        return worker

    def logs(self) -> str:
        return "\n".join(
            path.read_text(errors="replace") for path in sorted(self.folder.glob("slurm*.log"))
        )


def wait_until(
    ready: Callable[[], object], seconds: float = 120.0, what: Callable[[], object] = str
) -> None:
    """Wait until `ready` is true; fails with `what` otherwise."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster; one for all tests."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o400)
        for part in ("controller", "node"):
            (folder / part).mkdir()
        for number in range(2):
            # A device file needs the right to make one; a plain file is allotted just the same.
            device = folder / f"gpu{number}"
            if subprocess.run(
                ["mknod", str(device), "c", "1", "3"], check=False, capture_output=True
            ).returncode:
                device.touch()
        ports = free_ports(2)
        conf = _CONF.format(
            folder=folder,
            user=pwd.getpwuid(os.getuid()).pw_name,
            host=socket.gethostname().partition(".")[0],
            controller_port=ports[0],
            node_port=ports[1],
        )
        (folder / "slurm.conf").write_text(conf)
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
        cluster = Cluster(folder=folder, daemons={})
        munge = [
            f"--{option}={folder}/munge.{option.removesuffix('-file')}"
            for option in ("key-file", "socket", "pid-file", "log-file", "seed-file")
        ]
        daemons = [
            ["munged", "--foreground", *munge],
            ["slurmctld", "-D"],
            ["slurmd", "-D", "-N", "localhost"],
        ]
        try:
            for daemon in daemons:
                cluster.start(*daemon)
            wait_until(cluster.is_up, 60, cluster.logs)
            yield cluster
        finally:
            cluster.call("scancel", "--user", pwd.getpwuid(os.getuid()).pw_name, check=False)
            for process in reversed(cluster.daemons.values()):
                process.terminate()
                process.wait(30)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@pytest.fixture
def batch(cluster: Cluster, settings, request) -> Callable[..., str]:
    """A function that submits the batch script of docs/operate.md, made to fit this cluster, and
    returns the batch job's id.
    """
    from server.settings import CHECKOUT

    script = (
        (CHECKOUT / "docs" / "operate.md")
        .read_text()
        .partition("**Slurm**")[2]
        .partition("```sh\n")[2]
        .partition("```")[0]
    )

    def submit(*options: str, tasks: int = 2) -> str:
        fitting = {
            "--nodes=2 --ntasks-per-node=8 --gpus-per-task=1": (
                f"--nodes=1 --ntasks-per-node={tasks} --gpus-per-task=1"
            ),
            "PARITY_CAPABILITY=sm100": "PARITY_CAPABILITY=cpu",
            "/shared/parity": str(settings.state_dir),
            ":8476": f":{free_ports(1)[0]}",
            "--ntasks=16": f"--ntasks={tasks}",
            ".venv/bin/python": sys.executable,
        }
        text = script
        for theirs, ours in fitting.items():
            assert theirs in text, f"docs/operate.md's batch script no longer has {theirs}"
            text = text.replace(theirs, ours)
        path = settings.state_dir / "worker.sh"
        path.write_text(text)
        names = ("database_url", "redis_url", "lease_seconds", "flush_seconds", "heartbeat_seconds")
        values = {f"PARITY_{name.upper()}": str(getattr(settings, name)) for name in names}
        values |= {
            "PARITY_DATABASE_URL": settings.database,
            "PARITY_CHECKPOINT_SECONDS": "0.3",
            "PARITY_RECONCILE_SECONDS": "0.5",
            "PARITY_DATA_ROOTS": json.dumps([str(settings.state_dir)]),
        }
        values |= {"PARITY_LOG": "text"}
        command = [
            "sbatch",
            "--parsable",
            f"--chdir={CHECKOUT}",
            f"--output={settings.state_dir}/worker-%j.log",
            *options,
            str(path),
        ]
        ended = subprocess.run(
            command,
            env=cluster.environment | values,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        job = ended.stdout.strip()
        request.addfinalizer(lambda: _end(cluster, job))
        return job

    return submit


def _end(cluster: Cluster, job: str) -> None:
    cluster.call("scancel", job, check=False)
    wait_until(
        lambda: cluster.state(job) not in ("RUNNING", "PENDING", "COMPLETING"), what=cluster.logs
    )
