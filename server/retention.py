"""The command that lists or deletes what `PARITY_RETENTION_DAYS` no longer keeps.

python -m server.retention            # lists; --apply deletes
"""

from __future__ import annotations

import argparse
import sys

from server.database.sessions import Database
from server.jobs.retention import drop, droppable
from server.settings import Settings


def main() -> int:
    """List what retention would delete, or delete it; returns the exit status."""
    what = "List or delete what PARITY_RETENTION_DAYS no longer keeps."
    parser = argparse.ArgumentParser(prog="python -m server.retention", description=what)
    parser.add_argument("--apply", action="store_true", help="delete it (default: list only)")
    arguments = parser.parse_args()
    settings = Settings()
    if settings.retention_days is None:
        print("PARITY_RETENTION_DAYS is not set, so everything is kept", file=sys.stderr)
        return 0
    database = Database(settings.database, statement_seconds=3600)
    things = (drop if arguments.apply else droppable)(settings, database)
    database.close()
    for one in things:
        print(f"{one.what}\t{one.run_id}\t{one.size_bytes}\t{one.why}")
    done = "dropped" if arguments.apply else "would be dropped; --apply does it"
    print(f"{len(things)} things, {sum(one.size_bytes for one in things):,} bytes {done}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
