"""The command that lists or deletes what the PARITY_RETENTION settings no longer keep.

python -m server.retention # lists; --apply deletes
"""

import argparse
import sys

from sqlalchemy.exc import SQLAlchemyError

from server.database.sessions import Database, cannot_be_used
from server.process_settings import settings_or_exit
from server.retention.files import old_files
from server.retention.keeper import delete_batch, plan
from server.settings import Settings


def main() -> int:
    """List what retention would delete, or delete it; returns the exit status."""
    what = (
        "List or delete what the PARITY_RETENTION settings no longer keep: rows of the database, "
        "and files on this machine."
    )
    parser = argparse.ArgumentParser(prog="python -m server.retention", description=what)
    parser.add_argument("--apply", action="store_true", help="delete it (default: list only)")
    arguments = parser.parse_args()
    settings = settings_or_exit()
    database = Database(settings.database, statement_seconds=3600)
    try:
        number, size = _list(settings, database, apply=arguments.apply)
    except SQLAlchemyError as error:
        print(cannot_be_used(error), file=sys.stderr)
        return 1
    finally:
        database.close()
    done = "deleted" if arguments.apply else "would be deleted; --apply does it"
    print(f"{number} rows and files, {size:,} bytes of values {done}", file=sys.stderr)
    return 0


def _list(settings: Settings, database: Database, *, apply: bool) -> tuple[int, int]:
    """Print each deletion, and make it if `apply`; returns the number of rows and files, and the
    bytes of their values.
    """
    number = size = 0
    files = [*old_files(settings, database)]  # before the jobs go that some of them are of
    for batch in plan(settings, database):
        rows = delete_batch(database, batch) if apply else batch.rows
        if rows:
            print(f"{batch.what}\t{batch.of or f'{rows} rows'}\t{batch.size_bytes}\t{batch.why}")
            number, size = number + rows, size + batch.size_bytes
    for file in files:
        print(f"{file.what}\t{file.of or file.path.name}\t{file.size_bytes}\t{file.why}")
        number, size = number + 1, size + file.size_bytes
        if apply:
            file.delete()
    return number, size


if __name__ == "__main__":
    sys.exit(main())
