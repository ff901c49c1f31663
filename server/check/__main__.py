"""Prints the damage of the whole record, and how much was read."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError

from parity.wording import count
from server.check.damage import Checked, Damage
from server.check.evaluations import check_evaluations
from server.check.goldens import check_goldens
from server.check.listed_columns import check_listed_columns
from server.check.steps import check_steps
from server.check.stored_forms import check_stored_forms
from server.check.tables import check_tables
from server.check.verdicts import check_verdicts
from server.database.sessions import Database, cannot_be_used
from server.errors import ServiceError
from server.jobs.conclude import judge_again
from server.process_settings import settings_or_exit

_PARTS = (
    check_tables,
    check_stored_forms,
    check_verdicts,
    check_evaluations,
    check_listed_columns,
    check_goldens,
    check_steps,
)


def check(database: Database) -> Iterator[Checked]:
    """Read every table, stored form, verdict and step, part by part. A part whose rows the database
    cannot read ends there: the first part has said so.
    """
    for part in _PARTS:
        try:
            yield from part(database)
        except OperationalError:
            raise  # the database is away
        except DatabaseError as error:
            what = f"{part.__module__.rpartition('.')[2]} cannot be read to the end"
            cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
            damage = Damage(what=f"{what} ({cause:.200})", remedies=())
            yield Checked(kind="part", pieces=0, damage=(damage,))


def main(arguments: list[str] | None = None) -> int:
    """Print the damage, and how much was read; exits 1 if there is any, 2 if the database cannot be
    used.
    """
    about = (
        "Read the whole record: the database file, every row, stored form, verdict and step. Exits "
        "1 if any is damaged. Nothing is changed without --judge-again."
    )
    parser = argparse.ArgumentParser(prog="python -m server.check", description=about)
    parser.add_argument(
        "--judge-again",
        metavar="JOB",
        help="have a job whose recorded verdict is damaged judged again from its curves",
    )
    job_id = parser.parse_args(arguments).judge_again
    database = Database(settings_or_exit().database, statement_seconds=3600)
    pieces, unchecked, damaged = Counter[str](), Counter[str](), 0
    try:
        if job_id is not None:
            with database.write() as session:
                judge_again(session, job_id)
            print(f"job {job_id} is open again: the server judges it within a minute")
            return 0
        for checked in check(database):
            pieces[checked.kind] += checked.pieces
            unchecked[checked.kind] += checked.unchecked
            damaged += len(checked.damage)
            for damage in checked.damage:
                print("\n  ".join((damage.what, *damage.remedies)))
    except ServiceError as error:
        print(error.detail, file=sys.stderr)
        return 2
    except SQLAlchemyError as error:
        print(cannot_be_used(error), file=sys.stderr)
        return 2
    finally:
        database.close()
    without = "".join(
        f", {count(number, kind)} without a checksum, of an earlier version"
        for kind, number in unchecked.items()
        if number
    )
    read = ", ".join(count(pieces[kind], kind) for kind in ("row", "verdict", "chunk"))
    print(f"{read} read, {damaged} damaged{without}", file=sys.stderr)
    return 1 if damaged else 0


if __name__ == "__main__":
    sys.exit(main())
