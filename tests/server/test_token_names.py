"""Names of tokens are shown in lists and errors: they hold nothing that a terminal obeys."""

import pytest

from server import tokens
from server.database.tables import Token
from server.errors import InvalidError
from server.web.access import api_tokens


@pytest.mark.parametrize("name", ["ci\x1b[31m", "ci\nadmin\tvalid", "a\x9bm", "\u202eic", ""])
def test_a_name_that_is_not_printable_is_refused(database, name):
    with database.write() as session, pytest.raises(InvalidError, match="printable"):
        api_tokens.create_token(session, name, ["view"], None)


@pytest.mark.parametrize("name", ["ci", "CI für Ann", "日本語", "team/model: nightly"])
def test_an_honest_name_is_kept(database, name):
    with database.write() as session:
        assert api_tokens.create_token(session, name, ["view"], None)[0].name == name


def test_a_name_of_before_is_listed_inert(database, monkeypatch, capsys):
    with database.write() as session:
        api_tokens.create_token(session, "old", ["view"], None)[0].name = "old\x1b[31m"
    with database.read() as session:
        assert session.query(Token).count() == 1
    monkeypatch.setenv("PARITY_DATABASE_URL", database.url)
    assert tokens.main(["list"]) == 0
    printed = capsys.readouterr().out
    assert ("old\\x1b[31m" in printed, "\x1b" in printed) == (True, False)
