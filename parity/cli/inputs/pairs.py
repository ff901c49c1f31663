"""NAME=VALUE items of an option."""

from collections.abc import Sequence

from parity.cli.terminal.wrong_calls import UsageError


def pairs(items: Sequence[str], flag: str, shape: str = "NAME=VALUE") -> dict[str, str]:
    """NAME=VALUE items as a dict; `shape` is what the error expects."""
    return dict(pair(item, flag, shape) for item in items)


def pair(item: str, flag: str, shape: str = "NAME=FILE") -> tuple[str, str]:
    """A NAME=VALUE item; `shape` is what the error expects."""
    key, _, value = item.partition("=")
    if not key or not value:
        raise UsageError(f"{flag} is {item!r}; expected {shape}")
    return key, value
