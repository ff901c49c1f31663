"""Manages tokens on the server's own machine: `python -m server.tokens create NAME --scope submit
--days 90`.
"""

import argparse
import sys

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from parity.inert import inert
from server.database.clock import time_text
from server.database.sessions import Database, cannot_be_used
from server.database.tables import Token
from server.errors import ServiceError
from server.process_settings import settings_or_exit
from server.web.access import api_tokens
from server.web.access.rules import SCOPES


def main(arguments: list[str] | None = None) -> int:
    """Run one command and print its result; exits 2 if the options are invalid or the database
    cannot be used.
    """
    options = _parser().parse_args(arguments)
    database = Database(settings_or_exit().database)
    try:
        with database.write() as session:
            lines = _do(session, options)
    except ServiceError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    except SQLAlchemyError as error:
        print(cannot_be_used(error), file=sys.stderr)
        return 2
    finally:
        database.close()
    print("\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m server.tokens",
        description="Manage tokens. A token's text is printed once, never stored.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="create a token and print its text")
    create.add_argument("name", help="owner or purpose, at most 100 characters")
    create.add_argument(
        "--scope",
        action="append",
        choices=SCOPES,
        required=True,
        help="scope to grant; repeat for more than one",
    )
    create.add_argument(
        "--days", type=float, default=None, help="days until it expires; default: never"
    )
    create.add_argument(
        "--max-running",
        type=int,
        default=None,
        help="largest number of its runs that train at once; default: no limit",
    )
    create.add_argument(
        "--for",
        dest="principal",
        help="principal whose jobs it is for (listed by `list`); default: a new one",
    )
    create.add_argument(
        "--repository",
        help="repository whose gates it asks, such as team/model: they have the rules that are "
        "pinned for it",
    )
    commands.add_parser(
        "list",
        help="list tokens: id, principal, name, scopes, expiry, last use, state; tab-separated",
    )
    rotate = commands.add_parser(
        "rotate",
        help="print a new token for the same principal; the old one stays valid for the overlap",
    )
    rotate.add_argument("id", help="id of the old token")
    rotate.add_argument(
        "--overlap-hours",
        type=float,
        default=api_tokens.OVERLAP_HOURS,
        help="hours that the old one stays valid; 0: none [default: %(default)g]",
    )
    rotate.add_argument(
        "--days",
        type=float,
        default=None,
        help="days until the new one expires; default: as many as the old one had",
    )
    revoke = commands.add_parser("revoke", help="end a token and its browser sessions at once")
    revoke.add_argument("id", help="id of the token")
    return parser


def _do(session: Session, options: argparse.Namespace) -> list[str]:
    """The lines to print."""
    if options.command == "create":
        arguments = (
            options.name,
            options.scope,
            options.days,
            options.max_running,
            options.principal,
            options.repository,
        )
        return [api_tokens.create_token(session, *arguments)[1]]
    if options.command == "rotate":
        return [
            api_tokens.rotate_token(session, options.id, options.overlap_hours, options.days)[1]
        ]
    if options.command == "revoke":
        return [_line(api_tokens.revoke_token(session, options.id))]
    header = "\t".join(("id", "principal", "name", "scopes", "expires", "last used", "state"))
    return [header, *map(_line, session.scalars(select(Token).order_by(Token.id.desc())))]


def _line(row: Token) -> str:
    state = "valid" if api_tokens.is_live(row) else "expired"
    if row.revoked_at:
        state = "revoked"
    times = (time_text(row.expires_at) or "never", time_text(row.last_used_at) or "never")
    return "\t".join((row.id, row.principal, inert(row.name), ",".join(row.scopes), *times, state))


if __name__ == "__main__":
    sys.exit(main())
