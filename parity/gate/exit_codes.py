"""Exit codes: one table for every command."""

from collections.abc import Iterable, Mapping

EXIT_CODES: Mapping[str, int] = {
    "pass": 0,
    "fail": 1,
    "usage": 2,
    "inconclusive": 3,
    "infrastructure": 4,
    "timeout": 5,
    "other judge": 6,
    "unrecorded": 7,
}


def exit_code(documents: Iterable[Mapping[str, object]]) -> int:
    """The exit code of the worst of several verdicts; that of inconclusive for an empty list."""
    from parity.judging.decision import worst  # noqa: PLC0415

    states = [str(document["verdict"]) for document in documents]
    return EXIT_CODES[worst(states) if states else "inconclusive"]
