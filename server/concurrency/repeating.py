"""A thread that repeats one action until it is closed, or its process ends."""

import logging
import threading
from collections.abc import Callable

from server.concurrency.failures import RepeatedFailure

_CLOSE_SECONDS = 2.0


class Repeating:
    """Calls `act` every `seconds` in a daemon thread, with `at_once` also at its start.

    An exception is logged, after `failure`; while the same kind goes on, as in an outage, one line
    a minute says so, and one that it is over.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        seconds: float,
        failure: str,
        *,
        at_once: bool = False,
    ) -> None:
        self._act, self._seconds, self._at_once = act, seconds, at_once
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self._failures = RepeatedFailure(logging.getLogger(act.__module__), failure)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the action that is running, for which it waits a moment."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    @property
    def is_stopping(self) -> bool:
        """Whether `close` was called; a long action looks at it."""
        return self._stopping.is_set()

    def _repeat(self) -> None:
        if self._at_once:
            self._try()
        while not self._stopping.wait(self._seconds):
            self._try()

    def _try(self) -> None:
        try:
            self._act()
        except Exception as error:  # noqa: BLE001
            self._failures.failed(error)
        else:
            self._failures.worked()
