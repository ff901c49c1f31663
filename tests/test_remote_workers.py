"""Workers on other machines, as docs/operate.md attaches them: what its lines publish, forward and
give to a worker fits together.
"""

import re
import shlex
import shutil
import subprocess

import pytest
from sqlalchemy import make_url

from server.settings import CHECKOUT
from tests.compose import PASSWORDS, services
from tests.documentation import run_by

SERVER, WORKER = (
    dict(line.split("=", 1) for line in block.text.splitlines())
    for block in run_by("docs/operate.md", __file__, "ini")
)
((TUNNEL,),) = (block.commands for block in run_by("docs/operate.md", __file__))


def _published() -> set[str]:
    """The container's ports that the file of the server's `.env` publishes at its address."""
    files = SERVER["COMPOSE_FILE"].split(":")
    assert files[0] == "docker-compose.yml"
    assert all((CHECKOUT / file).is_file() for file in files)
    variables = PASSWORDS | SERVER
    found = services(variables, files[1])
    ports = {port for service in found.values() for port in service["ports"]}
    assert all(port.startswith(f"{SERVER['PARITY_PRIVATE_ADDRESS']}:") for port in ports)
    return {port.rsplit(":", 1)[1] for port in ports}


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_the_tunnel_forwards_what_is_published():
    """ssh itself reads the command, and prints what it would do."""
    words = shlex.split(TUNNEL)
    read = subprocess.run(
        [words[0], "-G", *words[1:]], check=True, capture_output=True, text=True
    ).stdout
    forwards = re.findall(r"^localforward \[?([\d.]+)\]?:(\d+) \[?([\d.]+)\]?:(\d+)$", read, re.M)
    assert {port for *_, port in forwards} == _published()
    assert all(near == far for _, near, _, far in forwards)
    assert {address for address, *_ in forwards} == {"172.17.0.1"}  # of Docker's bridge, no other
    assert "exitonforwardfailure yes" in read


@pytest.mark.parametrize("container", ["worker-cpu", "worker-gpu"])
def test_a_worker_elsewhere_has_its_own_role_and_no_other_password(container):
    worker = services(WORKER)[container]
    environment = worker["environment"]
    assert environment["PARITY_DATABASE_URL"] == WORKER["PARITY_WORKER_DATABASE_URL"]
    assert environment["PARITY_REDIS_URL"] == WORKER["PARITY_REDIS_URL"]
    assert "unused" not in str(worker)
    database, broker = (
        make_url(environment[name]) for name in ("PARITY_DATABASE_URL", "PARITY_REDIS_URL")
    )
    assert database.username == "parity_worker"
    assert {str(database.port), str(broker.port)} == _published()
    assert {database.host, broker.host} == {"host.docker.internal"}
    assert "host.docker.internal:host-gateway" in worker["extra_hosts"]
