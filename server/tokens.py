"""Creates a token on the server's own machine: `python -m server.tokens NAME --scope submit --days 90`."""

from __future__ import annotations

import argparse
import sys

from server.database.sessions import Database
from server.errors import ServiceError
from server.settings import Settings
from server.web import auth


def main(arguments: list[str] | None = None) -> int:
    """Create a token and print its text; exits 2 if the options are invalid."""
    parser = argparse.ArgumentParser(prog="python -m server.tokens", description="Create a token. Its text is printed once, never stored.")
    parser.add_argument("name", help="owner or purpose, at most 100 characters")
    parser.add_argument("--scope", action="append", choices=auth.SCOPES, required=True, help="scope to grant; repeat for more than one")
    parser.add_argument("--days", type=float, default=None, help="days until it expires; default: never")
    parser.add_argument("--max-running", type=int, default=None, help="largest number of its runs that train at once; default: no limit")
    options = parser.parse_args(arguments)
    database = Database(Settings().database)
    try:
        with database.write() as session:
            _, text = auth.create_token(session, options.name, options.scope, options.days, options.max_running)
    except ServiceError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    finally:
        database.close()
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
