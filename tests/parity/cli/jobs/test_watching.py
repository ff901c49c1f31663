"""Watching a job: who asked too often waits as long as the server says, and not beyond the time
that the caller has.
"""

import time

import pytest

from parity.cli.jobs import progress, watching
from parity.client.rest import ClientError, UnreachableError


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


def polled(server, seconds):
    return watching.poll(lambda: server.job("j"), "j", seconds)


@pytest.mark.parametrize(
    "error", [UnreachableError("no answer"), ClientError(503, "out of service")]
)
@pytest.mark.parametrize("before", [(), ("running", "running")])
def test_a_server_that_is_away_at_the_end_of_the_time_is_not_a_job_that_goes_on(
    slept, error, before
):
    with pytest.raises(type(error)) as raised:
        list(polled(_Server(*before, *[error] * 100), 10.0))
    assert raised.value is error
    assert sum(slept) == 10.0


def test_a_server_that_stays_away_is_given_up_after_a_minute(slept):
    with pytest.raises(UnreachableError):
        list(polled(_Server("running", *[UnreachableError("no answer")] * 100), None))
    assert 60.0 < sum(slept) < 65.0


def test_a_server_that_came_back_and_a_busy_one_were_reached(slept):
    server = _Server("running", UnreachableError("no answer"), *["running"] * 9)
    with pytest.raises(watching.WatchTimeoutError):
        list(polled(server, 5.0))
    busy = _Server("running", *[ClientError(429, "too many", retry_after=3.0)] * 9)
    with pytest.raises(watching.WatchTimeoutError):
        list(polled(busy, 5.0))


def test_a_refusal_for_too_many_requests_is_waited_out(slept):
    server = _Server("running", ClientError(429, "too many", retry_after=37.0), "concluded")
    assert [one["status"] for one in polled(server, None)] == ["running", "concluded"]
    first, asked = slept
    assert (first, 37.0 <= asked <= 1.5 * 37.0) == (1.0, True)


def test_no_pause_outlasts_the_callers_time(slept):
    server = _Server(ClientError(429, "too many", retry_after=37.0), "running")
    with pytest.raises(watching.WatchTimeoutError):
        list(polled(server, 4.0))
    assert slept == [4.0]


def test_a_forecast_is_a_line_when_its_state_changes():
    def job(*states):
        live = [
            None if state is None else {"state": state, "sentence": f"{state}."} for state in states
        ]
        return {
            "arms": [
                {"name": name, "live": each}
                for name, each in zip(("fp8", "nvfp4", "mxfp8"), live, strict=True)
            ]
        }

    seen: dict[str, str] = {}
    lines = [
        progress.forecast_changes(job(None, *states), seen)
        for states in ((None, "open"), ("open", "open"), ("futile", "open"))
    ]
    assert lines == [["mxfp8: open."], ["nvfp4: open."], ["nvfp4: futile."]]
    assert progress.forecast_changes({"arms": [{"name": "fp8"}]}, seen) == []
