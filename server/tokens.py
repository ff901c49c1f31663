"""The first token, made on the server's own machine: `python -m server.tokens NAME --scope submit --days 90`."""

from __future__ import annotations

import argparse
import sys

from server.database.sessions import Database
from server.errors import ServiceError
from server.settings import Settings
from server.web import auth


def main(arguments: list[str] | None = None) -> int:
    """Make a token and print its text; exit 2 when the options are invalid."""
    parser = argparse.ArgumentParser(prog="python -m server.tokens", description="Make a token; its text is printed once and never stored.")
    parser.add_argument("name", help="whose or what for, at most 100 characters")
    parser.add_argument("--scope", action="append", choices=auth.SCOPES, required=True, help="what it may do; may be given more than once")
    parser.add_argument("--days", type=float, default=None, help="days until it expires; default: never")
    parser.add_argument("--max-running", type=int, default=None, help="how many of its runs may train at once; default: every free slot")
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
