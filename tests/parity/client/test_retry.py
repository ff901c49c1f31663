"""Trying again: what passes, how long a pause is, and who ends the tries."""

import contextlib
import math
import socket
import time

import pytest

from parity.cli.jobs import watching
from parity.client import recorder, rest, retry
from parity.client.rest import Client, ClientError, UnreachableError
from parity.client.retry import Pauses, is_transient, may_be_accepted_later

PAUSES = Pauses(first_seconds=2.0, longest_seconds=2.0, longest_retry_after_seconds=60.0)


class _StoppedError(Exception):
    pass


class _Server:
    """Raises its errors in turn and answers after them."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def send(self):
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that would have been made; they pass at once, on a clock of their own."""
    made = []
    monkeypatch.setattr(time, "monotonic", lambda: sum(made))
    return made


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (UnreachableError("away"), 2.0),
        (ClientError(503, "away"), 2.0),
        (ClientError(429, "many", retry_after=30.0), 30.0),
        (ClientError(503, "away", retry_after=1.0), 2.0),
        (ClientError(429, "many", retry_after=10**6), 60.0),
    ],
)
def test_a_pause_is_at_least_ours_and_at_most_a_minute(error, pause):
    assert PAUSES.after(0, error) == pause
    least = pause if pause > 2.0 else 0.5
    assert least <= watching.PAUSES.after(7, error) <= max(1.5 * pause, 1.5)


def test_pauses_double_up_to_the_longest():
    doubling = Pauses(first_seconds=0.5, longest_seconds=60.0)
    assert [doubling.after(failures, OSError()) for failures in (0, 1, 2, 6, 7, 10**6)] == [
        0.5,
        1.0,
        2.0,
        32.0,
        60.0,
        60.0,
    ]


def test_a_trainers_pauses_are_spread_and_obey_the_server():
    drawn = [recorder.PAUSES.after(1, OSError()) for _ in range(100)]
    assert len(set(drawn)) > 50
    assert all(0.5 <= pause <= 1.5 for pause in drawn)
    drawn = [
        recorder.PAUSES.after(0, ClientError(503, "away", retry_after=3600.0)) for _ in range(100)
    ]
    assert len(set(drawn)) > 50
    assert all(3600.0 <= pause <= 5400.0 for pause in drawn)


def test_errors_that_pass_are_noted_and_waited_out(pauses):
    server, noted = _Server(UnreachableError("away"), ClientError(503, "away", retry_after=5.0)), []
    answer = retry.retry(
        server.send,
        pauses=PAUSES,
        is_retryable=is_transient,
        wait=pauses.append,
        on_error=noted.append,
    )
    assert answer == "answer"
    assert pauses == [2.0, 5.0]
    assert [type(error) for error in noted] == [UnreachableError, ClientError]


def test_an_error_that_cannot_pass_is_raised_at_once(pauses):
    with pytest.raises(ClientError):
        retry.retry(
            _Server(ClientError(422, "no")).send,
            pauses=PAUSES,
            is_retryable=is_transient,
            wait=pauses.append,
        )
    assert pauses == []


def test_patience_ends_the_tries(pauses):
    server = _Server(*[UnreachableError("away")] * 100)
    with pytest.raises(UnreachableError):
        retry.retry(
            server.send,
            pauses=PAUSES,
            is_retryable=is_transient,
            wait=pauses.append,
            patience_seconds=5.0,
        )
    assert pauses == [2.0, 2.0, 2.0]


def test_whoever_waits_can_end_the_tries():
    def stop(_seconds):
        raise _StoppedError

    with pytest.raises(_StoppedError):
        retry.retry(
            _Server(OSError()).send,
            pauses=PAUSES,
            is_retryable=may_be_accepted_later,
            wait=stop,
            patience_seconds=math.inf,
        )


@pytest.mark.parametrize(
    ("error", "transient", "later"),
    [
        (UnreachableError("away"), True, True),
        (ClientError(503, "away", "database-away"), True, True),
        (ClientError(429, "many", "too-many"), True, True),
        (ClientError(401, "token", "unauthorized"), False, True),
        (ClientError(403, "token", "forbidden"), False, True),
        (ClientError(404, "a proxy's page"), False, True),
        (ClientError(409, "superseded", "stale-attempt"), False, False),
        (ClientError(422, "not like that", "invalid"), False, False),
        (ClientError(501, "not here", "not-implemented"), True, False),
        (OSError("disk full"), False, True),
        (FileNotFoundError("sent meanwhile"), False, False),
    ],
)
def test_which_errors_pass(error, transient, later):
    assert (is_transient(error), may_be_accepted_later(error)) == (transient, later)


def test_a_server_that_takes_no_connection_is_given_up_soon(monkeypatch):
    """Its queue of connections is full, so that packets are dropped, as by a firewall."""
    monkeypatch.setattr(rest, "_CONNECT_SECONDS", 0.3)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with pytest.raises(UnreachableError, match=r"no connection within 0\.3 s"):
            Client(f"http://127.0.0.1:{server.getsockname()[1]}").workers()


def test_a_timeout_names_the_seconds_of_its_call(monkeypatch):
    monkeypatch.setattr(rest, "_PLAN_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}") as client,
        pytest.raises(UnreachableError, match=r"timed out after 0\.2 s"),
    ):
        client.plan({}, {})
