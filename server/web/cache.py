"""What was computed lately, kept in memory: a bounded table that forgets what was asked for longest ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

T = TypeVar("T")


class Recent:
    """Values by key, at most so many of them; safe to use from several threads."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._kept: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, kind: type[T]) -> T | None:
        """The value, where it is still here; `kind` is its type."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            found = self._kept[key]
        return found if isinstance(found, kind) else None

    def keep(self, key: Hashable, value: object) -> None:
        """Keep a value, in the place of what the key had before."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
