"""Logs: JSON lines for machines, text on a terminal, with the ids of the request, job and run, and without secrets.

Tokens and passwords in URLs are removed from the finished line, so also from tracebacks and from errors of libraries.
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
# A token's secret after its id, the password of any URL (up to the last @), what follows Authorization, keys that are known by their form
# (Hugging Face, GitHub, AWS, W&B, JWT, PEM), and values whose name marks them as secret.
# The length of a name is limited: the time must grow with the line, not with its square, because the line may hold a stranger's path.
_SECRETS = (
    (re.compile(r"(parity_[rt][0-9a-f]+-[0-9a-f]+(?:-\d+)?_)[\w-]+"), r"\1***"),
    (re.compile(r"(whsec_)[\w+/=-]+"), r"\1***"),
    (re.compile(r"(\w://[^\s:/@]*:)[^\s/]+@"), r"\1***@"),
    (re.compile(r"\b(hf_|gh[opsur]_|github_pat_|wandb_v1_)\w{16,}"), r"\1***"),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), r"\1***"),
    (re.compile(r"\b(eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), r"\1***"),
    # 40 digits alone may be a commit.
    (re.compile(r"((?i:wandb)[^\n]{0,80}?\b|\blocal-)[0-9a-f]{40}\b"), r"\1***"),
    (re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL), r"\1***\2"),
    (re.compile(r"((?i:\b(?:bearer|basic))\s+)[\w.~+/=-]{8,}"), r"\1***"),
    (re.compile(r"""((?i:password|passwd|secret|api_?key|access_?key|auth_?token)\w{0,64}["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
    (re.compile(r"""([A-Z]_TOKEN["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
)


@contextmanager
def bound(**values: object) -> Iterator[None]:
    """Add these values (`request_id`, `job`, `run`, …) to every line that is logged inside the block."""
    token = _BOUND.set({**_BOUND.get(), **values})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(style: Style) -> None:
    """Send every log line of this process to standard error; `auto` writes text on a terminal and JSON elsewhere."""
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
    """One JSON object per line."""

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
        # Before as well as after: JSON escapes quotes, and the patterns would miss a value between escaped quotes.
        line = {name: without_secrets(value) if isinstance(value, str) else value for name, value in line.items()}
        return without_secrets(json.dumps(line, default=str))


class Text(logging.Formatter):
    """One line of plain text."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record: the message, then its values."""
        values = "".join(f" {name}={value}" for name, value in _values(record).items())
        first, *more = super().format(record).split("\n", 1)
        return without_secrets("\n".join([first + values, *more]))


def _values(record: logging.LogRecord) -> dict[str, object]:
    """The values that the context and `extra=` add to a record."""
    return {**_BOUND.get(), **{name: value for name, value in vars(record).items() if name not in _OWN}}


def without_secrets(line: str) -> str:
    """The text with *** in place of each secret, and without NUL characters, which PostgreSQL cannot store."""
    for pattern, replacement in _SECRETS:
        line = pattern.sub(replacement, line)
    return line.replace("\0", "\N{REPLACEMENT CHARACTER}")
