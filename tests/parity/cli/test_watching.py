"""Watching a job: who asked too often waits as long as the server says, and not beyond the time that the caller has."""

import time

import pytest

from parity.cli import watching
from parity.client.rest import ClientError


@pytest.fixture
def slept(monkeypatch):
    """The pauses that would have been made; they pass at once, on a clock of their own."""
    made = []
    monkeypatch.setattr(time, "monotonic", lambda: sum(made))
    monkeypatch.setattr(time, "sleep", made.append)
    return made


class _Server:
    def __init__(self, *answers):
        self._answers = list(answers)

    def job(self, _job_id):
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"status": answer}


def test_a_refusal_for_too_many_requests_is_waited_out(slept):
    server = _Server("running", ClientError(429, "too many", retry_after=37.0), "concluded")
    assert [one["status"] for one in watching._documents(server, "j", None, lambda: None)] == ["running", "concluded"]
    assert slept == [1.0, 37.0]


def test_no_pause_outlasts_the_callers_time(slept):
    server = _Server(ClientError(429, "too many", retry_after=37.0), "running")
    with pytest.raises(watching.WatchTimeoutError):
        list(watching._documents(server, "j", 4.0, lambda: None))
    assert slept == [4.0]
