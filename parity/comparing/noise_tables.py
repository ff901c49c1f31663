"""Noise tables from files, from which an arm borrows its run-to-run noise."""

from pathlib import Path

from parity.comparing.statements import InputError
from parity.judging.noise.noise_table import NoiseTable, NoiseTableError, read_noise_table
from parity.judging.noise.public_table import public_noise_table
from parity.readers.files.text import os_words


def read_rerun_table(file: str | None) -> NoiseTable:
    """The table in a file, or the public one; InputError for a file that cannot be read as a
    table.
    """
    if file is None:
        return public_noise_table()
    try:
        return rerun_table(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        words = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else os_words(error)
        raise InputError(
            f"{file}: cannot be read ({words}); expected a noise table (CSV)"
        ) from None


def rerun_table(text: str, source: str) -> NoiseTable:
    """The table in a text that came from `source`. Raises InputError if the text is not a noise
    table.
    """
    try:
        return read_noise_table(text)
    except NoiseTableError as error:
        raise InputError(f"{source}: {error}") from None
