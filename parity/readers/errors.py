"""Why a file or a tracker cannot be read as a run."""

from collections.abc import Callable, Mapping, Sequence

Form = Callable[[Mapping[str, str]], str]
"""How names of columns by quantity, or a pattern, are typed."""


class ReadError(ValueError):
    """A file cannot be read as a run; the message is one line with file, line number, what was
    expected and what to do.

    `tries` are names of columns by quantity, or a pattern, each of which was tried on the file, and
    reads it; `source` is that file. `said` is the message without them.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.said = message
        self.source = ""
        self.tries: Sequence[Mapping[str, str]] = ()
        self.form: Form | None = None
        self.words: Sequence[Sequence[str]] = ()
        """Options that make the typed command read all of its files."""
        self.instead: Mapping[str, str] = {}
        """What to type in place of a file, where it holds several runs."""

    def propose(self, said: str, tries: Sequence[Mapping[str, str]], form: Form) -> None:
        """Say what to type in this form."""
        self.said, self.tries, self.form = said, tries, form
        self.args = (f"{said}; read it with {' or '.join(map(form, tries))}",)

    def refuse_tries(self, why: str) -> None:
        """Say that nothing that reads the file would do, and why."""
        self.tries, self.form = (), None
        self.args = (f"{self.said}; {why}",)


class ColumnError(ReadError):
    """A table in which a quantity is in no column, or could be in several; `names` are those of its
    columns.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = names


class TwoLossesError(ReadError):
    """A log whose lines, such as `line`, have two numbers for one loss."""

    def __init__(self, message: str, line: str) -> None:
        super().__init__(message)
        self.line = line


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
