"""Work that takes much memory, or a lock of the process: one request at a time does it, a few wait,
and the others shall retry.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from server.errors import UnavailableError

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
