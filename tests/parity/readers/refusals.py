"""Whether a reader refuses what it is given."""

from collections.abc import Callable

from parity.readers.errors import ReadError


def is_refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except ReadError:
        return True
    return False
