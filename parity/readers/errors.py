"""Why a file or a tracker cannot be read as a run."""

from collections.abc import Sequence


class ReadError(ValueError):
    """A file cannot be read as a run; the message is one line with file, line number, what was
    expected and what to do.
    """


class ColumnError(ReadError):
    """A table in which a quantity is in no column, or could be in several; `names` are those of its
    columns.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = names


class UnreachableSourceError(ReadError):
    """A tracker's server did not answer, or refused for now; the message has the server's
    reason.
    """


class NoLossError(ColumnError):
    """A file without a training loss, such as one of evaluations only."""


class SeveralRunsError(ReadError):
    """A file or folder of several runs, none of which was named; `names` lists what to type for
    each.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names
