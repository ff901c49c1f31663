"""The command as it was typed, for next steps that repeat it with an option added."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar

_COLUMN = "--column"
_PAGE, _OPEN = "--html", "--open"
_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words")


def remember_command(arguments: Sequence[str] | None) -> None:
    """Keep the words of a command, those of the process where there are none."""
    _WORDS.set(tuple(sys.argv[1:] if arguments is None else arguments))


def typed_command(instead: Mapping[str, str] | None = None, further: Sequence[str] = ()) -> str:
    """The command, quoted for a shell; `instead` has what stands in place of words, also behind
    NAME=, `further` are options behind it, which replace those for the same column.
    """
    words = list(_WORDS.get(()))
    for old, new in (instead or {}).items():
        # a word that begins with a dash would be an option
        alone = f"{new.rpartition(':')[2]}={new}" if new.startswith("-") else new
        words = [alone if word == old else word for word in words]
        words = [
            f"{word.removesuffix(old)}{new}" if word.endswith(f"={old}") else word for word in words
        ]
    return shlex.join(["parity", *_without_columns(words, further), *further])


def _without_columns(words: Sequence[str], further: Sequence[str]) -> list[str]:
    """The words without options for columns that further ones name, for the same file or for all
    of them.
    """
    named = {word.partition("=")[0] for word in further if "=" in word}
    kept: list[str] = []
    for word in words:
        option, _, rest = word.partition("=")
        is_apart = bool(kept) and kept[-1] == _COLUMN
        place = option if is_apart else rest.partition("=")[0]
        if not (is_apart or option == _COLUMN) or not {place, place.rpartition(":")[2]} & named:
            kept.append(word)
        elif is_apart:
            kept.pop()
    return kept


def without_page(command: str) -> str:
    """The command without the options that write and open a page: what it says there is read
    elsewhere, too.
    """
    words, kept = iter(shlex.split(command)), list[str]()
    for word in words:
        if word == _PAGE:
            next(words, None)
        elif word != _OPEN and not word.startswith(f"{_PAGE}="):
            kept.append(word)
    return shlex.join(kept)


def without_option(command: str, name: str) -> str:
    """The command without an option that takes no value."""
    return shlex.join(word for word in shlex.split(command) if word != name)
