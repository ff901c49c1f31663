"""Tables of reruns from files, from which an arm borrows its run noise."""

from pathlib import Path

from parity.comparing.stated import InputError
from parity.judging.floors.groups import Floors, FloorsError, read_floors
from parity.judging.floors.public import public_floors
from parity.readers.source import os_words


def read_rerun_table(file: str | None) -> Floors:
    """The table in a file, or the public one; InputError for a file that cannot be read as a table."""
    if file is None:
        return public_floors()
    try:
        return rerun_table(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(f"{file}: cannot be read ({words}); expected a table of reruns (CSV)") from None


def rerun_table(text: str, source: str) -> Floors:
    """The table in a text that came from `source`. Raises InputError if the text is not a table of reruns."""
    try:
        return read_floors(text)
    except FloorsError as error:
        raise InputError(f"{source}: {error}") from None
