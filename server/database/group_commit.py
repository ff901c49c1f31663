"""Group commit: the small writes of many threads share a transaction.

A transaction costs a database much the same for one small write as for fifty. Writers queue: the first writes for all that wait, and each
returns after the commit of its own write. A writer on its own waits for nobody; when many write, the first gives the others a millisecond.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from server.database.sessions import Database

Item = TypeVar("Item")
Result = TypeVar("Result")
_LARGEST_GROUP = 64
_MANY = 8  # in the group before
_GATHER_SECONDS = 0.001  # long enough for the writers of the group before to come again; else they and the others take turns


@dataclass(eq=False, slots=True)
class _Turn(Generic[Item, Result]):
    """A write that waits for its turn: `results` has its result once a group with it was committed."""

    item: Item
    leads: bool = False
    # Held until it is this turn's turn, or it was written; an Event would take several times as long.
    asleep: threading.Lock = field(default_factory=threading.Lock)
    results: list[Result] = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.asleep.acquire()


class GroupCommit(Generic[Item, Result]):
    """Writes items of many threads in shared transactions.

    `write` writes some of them in a session and returns a result for each. Two with the same `key` are never in one group.
    """

    def __init__(self, database: Database, write: Callable[[Session, Sequence[Item]], Sequence[Result]], key: Callable[[Item], Hashable]):
        self._database = database
        self._write = write
        self._key = key
        self._lock = threading.Lock()
        self._queue: deque[_Turn[Item, Result]] = deque()
        self._led = False
        self._latest = 0

    def submit(self, item: Item) -> Result:
        """Write an item; returns its result after the commit.

        If a group fails, each of its items is written again in a transaction of its own, so one item's error is never another's. Only a
        lost connection is the error of all: none of them would fare better.
        """
        turn: _Turn[Item, Result] = _Turn(item)
        with self._lock:
            self._queue.append(turn)
            if not self._led:
                self._led = turn.leads = True
        if not turn.leads:
            turn.asleep.acquire()
        if turn.leads:
            self._lead()
        if turn.error is not None:
            raise turn.error
        return turn.results[0] if turn.results else self._write_group([turn])[0]

    def _lead(self) -> None:
        """Write the first of the queue, and all that can share its transaction; then the next in the queue leads."""
        if self._latest >= _MANY:
            time.sleep(_GATHER_SECONDS)
        with self._lock:
            group = self._next_group()
            self._latest = len(group)
        try:
            for turn, result in zip(group, self._write_group(group), strict=True):
                turn.results.append(result)
        except Exception as error:  # noqa: BLE001 (each turn raises its own error where it is written alone)
            if len(group) == 1 or (isinstance(error, DBAPIError) and error.connection_invalidated):
                for turn in group:
                    turn.error = error
        finally:
            with self._lock:
                following = self._queue[0] if self._queue else None
                self._led = following is not None
            if following is not None:
                following.leads = True
                following.asleep.release()
            for turn in group:
                turn.asleep.release()

    def _next_group(self) -> list[_Turn[Item, Result]]:
        """Take the first of the queue and those that can be written with it; the others keep their order."""
        group: dict[Hashable, _Turn[Item, Result]] = {}
        left: list[_Turn[Item, Result]] = []
        while self._queue and len(group) < _LARGEST_GROUP:
            turn = self._queue.popleft()
            if group.setdefault(self._key(turn.item), turn) is not turn:
                left.append(turn)
        self._queue.extendleft(reversed(left))
        return [*group.values()]

    def _write_group(self, group: Sequence[_Turn[Item, Result]]) -> Sequence[Result]:
        with self._database.write() as session:
            return self._write(session, [turn.item for turn in group])
