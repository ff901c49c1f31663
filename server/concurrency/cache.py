"""Computed values, cached in memory: a bounded table that drops the least recently used entry."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

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
