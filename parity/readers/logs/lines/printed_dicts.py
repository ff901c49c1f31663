"""Dicts that Python printed over several lines, each as one line."""

import re

LONGEST_DICT = 1 << 12  # characters; what is longer is no record of a step
_OPEN = re.compile(r"\{['\"][^{}]*")
_DICT = re.compile(r"\{['\"][^{}\n]{0,4096}\n[^{}]{0,4096}\}")


def joined_dicts(text: str) -> str:
    """The text with each dict on one line; behind it follow as many line feeds as were in it, so
    that lines keep their numbers.
    """
    # which is faster than not to find the pattern
    if "{" not in text or ",\n" not in text:
        return text
    return _DICT.sub(_joined, text)


def open_dict(text: str) -> int:
    """Where a dict begins whose end the text does not have yet; the text's length where none
    does.
    """
    start = text.rfind("{", max(0, len(text) - LONGEST_DICT))
    if start < 0 or _OPEN.fullmatch(text, start) is None:
        return len(text)
    return start


def _joined(found: re.Match[str]) -> str:
    if len(found[0]) > LONGEST_DICT:
        return found[0]
    return re.sub(r"[ \t]*\n[ \t]*", " ", found[0]) + "\n" * found[0].count("\n")
