"""A clock that can be set wrong: every process of the fault matrix reads its error, in seconds, from a file of its own."""

import os
import time

_PATH = os.environ.get("PARITY_TEST_CLOCK")
_true = time.time


def _wrong() -> float:
    try:
        with open(_PATH) as stream:
            return _true() + float(stream.read() or 0)
    except (OSError, ValueError):
        return _true()


if _PATH:
    time.time = _wrong
