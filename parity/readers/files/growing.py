"""Files of lines that may still grow: each line counts as soon as its end is there.

What needs more than a line of a log is decided when its columns are asked for, from all lines so
far: whether the steps are printed or numbers of lines, and which progress bar is that of the
training. So the columns depend on the text alone, never on the pieces in which it came, and later
lines may revise them.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import OPTION, STEP
from parity.readers.errors import ColumnError, ReadError
from parity.readers.files.last_line import TAIL, hides_a_loss, is_complete

STEP_ADVICE = OPTION.format(STEP)
"""What an error ends in where another column may be the step."""


class Growing(ABC):
    """A file of lines that may still grow: its text is fed in pieces of any size, and a line counts
    as soon as its end has come.

    `columns` gives the run so far, from the whole lines alone, and depends on the text, never on
    its pieces; the rows of a file that only grows stay as they are, unless the class says what may
    revise them. Both raise ReadError as the whole file would.
    """

    _ENDS: tuple[str, ...] = ("\n",)

    def __init__(self, source: str) -> None:
        self._source = source
        self._torn: list[str] = []
        self._lines = 0
        """Line feeds of the lines that were taken."""
        self._before = ""
        """The end of the whole lines."""

    def feed(self, text: str) -> None:
        """Take the next characters of the file."""
        end = max(map(text.rfind, self._ENDS)) + 1
        if end:
            whole = "".join((*self._torn, text[:end]))
            self._torn = []
            self._before = (self._before + whole[-TAIL:])[-TAIL:]
            self._take(whole)
            self._lines += whole.count("\n")
        if text[end:]:
            self._torn.append(text[end:])

    def read(self, text: str) -> RunColumns:
        """Columns of a file that is whole."""
        try:
            self.feed(text)
            return self.whole()
        except ColumnError:
            raise
        except ReadError as error:
            if self.column_names and STEP_ADVICE in str(error):
                raise ColumnError(str(error), self.column_names) from None
            raise

    def whole(self) -> RunColumns:
        """The columns of a whole file, with its last line where that has no end."""
        if self._torn:
            self.feed("\n")
        return self.columns()

    @property
    def column_names(self) -> Sequence[str]:
        """The names of its columns, where it is a table."""
        return ()

    @abstractmethod
    def _take(self, text: str) -> None:
        """Read whole lines, which follow `self._lines` others."""

    @abstractmethod
    def columns(self) -> RunColumns:
        """The run so far, from whole lines."""


class GrowingLog(Growing):
    """A log that may still grow: the states of a progress bar are lines, too, and a last line
    without its end may be cut. Of a file that is whole it counts where nothing of it is missing
    (`parity.readers.files.last_line`).
    """

    _ENDS = ("\n", "\r")

    def whole(self) -> RunColumns:
        last = "".join(self._torn)
        if not last.strip():
            return self.columns()
        losses = self._losses_of(last)
        if losses and is_complete(last, self._before, losses):
            self.feed("\n")
            return self.columns()
        if hides_a_loss(last, self._before, self._losses_of):
            return cut(self.columns())
        if losses:
            return left_out(self.columns())
        return self.columns()

    @abstractmethod
    def _losses_of(self, last: str) -> Sequence[float]:
        """The training losses of a last line without its end."""


def left_out(columns: RunColumns) -> RunColumns:
    """The columns of a file whose last line may be cut, and had an ordinary loss."""
    if _ends_without_loss(columns):  # at a step of its own, or at that of the line that is cut
        return cut(columns)
    return columns.noted("the last line has a loss, but no end: left out, because it may be cut")


def cut(columns: RunColumns) -> RunColumns:
    """The columns of a file whose last line is cut, so that its loss may be any: that of the last
    step, too, where none is written there.
    """
    steps, absent = columns.values[STEP], columns.absent
    if absent is not None and _ends_without_loss(columns):
        kept = ~(absent & (steps == steps[-1]))
        values = {name: column[kept] for name, column in columns.values.items()}
        columns = dataclasses.replace(columns, values=values, absent=absent[kept])
    return dataclasses.replace(columns, is_cut=True).noted(
        "the last line has no end, and its loss may be any: left out"
    )


def _ends_without_loss(columns: RunColumns) -> bool:
    return columns.absent is not None and bool(columns.absent[-1:].any())
