"""The thread of an API process that judges a job once the last of its runs has ended by a request, so that no request waits for it.

The housekeeping worker judges what this thread leaves behind when its process ends (`workers.reconcile.EndedJobs`).
"""

from __future__ import annotations

import logging
import queue
import threading

from server.database.sessions import Database
from server.jobs.conclude import conclude

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 10.0  # until it looks again at a job that could not be judged, or that another judge has
_CLOSE_SECONDS = 2.0


class Judge:
    """Judges the jobs that it is woken for, one after another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._keep_judging, name="judge", daemon=True)

    def start(self) -> None:
        """Start to judge."""
        self._thread.start()

    def wake(self, job_id: str) -> None:
        """Judge this job soon, if all its runs have ended; returns at once. Safe to call at any time."""
        self._woken.put(job_id)

    def close(self) -> None:
        """Stop after the job that is judged now, for which it waits a moment."""
        self._woken.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _keep_judging(self) -> None:
        again: set[str] = set()
        while True:
            due, again = again, set()
            try:
                woken = self._woken.get(timeout=_AGAIN_SECONDS if due else None)
            except queue.Empty:
                pass
            else:
                if woken is None:
                    return
                due.add(woken)
            for job_id in due:
                try:
                    if not conclude(self._database, job_id):
                        again.add(job_id)
                except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
                    _log.exception("job %s could not be concluded and will be tried again", job_id)
                    again.add(job_id)
