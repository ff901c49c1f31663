"""A function that makes a token."""

from __future__ import annotations

import pytest

from server.web.access import api_tokens


@pytest.fixture
def token(database):
    """A function that makes a token; its id and its text."""

    def make(*scopes, **more):
        with database.write() as session:
            row, text = api_tokens.create_token(session, "ci", scopes or ("submit",), 30, **more)
            session.flush()
            return row.id, text

    return make
