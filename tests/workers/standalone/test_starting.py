"""A start waits as long as something moves, says what it waits for and since when, and ends with
the end of the log.
"""

import io
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console
from sqlalchemy.exc import OperationalError

from parity.client.rest import Client
from server.database.sessions import Database
from workers.standalone.processes import StackPart, StartError
from workers.standalone.stack import _server_lacks, wait_for_database
from workers.standalone.starting import Missing, StartStep, step, wait_until_ready

IDLE = "import sys; print('begun', flush=True); sys.stdin.read()"
# Computes for a while at each line that it gets, in silence.
COMPUTE = """
import sys, time
for line in sys.stdin:
    while time.process_time() < 0.5 * int(line):
        pass
    open(sys.argv[1], "w").write(line)
"""
# The same in one short child after another.
CHILDREN = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.5: pass"
for line in sys.stdin:
    subprocess.run([sys.executable, "-S", "-c", burn])
    open(sys.argv[1], "w").write(line)
"""


@pytest.fixture
def part_of(tmp_path):
    """A function that starts Python code as a part of the stack, with a pipe as its input."""
    parts = []

    def start(code: str) -> StackPart:
        log = tmp_path / f"part-{len(parts)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path / "done")],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        parts.append(StackPart(name="part", process=process, log=log))
        return parts[-1]

    yield start
    for part in parts:
        part.process.stdin.close()
        part.process.kill()
        part.process.wait()


def _wait(part, missing, **options) -> StartStep:
    """Wait by a clock on which 30 s pass between two looks; gives up after 60."""
    shown = StartStep("part", "it begins", 0.0)
    clock = itertools.count(0, 30).__next__
    wait_until_ready(part, missing, shown, still_seconds=60.0, clock=clock, **options)
    return shown


def test_a_part_whose_log_grows_is_waited_for(part_of):
    part, looks = part_of(IDLE), itertools.count()

    def missing():
        look = next(looks)
        if look % 2:  # pauses for less than a minute
            with part.log.open("a") as log:
                log.write("compiling\n")
        return Missing(what="it compiles") if look < 20 else None

    assert _wait(part, missing).what == "it compiles"
    assert next(looks) == 21


@pytest.mark.parametrize("code", [COMPUTE, CHILDREN], ids=["itself", "children"])
def test_a_silent_part_that_computes_is_waited_for(part_of, tmp_path, code):
    part, looks = part_of(code), itertools.count(1)

    def missing():
        look = next(looks)
        part.process.stdin.write(f"{look}\n".encode())
        part.process.stdin.flush()
        while not (tmp_path / "done").exists() or (tmp_path / "done").read_text() != f"{look}\n":
            assert part.end_reason() is None
            time.sleep(0.01)
        return Missing(what="it computes") if look < 6 else None

    _wait(part, missing)
    assert part.log.stat().st_size == 0


def test_a_part_that_neither_computes_nor_writes_ends_the_start_with_its_log(part_of):
    part = part_of(IDLE)
    while part.log.stat().st_size == 0:
        time.sleep(0.01)
    with pytest.raises(StartError) as given_up:
        _wait(part, lambda: Missing(what="it has registered"))
    first, *log = str(given_up.value).splitlines()
    assert first.startswith("part is not ready: waiting until it has registered; for 60 s it")
    assert log == ["begun"]


def test_what_a_part_does_while_it_is_asked_is_no_progress(part_of):
    part, looks = part_of(IDLE), itertools.count()

    def missing(number):
        assert part.log.stat().st_size < 5000, "it is waited for without an end"
        with part.log.open("a") as log:
            log.write("GET /readyz 503\n")
        return Missing(what=f"it is ready: migration {number}", answers=True)

    with pytest.raises(StartError, match="ready: migration 1; for 60 s that did not change"):
        _wait(part, lambda: missing(1))
    # its honest twin: what it lacks changes
    _wait(part, lambda: missing(look) if (look := next(looks)) < 20 else None)


@pytest.mark.parametrize("is_other", [False, True])
def test_a_part_that_has_ended_ends_the_start_at_once(part_of, is_other):
    idle, dead = part_of(IDLE), part_of("print('no such library'); raise SystemExit(3)")
    dead.process.wait()
    awaited, others = (idle, [dead]) if is_other else (dead, [])
    with pytest.raises(StartError) as ended:
        _wait(awaited, lambda: Missing(what="it answers", answers=True), others=others)
    assert str(ended.value).startswith("part ended with status 3; the end of")
    assert str(ended.value).endswith("no such library")


def test_the_end_of_a_long_log_is_shown(part_of):
    part = part_of(IDLE)
    part.log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert part.log_end().splitlines() == [f"line {number}" for number in range(99_985, 100_000)]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_step_is_shown_while_it_lasts_and_when_it_is_done(is_terminal):
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, width=80)
    with step(console, "worker", "it begins", repeat_seconds=0.01) as shown:
        shown.what = "it has registered"
        while "worker: waiting until it has registered, for" not in text.getvalue():
            time.sleep(0.01)
    assert "worker: waiting until it begins" in text.getvalue()
    assert "worker: ready after" in text.getvalue()


def test_a_step_that_fails_is_not_ready():
    text = io.StringIO()
    with pytest.raises(StartError), step(Console(file=text), "worker", "it has registered"):
        raise StartError
    assert text.getvalue() == "worker: waiting until it has registered\n"


def _refuse(server: socket.socket, answers) -> None:
    """Answer each connection as PostgreSQL does that refuses it: (SQLSTATE, message)."""
    for state, message in answers:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            body = f"SFATAL\0VFATAL\0C{state}\0M{message}\0\0".encode()
            connection.sendall(b"E" + (len(body) + 4).to_bytes(4, "big") + body)


def test_a_database_that_is_starting_is_waited_for_and_a_wrong_one_is_not():
    starting = ("57P03", "the database system is starting up")
    wrong = ("3D000", 'database "parity" does not exist')
    shown = StartStep("database", "it answers", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql+psycopg://me@127.0.0.1:{server.getsockname()[1]}/parity?sslmode=disable"
        answers = [starting, starting, wrong]
        threading.Thread(target=_refuse, args=(server, answers), daemon=True).start()
        with closing(Database(url)) as database, pytest.raises(OperationalError) as refused:
            wait_for_database(database, shown)
    assert "does not exist" in str(refused.value)
    assert shown.what == "it answers (the database system is starting up)"


def test_what_a_server_lacks_is_its_own_answer():
    class Unready(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"title": "Unavailable", "detail": "the database is away"}).encode()
            self.send_response(503)
            self.send_header("Content-Type", "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Unready) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client(url) as client:
            lack = _server_lacks(client)
        server.shutdown()
    assert lack is not None
    assert lack.answers
    assert "the database is away" in lack.what
    with Client(url) as client:
        assert _server_lacks(client) == Missing(what=f"it answers at {url}")
