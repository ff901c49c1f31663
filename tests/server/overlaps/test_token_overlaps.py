"""Tokens: two processes at once, and two instances of each."""

import pytest
from sqlalchemy import select

from server.database.tables import BrowserSession, Token
from server.errors import ConflictError
from server.web.access import api_tokens, browser_sessions
from tests.overlap import overlap

pytestmark = pytest.mark.postgresql


def test_a_token_is_rotated_once(database, token):
    old, _ = token()
    both = overlap(
        database,
        lambda s: api_tokens.rotate_token(s, old, 1.0)[0].id,
        lambda s: api_tokens.rotate_token(s, old, 1.0)[0].id,
    )
    assert (both.waited, type(both.second)) == (True, ConflictError)
    with database.read() as session:
        assert len(session.scalars(select(Token)).all()) == 2


def test_to_rotate_or_revoke_one_token_leaves_another_and_its_sessions(database, token):
    (other, text), (one, _) = token(), token()  # the later one has the same name
    with database.write() as session:
        cookies = [
            browser_sessions.open_session(session, session.get_one(Token, each))
            for each in (one, other)
        ]
    with database.write() as session:
        assert api_tokens.rotate_token(session, other, 1.0)[0].principal == other
        api_tokens.revoke_token(session, one)
    with database.read() as session:
        assert api_tokens.authenticate(session, text).id == other
        assert [browser_sessions.token_of_cookie(session, each) is None for each in cookies] == [
            True,
            False,
        ]
        assert [row.token_id for row in session.scalars(select(BrowserSession))] == [other]


def test_to_log_out_ends_one_session(database, token):
    one, _ = token()
    with database.write() as session:
        cookies = [
            browser_sessions.open_session(session, session.get_one(Token, one)) for _ in range(2)
        ]
        browser_sessions.close_session(session, cookies[0])
    with database.read() as session:
        assert [browser_sessions.token_of_cookie(session, each) is None for each in cookies] == [
            True,
            False,
        ]
