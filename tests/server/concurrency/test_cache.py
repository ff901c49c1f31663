"""Computed values are cached, up to a number."""

from server.concurrency.cache import Cache


def test_the_least_recently_used_entry_is_dropped_first():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a", int) == 1
    cache.put("c", 3)
    assert [cache.get(key, int) for key in "abc"] == [1, None, 3]
    assert cache.get("a", str) is None
    cache.put("a", 4)
    assert cache.get("a", int) == 4
