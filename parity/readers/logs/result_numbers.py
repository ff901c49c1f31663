"""Which runs the names of result files count, and which of those are not there."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_NUMBER = re.compile(r"(.*?)([0-9]+)[^0-9]*", re.DOTALL)
_RESULT = "result_"  # of MLPerf's own names, which count from 0


def numbering_problem(paths: Sequence[Path]) -> str | None:
    """What is wrong with the numbers of a folder's result files: one that is skipped, one of two
    files, or one of a file that is there and not among them.
    """
    numbers = _numbers(paths)
    for prefix, found in sorted(numbers.items()):
        if repeated := [number for number, files in Counter(found).items() if files > 1]:
            return f"two files are number {repeated[0]}: is one of them a copy?"
        if unread := _unread_file(paths, prefix, found):
            return f"{unread.name} was left out: no MLPerf event, or not .txt, .log or .out"
        missing = _first_missing(prefix, found)
        if missing is not None:
            return f"run {missing} is missing: were runs left out?"
    return None


def _numbers(paths: Sequence[Path]) -> dict[str, list[int]]:
    """Numbers by what stands before them in the names."""
    numbers: dict[str, list[int]] = {}
    for path in paths:
        if place := _place(path.stem):
            numbers.setdefault(place[0], []).append(place[1])
    return numbers


def _place(name: str) -> tuple[str, int] | None:
    match = _NUMBER.fullmatch(name)
    return (match[1].casefold(), int(match[2])) if match else None


def _unread_file(paths: Sequence[Path], prefix: str, found: Sequence[int]) -> Path | None:
    """A file beside these whose name, with or without its suffixes, has a further number."""
    for file in sorted(paths[0].parent.iterdir()):
        if file in paths or not file.is_file():
            continue
        ends = [*(match.start() for match in re.finditer(r"\.", file.name)), len(file.name)]
        places = [_place(file.name[:end]) for end in ends]
        if any(place and place[0] == prefix and place[1] not in found for place in places):
            return file
    return None


def _first_missing(prefix: str, found: Sequence[int]) -> int | None:
    """The first number that is skipped; names other than MLPerf's may count from 1."""
    if len(found) == 1 and prefix != _RESULT:
        return None
    start = 0 if prefix == _RESULT else min(1, *found)
    return next(
        (number for number, there in enumerate(sorted(found), start) if number != there), None
    )
