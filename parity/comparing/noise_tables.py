"""Noise tables from files, from which an arm borrows its run-to-run noise."""

from collections.abc import Mapping
from pathlib import Path

from parity.comparing.statements import InputError
from parity.judging.noise.noise_table import (
    ANY_DECODER,
    NoiseTable,
    NoiseTableError,
    read_noise_table,
)
from parity.judging.noise.public_table import public_noise_table
from parity.readers.files.text import os_words
from parity.wording import did_you_mean

_FEW = 4  # families that a refusal lists by name


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


def check_families(
    families: Mapping[str, str], noise_table: NoiseTable, what: str, file: str | None = None
) -> None:
    """Raise InputError for a family by arm that the table does not have; `what` is the option or
    argument that named it.
    """
    for name in families.values():
        if name not in (*noise_table.families, ANY_DECODER):
            raise InputError(
                f"{what} is {name!r}, which the table does not have; "
                f"{expected_family(name, noise_table, file)}"
            )


def expected_family(
    name: str, noise_table: NoiseTable, file: str | None, *, general: bool = True
) -> str:
    """The families of a table (with any-decoder, if `general`); of many only their number, where
    they are listed, and the nearest three.
    """
    names = (*noise_table.families, *([ANY_DECODER] if general else []))
    if len(names) <= _FEW:
        return f"expected {' or '.join(names)}"
    listed = " ".join(["parity noise list", *([file] if file else [])])
    return (
        f"expected one of the {len(names)} that `{listed}` "
        f"prints{did_you_mean(name, names, most=3)}"
    )
