"""What was computed lately is kept, up to a number."""

from server.web.cache import Recent


def test_what_was_asked_for_longest_ago_goes_first():
    recent = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    assert recent.get("a", int) == 1
    recent.keep("c", 3)
    assert [recent.get(key, int) for key in "abc"] == [1, None, 3]
    assert recent.get("a", str) is None
    recent.keep("a", 4)
    assert recent.get("a", int) == 4
