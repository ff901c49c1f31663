"""Exit codes: one table for every verb."""

from collections.abc import Iterable, Mapping
from typing import Any

EXIT_CODES: Mapping[str, int] = {"pass": 0, "fail": 1, "usage": 2, "inconclusive": 3, "infrastructure": 4, "timeout": 5}
_WORST_FIRST = ("fail", "inconclusive", "pass")


def exit_code(documents: Iterable[Mapping[str, Any]]) -> int:
    """The exit code of several verdicts: the worst of fail, inconclusive, pass; inconclusive where there is none."""
    found = {str(document["verdict"]) for document in documents}
    return next((EXIT_CODES[state] for state in _WORST_FIRST if state in found), EXIT_CODES["inconclusive"])
