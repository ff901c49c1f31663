"""The objects of JSON: a name that stands twice in one is refused, since json would keep the last
of its values.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any


class NameTwiceError(ValueError):
    """An object of JSON has one name twice."""


def object_of_pairs(
    pairs: Sequence[tuple[str, Any]], *, equal_values_pass: bool = False
) -> dict[str, Any]:
    """An object, for json's `object_pairs_hook`; raises NameTwiceError for a name that is there
    twice, or only for one with two different values (`equal_values_pass`).
    """
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    if not equal_values_pass:
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NameTwiceError(f"{twice[:40]!a} is in one object twice; expected each name once")
    for name, value in pairs:
        if repr(value) != repr(found[name]):  # by repr, so that NaN equals NaN
            raise NameTwiceError(
                f"{name[:40]!r} is {value!r:.40} and {found[name]!r:.40} in one object; "
                "expected one value; remove the other"
            )
    return found
