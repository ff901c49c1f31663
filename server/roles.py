"""Grants the PostgreSQL roles of the API and the workers: `python -m server.roles --api parity_api --worker parity_worker`."""

from __future__ import annotations

import argparse
import sys

from sqlalchemy.exc import SQLAlchemyError

from server.database import roles
from server.database.sessions import Database
from server.settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Grant the rights, as the role of PARITY_DATABASE_URL, which must own the tables; exits 2 if that is not possible."""
    about = "Create the roles of API and workers if necessary, and grant them the rights they need. Run it after every migration."
    parser = argparse.ArgumentParser(prog="python -m server.roles", description=about)
    parser.add_argument("--api", default="parity_api", help="role of the API [default: %(default)s]")
    parser.add_argument("--worker", default="parity_worker", help="role of the workers [default: %(default)s]")
    parser.add_argument("--sql", action="store_true", help="only print the statements")
    options = parser.parse_args(arguments)
    if options.sql:
        print("".join(f"{statement};\n" for statement in roles.grants(options.api, options.worker)), end="")
        return 0
    database = Database(Settings().database)
    try:
        if database.engine.dialect.name != "postgresql":
            raise roles.RoleError("PARITY_DATABASE_URL is not set, or names SQLite, which has no roles; set it to PostgreSQL as the owner")
        with database.engine.begin() as connection:
            roles.apply(connection, options.api, options.worker)
    except roles.RoleError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    except SQLAlchemyError as error:
        print(f"refused: {getattr(error, 'orig', error)}", file=sys.stderr)
        return 2
    finally:
        database.close()
    print(f"{options.api} and {options.worker} have their rights; set a password for each, such as `\\password {options.api}` in psql")
    return 0


if __name__ == "__main__":
    sys.exit(main())
