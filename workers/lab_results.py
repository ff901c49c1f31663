"""Writes the results of a run of the lab to the database, each key once, behind the run's fence."""

import time

from parity.extensions import lab
from server.database.sessions import Database
from workers import lease
from workers.lease import Claim
from workers.protocol import ResultMessage


class LabResults:
    """Collects the results of one attempt; an attempt that trains has none."""

    def __init__(self, database: Database, claim: Claim, lease_seconds: float) -> None:
        self._database = database
        self._claim = claim
        self._lease_seconds = lease_seconds
        self._waiting: list[ResultMessage] = []
        self._steps = self._before = float(claim.measure["spent"]) if claim.measure else 0.0
        self._began: float | None = None

    def add(self, message: ResultMessage) -> None:
        """Add one result, to be written by the next flush. The clock of the speed starts at the
        first, which includes the compilation.
        """
        self._began = self._began or time.monotonic()
        self._waiting.append(message)
        self._steps += message["steps"]

    def flush(self) -> None:
        """Write the collected results. LeaseLostError, without a write, if the worker no longer
        holds the run.
        """
        tables = lab().part("tables") if self._waiting else None
        if tables is None:
            return
        claim, values = self._claim, {result["key"]: result["value"] for result in self._waiting}
        seconds = time.monotonic() - (self._began or 0.0)
        speed = (self._steps - self._before) / seconds if seconds > 1.0 else None
        with self._database.write() as session:
            lease.renew(
                session,
                claim,
                self._lease_seconds,
                recorded=True,
                steps_done=int(self._steps),
                steps_per_second=speed,
            )
            tables.keep_results(session, claim.run_id, values)
        self._waiting = []
