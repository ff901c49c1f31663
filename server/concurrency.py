"""What threads of an API process share: a bounded cache, turns for work that needs much memory, and
actions that repeat.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from server.errors import UnavailableError

# Computed values, cached in memory: a bounded table that drops the least recently used entry.

T = TypeVar("T")


class Cache:
    """Up to `size` values by key; safe to use from several threads."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, kind: type[T]) -> T | None:
        """The cached value of a key if it has this type, else None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            value = self._values[key]
        if not isinstance(value, kind):
            return None
        return value

    def put(self, key: Hashable, value: object) -> None:
        """Cache a value; replaces an earlier value of the same key."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)


# Work that takes much memory, or a lock of the process: one request at a time does it, a few wait,
# and the others shall retry.

_MOST = 4


class Turns:
    """The turns of requests at something that is done for one at a time. Hold no database
    connection while you wait for one.
    """

    def __init__(self, doing: str) -> None:
        """`doing` is what a turn is for, as in "drawing figures"."""
        self._doing = doing
        self._places = threading.BoundedSemaphore(_MOST)
        self._turn = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for the turn and hold it; UnavailableError if enough requests wait or work
        already.
        """
        if not self._places.acquire(blocking=False):
            raise UnavailableError(
                f"the server is {self._doing} for {_MOST} other requests, the most at a time; "
                "retry in a moment"
            )
        try:
            with self._turn:
                yield
        finally:
            self._places.release()


# A thread that repeats one action until it is closed, or its process ends.

_CLOSE_SECONDS = 2.0
_AGAIN_SECONDS = 60.0


class Repeating:
    """Calls `act` every `seconds` in a daemon thread, with `at_once` also at its start.

    An exception is logged, after `failure`; while the same kind goes on, as in an outage, one line
    a minute says so.
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
        self._act, self._seconds, self._failure, self._at_once = act, seconds, failure, at_once
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self._log = logging.getLogger(act.__module__)
        self._failed_with: type[Exception] | None = None
        self._logged_at = 0.0

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
            self._failed_with = None
        except Exception as error:  # noqa: BLE001
            if type(error) is not self._failed_with:
                self._log.exception("%s; retrying", self._failure)
            elif time.monotonic() >= self._logged_at + _AGAIN_SECONDS:
                self._log.error("%s, as before (%s); retrying", self._failure, type(error).__name__)
            else:
                return
            self._failed_with, self._logged_at = type(error), time.monotonic()
