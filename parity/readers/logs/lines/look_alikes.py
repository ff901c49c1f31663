"""How many lines look like those that were read, and were not read."""

import re

from parity.readers.logs.lines.line import LONGEST

MOST_SKELETONS = 4096  # that are remembered
_VALUES = re.compile(
    r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|\b(?:nan|inf(?:inity)?|none|null)\b|\s+"
    r"|(?<=[\s:=|])[-–—?]{1,3}(?=[\s,;|]|$)",  # what stands where no number does
    re.IGNORECASE,
)


def loose(line: str) -> str:
    """What a line is but for its numbers and blanks: lines that are alike in this are printed by
    one statement.
    """
    return _VALUES.sub(lambda match: "" if match[0].isspace() else "0", line[:LONGEST])


class LookAlikes:
    """How many lines look like those with a training loss that were read, and were not read:
    numbers of lines by what they look like.
    """

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self.without_number = 0
        """How many lines have no number behind the name of the training loss."""
        self.said_not_finite = 0
        """Of lines that are taken in their order: how many say that a loss was not finite."""

    @property
    def has_read(self) -> bool:
        """Whether a line with a training loss was read."""
        return bool(self._read)

    def count(self, line: str, read: int, others: int) -> None:
        """Count lines that look alike: those that were `read` with a training loss, and the
        `others`.
        """
        key = loose(line)
        if read:
            self._read[key] = self._read.get(key, 0) + read
        if others and (key in self._others or len(self._others) < MOST_SKELETONS):
            self._others[key] = self._others.get(key, 0) + others

    @property
    def unread(self) -> int:
        """How many lines were not read that look like one that was."""
        alike = sum(number for key, number in self._others.items() if key in self._read)
        return alike + self.without_number
