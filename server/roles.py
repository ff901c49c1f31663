"""Grants the PostgreSQL roles of the API and the workers: `python -m server.roles --api parity_api
--worker parity_worker`.

Their rights are in roles.sql.
"""

import argparse
import re
import sys
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from server.database.sessions import Database
from server.process_settings import settings_or_exit

_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LOOK = text(
    "select rolsuper, pg_has_role(rolname, current_user, 'member') from pg_roles where rolname = "
    ":role"
)


class RoleError(Exception):
    """A role that cannot be used; the message names it."""


def grants(api: str, worker: str) -> str:
    """The SQL that takes every right from both roles and gives them theirs."""
    return (
        Path(__file__)
        .with_suffix(".sql")
        .read_text(encoding="utf-8")
        .replace(":api", api)
        .replace(":worker", worker)
    )


def apply(connection: Connection, api: str, worker: str) -> None:
    """Create the roles that do not exist, without a password, and grant them exactly their rights;
    safe to repeat.

    Run it as the owner of the tables, in a transaction. RoleError for a name or a role that would
    make the rights meaningless.
    """
    for role in (api, worker):
        if not _ROLE.fullmatch(role):
            raise RoleError(
                f"role is {role!r:.80}, expected lower-case letters, digits and _, at most 63"
            )
        row = connection.execute(_LOOK, {"role": role}).first()
        if row is None:
            connection.execute(text(f"create role {role} login"))
        elif any(row):
            raise RoleError(
                f"role {role} is a superuser, or owns the tables itself or through another role; "
                "expected a role of its own"
            )
    if api == worker:
        raise RoleError(
            f"both roles are {api}; expected one for the API and another one for the workers"
        )
    connection.exec_driver_sql(grants(api, worker), execution_options={"no_parameters": True})


def main(arguments: list[str] | None = None) -> int:
    """Grant the rights, as the role of PARITY_DATABASE_URL, which must own the tables; exits 2 if
    that is not possible.
    """
    about = (
        "Create the roles of API and workers if necessary, and grant them the rights they need. "
        "Run it after every migration."
    )
    parser = argparse.ArgumentParser(prog="python -m server.roles", description=about)
    parser.add_argument(
        "--api", default="parity_api", help="role of the API [default: %(default)s]"
    )
    parser.add_argument(
        "--worker", default="parity_worker", help="role of the workers [default: %(default)s]"
    )
    parser.add_argument("--sql", action="store_true", help="only print the statements")
    options = parser.parse_args(arguments)
    if options.sql:
        print(grants(options.api, options.worker), end="")
        return 0
    database = Database(settings_or_exit().database)
    try:
        if database.engine.dialect.name != "postgresql":
            raise RoleError(
                "PARITY_DATABASE_URL is not set, or names SQLite, which has no roles; set it to "
                "PostgreSQL as the owner"
            )
        with database.engine.begin() as connection:
            apply(connection, options.api, options.worker)
    except (RoleError, SQLAlchemyError) as error:
        print(f"refused: {getattr(error, 'orig', error)}", file=sys.stderr)
        return 2
    finally:
        database.close()
    print(
        f"{options.api} and {options.worker} have their rights; set a password for each, such as "
        f"`\\password {options.api}` in psql"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
