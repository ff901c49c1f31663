"""Writes the results of an analysis to the database, with the fence and the progress of its run; each key once."""

from __future__ import annotations

import time

from sqlalchemy import select

from parity.search.setup import Forks
from parity.why.search import steps_spent
from parity.why.setup import setup_from
from server.database.sessions import Database
from server.database.tables import AnalysisResult
from workers import lease
from workers.lease import Claim, ClaimedAnalysis
from workers.protocol import ResultMessage


class Results:
    """Collects the results of one attempt; an attempt that trains has none."""

    def __init__(self, database: Database, held: Claim, lease_seconds: float) -> None:
        self._database = database
        self._held = held
        self._lease_seconds = lease_seconds
        self._waiting: list[ResultMessage] = []
        self._steps = self._before = 0.0
        if held.analysis is not None:
            self._steps = self._before = _steps_on_record(held.analysis)
        self._began: float | None = None

    def add(self, message: ResultMessage) -> None:
        """Add one result, to be written by the next flush. The clock of the speed starts at the first, which includes the compilation."""
        self._began = self._began or time.monotonic()
        self._waiting.append(message)
        self._steps += message["steps"]

    def flush(self) -> None:
        """Write the collected results. LeaseLostError, without a write, if the worker no longer holds the run."""
        if not self._waiting:
            return
        held, values = self._held, {each["key"]: each["value"] for each in self._waiting}
        seconds = time.monotonic() - (self._began or 0.0)
        speed = (self._steps - self._before) / seconds if seconds > 1.0 else None
        with self._database.write() as session:
            lease.renew(session, held, self._lease_seconds, recorded=True, steps_done=int(self._steps), steps_per_second=speed)
            ours = AnalysisResult.run_id == held.run_id
            # A write whose commit was not confirmed is repeated, and must not add its rows twice.
            there = set(session.scalars(select(AnalysisResult.key).where(ours, AnalysisResult.key.in_(values))))
            session.add_all(AnalysisResult(run_id=held.run_id, key=key, value=value) for key, value in values.items() if key not in there)
        self._waiting = []


def _steps_on_record(own: ClaimedAnalysis) -> float:
    """What the results on record have cost, in steps of training."""
    if own.policies is not None:
        return Forks.read(own.setup).fork_steps * len(own.results)
    return steps_spent(setup_from(own.setup), own.results)
