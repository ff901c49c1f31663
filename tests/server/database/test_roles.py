"""The rights of the roles on a real PostgreSQL. Every test of the API on PostgreSQL connects as its
role, and shows that they suffice.
"""

import re

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import ProgrammingError

from parity.extensions import lab
from server import deliveries, roles
from server.database.sessions import Database
from server.database.tables import Base, Token
from server.web.access import api_tokens

on_postgresql = pytest.mark.postgresql
FORBIDDEN_TO_BOTH = [
    "create table mine (id int)",
    "alter table jobs add column mine int",
    "drop table verdicts",
    "truncate events",
    "delete from jobs",
    "delete from verdicts",
    "update verdicts set outcome = 'pass'",
    "update events set kind = 'x'",
    "update jobs set submitted_by = 'me'",
    "update jobs set policy = '{}'",
    "update statements set value = '1'",
    "update alembic_version set version_num = '0001'",
    "update baseline_events set who = 'me'",
    "update goldens set text = 'mine'",
    "update goldens set owner = 'me'",
    "delete from goldens",
    "create role mine superuser",
]
FORBIDDEN_TO_WORKERS = [
    "select digest from tokens",
    "select * from tokens",
    "update tokens set scopes = '[\"admin\"]'",
    (
        "insert into tokens (id, principal, name, digest, scopes, created_at) values ('t', 't', "
        "'x', 'x', '[\"admin\"]', 1)"
    ),
    "update webhooks set events = '[]'",
    "select * from browser_sessions",
    "select body_digest from idempotency_keys",
    "update webhook_deliveries set state = 'delivered'",
    "insert into jobs (id) values ('j')",
    "insert into runs (id) values ('r')",
    "update baselines set expires_at = 1",
    "select * from goldens",
    "update runs set planned_steps = 1",
    "update jobs set spec = '{}'",
    "update jobs set config_hash = ''",
    "update jobs set is_open = false",
    "insert into statements (id) values ('f')",
]


def _refused(url, statement):
    """Whether PostgreSQL refuses a statement for want of a right."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(statement))
    except ProgrammingError as error:
        return isinstance(error.orig, psycopg.errors.InsufficientPrivilege)
    finally:
        engine.dispose()
    return False


@pytest.mark.parametrize("role", ["the_api", "the_worker"])
def test_the_rights_of_each_role_on_each_table_are_stated(role):
    assert lab().part("tables"), "its tables have lines too"
    lines = re.findall(
        r" on (\w+(?:, \w+)*) (?:to|from) ([^;]+);", roles.grants("the_api", "the_worker")
    )
    stated = {
        table for tables, of in lines if role in of.split(", ") for table in tables.split(", ")
    }
    assert stated == {*Base.metadata.tables, "alembic_version"}


@on_postgresql
def test_neither_role_changes_the_schema_or_what_is_fixed(database, api_settings, worker_settings):
    for settings in (api_settings, worker_settings):
        assert [each for each in FORBIDDEN_TO_BOTH if not _refused(settings.database, each)] == []


@on_postgresql
def test_a_worker_reads_no_secret_and_gives_itself_no_right(database, worker_settings):
    with database.write() as session:
        deliveries.register(session, {"h1": ["job.ended"]})
        api_tokens.create_token(session, "me", ["admin"], None)
    assert [
        each for each in FORBIDDEN_TO_WORKERS if not _refused(worker_settings.database, each)
    ] == []
    worker = Database(worker_settings.database)
    with pytest.raises(ProgrammingError), worker.read() as session:
        session.query(Token).all()
    worker.close()


@on_postgresql
def test_the_command_grants_again_and_takes_what_is_too_much(
    database, settings, worker_settings, monkeypatch, capsys
):
    monkeypatch.setenv("PARITY_DATABASE_URL", settings.database_url)
    with database.engine.begin() as connection:
        connection.execute(text("grant select, delete on tokens to parity_worker"))
        connection.execute(text("grant select (digest) on tokens to parity_worker"))
    assert not _refused(worker_settings.database, "select digest from tokens")
    assert roles.main([]) == 0
    assert _refused(worker_settings.database, "select digest from tokens")
    assert _refused(worker_settings.database, "delete from tokens")
    assert roles.main(["--sql"]) == 0
    assert capsys.readouterr().out.endswith(roles.grants("parity_api", "parity_worker"))


@on_postgresql
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--api", "postgres"], "superuser"),
        (["--api", "a; drop table jobs"], "lower-case"),
        (["--api", "parity_worker"], "both roles"),
    ],
)
def test_what_would_give_no_protection_is_refused(
    database, settings, monkeypatch, capsys, arguments, word
):
    assert make_url(settings.database_url).username == "postgres"
    monkeypatch.setenv("PARITY_DATABASE_URL", settings.database_url)
    assert roles.main(arguments) == 2
    assert word in capsys.readouterr().err


def test_sqlite_has_no_roles(settings, monkeypatch, capsys):
    monkeypatch.setenv("PARITY_DATABASE_URL", settings.database)
    assert roles.main([]) == 2
    assert "SQLite" in capsys.readouterr().err
