"""What a token and a stream may have: at each limit, and one beyond it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from server.errors import InvalidError
from server.web.access import api_tokens
from server.web.broadcast import _QUEUE_LIMIT, _Subscriber


def is_refused(call: Callable[..., object], *given: Any, **named: Any) -> bool:
    try:
        call(*given, **named)
    except InvalidError:
        return True
    return False


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ("name", ["x", "x" * 100], ["", "x" * 101]),
        ("days", [1e-9, 3650, None], [0, 3650.1, float("nan")]),
        ("max_running", [1, 10_000, None], [0, 10_001]),
        ("repository", ["x", "x" * 200, None], ["", "x" * 201]),
    ],
)
def test_a_token_is_made_within_its_limits(database, field, allowed, refused):
    named = {"name": "mine", "scopes": ["submit"], "days": 1}
    with database.write() as session:
        made = [
            is_refused(api_tokens.create_token, session, **named | {field: value})
            for value in (*allowed, *refused)
        ]
    assert made == [False] * len(allowed) + [True] * len(refused)


@pytest.mark.parametrize(
    ("hours", "refused"), [(0, False), (2160, False), (-1, True), (2160.1, True)]
)
def test_a_rotated_token_overlaps_for_up_to_90_days(database, hours, refused):
    with database.write() as session:
        token, _ = api_tokens.create_token(session, "mine", ["submit"], None)
        session.flush()
        assert is_refused(api_tokens.rotate_token, session, token.id, hours) == refused


@pytest.mark.parametrize(("number", "ended"), [(1000, (False, 1000)), (1001, (True, 1))])
def test_a_stream_that_nobody_reads_is_ended_after_1000_messages(number, ended):
    assert _QUEUE_LIMIT == 1000
    loop = asyncio.new_event_loop()  # another test of this process may have one that runs
    try:
        subscriber = _Subscriber(job_id="j", loop=loop)
        for _ in range(number):
            subscriber.put([])
        assert (subscriber.closed, subscriber.rows.qsize()) == ended
    finally:
        loop.close()
