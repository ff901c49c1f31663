"""A thread that repeats an action: it survives failures, begins at once where asked, and ends."""

import threading

import pytest

from server.concurrency.repeating import Repeating


@pytest.mark.parametrize("at_once", [False, True])
def test_a_failure_is_logged_and_the_next_call_comes(caplog, at_once):
    calls, enough = [], threading.Event()

    def act():
        calls.append(repeating.is_stopping)
        if len(calls) == 1:
            raise ValueError("once")
        enough.set()

    repeating = Repeating("test", act, 0.01, "it could not be done", at_once=at_once)
    repeating.start()
    assert enough.wait(60)
    repeating.close()
    made = len(calls)
    assert not any(calls)
    assert repeating.is_stopping
    assert [record.message for record in caplog.records] == [
        "it could not be done; retrying",
        "it could not be done for 0 s, and works again",
    ]
    assert not any(thread.name == "test" for thread in threading.enumerate())
    assert len(calls) == made


def test_without_at_once_the_first_call_comes_after_one_period():
    calls = []
    repeating = Repeating("test", lambda: calls.append(1), 3600.0, "it could not be done")
    repeating.start()
    repeating.close()
    assert calls == []
    begun = threading.Event()
    repeating = Repeating("test", begun.set, 3600.0, "it could not be done", at_once=True)
    repeating.start()
    assert begun.wait(60)
    repeating.close()


def test_an_outage_is_one_traceback_and_a_line_a_minute(caplog, monkeypatch):
    now, calls = [100.0], iter([ValueError, ValueError, ValueError, OSError, None, OSError])
    monkeypatch.setattr("server.concurrency.failures.time.monotonic", lambda: now[0])

    def act():
        error = next(calls)
        if error:
            raise error("away")

    repeating = Repeating("test", act, 3600.0, "it could not be done")
    for seconds in (0, 1, 60, 1, 1, 1):
        now[0] += seconds
        repeating._try()
    first, later = (
        "it could not be done; retrying",
        "it could not be done, as before (ValueError); retrying",
    )
    assert [(record.message, bool(record.exc_info)) for record in caplog.records] == [
        (first, True),  # the second, a second later, is not logged
        (later, False),
        (first, True),  # another kind
        ("it could not be done for 63 s, and works again", False),
        (first, True),  # and the same after it had worked
    ]
