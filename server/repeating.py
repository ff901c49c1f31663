"""A thread that repeats one action until it is closed, or its process ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_CLOSE_SECONDS = 2.0


class Repeating:
    """Calls `act` every `seconds` in a daemon thread, with `at_once` also at its start. An exception is logged, after `failure`."""

    def __init__(self, name: str, act: Callable[[], object], seconds: float, failure: str, *, at_once: bool = False) -> None:
        self._act, self._seconds, self._failure, self._at_once = act, seconds, failure, at_once
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self._log = logging.getLogger(act.__module__)

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
        except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
            self._log.exception("%s; retrying", self._failure)
