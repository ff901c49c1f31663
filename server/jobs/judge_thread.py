"""The thread of an API process that judges a job once the last of its runs has ended by a request,
so that no request waits for it.

The housekeeping worker judges what this thread leaves behind when its process ends
(`workers.reconcile.EndedJobs`).
"""

import queue
import threading

from server.database.sessions import Database
from server.jobs.conclude import conclude_each

# until it looks again at a job that could not be judged, or that another judge has
_AGAIN_SECONDS = 10.0
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
        """Judge this job soon, if all its runs have ended; returns at once. Safe to call at any
        time.
        """
        self._woken.put(job_id)

    def close(self) -> None:
        """Stop after the job that is judged now, for which it waits a moment."""
        self._woken.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _keep_judging(self) -> None:
        due: set[str] = set()
        while True:
            try:
                woken = self._woken.get(timeout=_AGAIN_SECONDS if due else None)
            except queue.Empty:
                pass
            else:
                if woken is None:
                    return
                due.add(woken)
            due = conclude_each(self._database, due)
