"""A clock that can be set wrong: every process of the fault matrix reads its error, in seconds,
from a file of its own.
"""

import os
import time
from pathlib import Path

_PATH = os.environ.get("PARITY_TEST_CLOCK")
_true = time.time


def _wrong() -> float:
    try:
        return _true() + float(Path(str(_PATH)).read_text() or 0)
    except (OSError, ValueError):
        return _true()


if _PATH:
    time.time = _wrong
