"""The command as it was typed, for next steps that repeat it with an option added."""

import shlex
import sys
from collections.abc import Sequence
from contextvars import ContextVar

_PAGE, _OPEN = "--html", "--open"
_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words")


def remember_command(arguments: Sequence[str] | None) -> None:
    """Keep the words of a command, those of the process where there are none."""
    _WORDS.set(tuple(sys.argv[1:] if arguments is None else arguments))


def typed_command(instead: tuple[str, str] | None = None) -> str:
    """The command, quoted for a shell; `instead` is a word and what stands in its place."""
    words = list(_WORDS.get(()))
    if instead is not None and instead[0] in words:
        words[words.index(instead[0])] = instead[1]
    return shlex.join(["parity", *words])


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
