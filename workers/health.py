"""Health check: `python -m workers.health` exits 0 if a worker of this host sent a heartbeat within
a lease period, else 1.
"""

import socket
import sys

from sqlalchemy.exc import SQLAlchemyError

from server.database.sessions import Database
from server.jobs.workers import live_workers
from server.process_settings import settings_or_exit


def main() -> int:
    """Look for this host's heartbeat in the database; returns the exit status."""
    settings, host = settings_or_exit(), socket.gethostname()
    database = Database(settings.database)
    try:
        with database.read() as session:
            names = [worker.name for worker in live_workers(session, settings.lease_seconds)]
    except SQLAlchemyError as error:
        print(f"the database does not answer: {type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        database.close()
    if any(name.rpartition(":")[0] == host for name in names):
        return 0
    print(
        f"no worker of {host} sent a heartbeat in the last {settings.lease_seconds:g} s; live "
        f"workers: {', '.join(names) or 'none'}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
