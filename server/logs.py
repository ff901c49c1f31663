"""Logs: lines of JSON for machines, text on a terminal, with the ids of the request, job and run at hand, and no secrets.

A token or a password of a URL is cut out of the finished line, whatever wrote it there (a traceback, a library's error).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

Style = Literal["auto", "json", "text"]

_BOUND: ContextVar[Mapping[str, object]] = ContextVar("parity_log_context", default=MappingProxyType({}))
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# A token's secret behind its id, the password of any URL, what follows Authorization, and values whose name says that they are secret.
# A name has an end to its length: the time must grow with the line, not with its square, since a stranger's path is in it.
_SECRETS = (
    (re.compile(r"(parity_t[0-9a-f]+-[0-9a-f]+_)[\w-]+"), r"\1***"),
    (re.compile(r"(whsec_)[\w+/=-]+"), r"\1***"),
    (re.compile(r"(\w://[^\s:/@]*:)[^\s/@]+@"), r"\1***@"),
    (re.compile(r"((?i:\b(?:bearer|basic))\s+)[\w.~+/=-]{8,}"), r"\1***"),
    (re.compile(r"""((?i:password|passwd|secret|api_?key|access_?key|auth_?token)\w{0,64}["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
    (re.compile(r"""([A-Z]_TOKEN["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
)


@contextmanager
def bound(**values: object) -> Iterator[None]:
    """Say these values (`request_id`, `job`, `run`, …) with every line that is logged inside the block."""
    token = _BOUND.set({**_BOUND.get(), **values})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(style: Style) -> None:
    """Send every log line of this process to standard error, as JSON unless a terminal reads it (`auto`)."""
    handler = logging.StreamHandler(sys.stderr)
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    handler.setFormatter(Lines() if as_json else Text("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # The application logs each request itself, with its id and without its query.
    logging.getLogger("uvicorn.access").propagate = False


class Lines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_values(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Before as well as after: JSON puts backslashes before quotes, and a pattern would not see what stands between them.
        line = {name: without_secrets(value) if isinstance(value, str) else value for name, value in line.items()}
        return without_secrets(json.dumps(line, default=str))


class Text(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, its values behind the message."""
        values = "".join(f" {name}={value}" for name, value in _values(record).items())
        first, *more = super().format(record).split("\n", 1)
        return without_secrets("\n".join([first + values, *more]))


def _values(record: logging.LogRecord) -> dict[str, object]:
    """What the context and `extra=` add to a record."""
    return {**_BOUND.get(), **{name: value for name, value in vars(record).items() if name not in _OWN}}


def without_secrets(line: str) -> str:
    """The text with *** in the place of each secret, and without NUL, which PostgreSQL keeps in no text."""
    for pattern, replacement in _SECRETS:
        line = pattern.sub(replacement, line)
    return line.replace("\0", "\N{REPLACEMENT CHARACTER}")
