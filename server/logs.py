"""Logs: JSON lines for machines, text on a terminal, with the ids of the request, job and run, and
without secrets.

Tokens and passwords in URLs are removed from the finished line, so also from tracebacks and from
errors of libraries.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from types import MappingProxyType
from typing import Literal

Style = Literal["auto", "json", "text"]

_BOUND: ContextVar[Mapping[str, object]] = ContextVar(
    "parity_log_context", default=MappingProxyType({})
)
# Control characters, and what ends a line for some readers.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHOWN = 300  # characters of a path in a log line or an error
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# A token's secret after its id, the password of any URL (up to the last @), what follows
# Authorization, keys that are known by their form (Hugging Face, GitHub, AWS, W&B, JWT, PEM and
# others), and values whose name marks them as secret. Before each pattern stand texts of which, in
# lower case, each match has one: looking for those takes a hundredth of the time, and every request
# writes a line. The time must grow with the line, not with its square, because the line may hold a
# stranger's path: so the length of a name is limited, and no match may begin inside the characters
# that an earlier one has already tried (tests/server/test_logs.py times every pattern).
_NAMES = r"password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]key|(?:auth|access|refresh|private|deploy)[_-]?token"  # noqa: E501
_NAMED = ("passw", "passph", "secret", "key", "token")
_SECRETS = (
    (("parity_",), re.compile(r"(parity_[rt][0-9a-f]+-[0-9a-f]+(?:-\d+)?_)[\w-]+"), r"\1***"),
    (("whsec_",), re.compile(r"(whsec_)[\w+/=-]+"), r"\1***"),
    (("://",), re.compile(r"(\w://[^\s:/@]*:)[^\s/]+@"), r"\1***@"),
    (
        ("hf_", "gh", "github_pat_", "wandb_"),
        re.compile(r"\b(hf_|gh[opsur]_|github_pat_|wandb_v1_)\w{16,}"),
        r"\1***",
    ),
    (
        ("sk-", "gl", "xox", "xapp-", "nvapi-", "npm_", "aiza", "pypi-", "hvs."),
        re.compile(
            r"\b(sk-(?:ant|proj|svcacct|admin|or)-|gl(?:pat|dt|rt|soat|ptt|cbt|ft|imt|agent)-|xox[abeoprs]-|xapp-|nvapi-|npm_|AIza|pypi-|hvs\.)[\w-]{16,}"
        ),
        r"\1***",
    ),
    (("sk-",), re.compile(r"\b(sk-)[A-Za-z0-9]{32,}\b"), r"\1***"),
    (("akia", "asia"), re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), r"\1***"),
    (("eyj",), re.compile(r"(?<![\w-])(eyJ)[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), r"\1***"),
    # 40 digits alone may be a commit.
    (
        ("wandb", "local-"),
        re.compile(r"((?i:wandb)[^\n]{0,80}?\b|\blocal-)[0-9a-f]{40}\b"),
        r"\1***",
    ),
    (
        ("private key",),
        re.compile(
            r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END [A-Z ]{0,40}PRIVATE "
            r"KEY-----|\Z)",
            re.DOTALL,
        ),
        r"\1***\2",
    ),
    (("bearer", "basic"), re.compile(r"((?i:\b(?:bearer|basic))\s+)[\w.~+/=-]{8,}"), r"\1***"),
    (_NAMED, re.compile(rf"""((?i:{_NAMES})\w{{0,64}}["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
    # As a command has it.
    (
        _NAMED,
        re.compile(
            rf"""(--[\w-]{{0,64}}?(?i:{_NAMES}|token)["']?,?\s+["']?)[^\s"',;-][^\s"',;]*"""
        ),
        r"\1***",
    ),
    (("token",), re.compile(r"""([A-Z]_TOKEN["']?\s*[=:]\s*["']?)[^\s"',;]+"""), r"\1***"),
)


@contextmanager
def bound(**values: object) -> Iterator[None]:
    """Add these values (`request_id`, `job`, `run`, …) to every line that is logged inside the
    block.
    """
    token = _BOUND.set({**_BOUND.get(), **values})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(style: Style, *, aside: bool = False) -> None:
    """Send every log line of this process to standard error; `auto` writes text on a terminal and
    JSON elsewhere.

    `aside` formats and writes the lines in a thread of their own, for a process whose event loop
    must not wait for them.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    handler.setFormatter(
        Lines() if as_json else Text("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    for old in root.handlers:
        if isinstance(old, Aside):
            old.close()
    root.handlers[:] = [Aside(handler) if aside else handler]
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
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_values(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Before as well as after: JSON escapes quotes, and the patterns would miss a value between
        # escaped quotes.
        line = {
            name: without_secrets(value) if isinstance(value, str) else value
            for name, value in line.items()
        }
        return without_secrets(json.dumps(line, default=str))


class Text(logging.Formatter):
    """Text in which nobody can forge a line: only a record's first line begins at the margin, and
    control characters are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record: the message, then its values; further lines and a traceback follow,
        indented.
        """
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        first, *more = without_secrets(self.formatMessage(record)).split("\n")
        values = "".join(
            f" {name}={_escaped(without_secrets(str(value)))}"
            for name, value in _values(record).items()
        )
        if record.exc_info:
            more += without_secrets(self.formatException(record.exc_info)).split("\n")
        return "\n    ".join([_escaped(first) + without_secrets(values), *map(_escaped, more)])


class Aside(QueueHandler):
    """Hands records to another handler in a thread of its own, with what is bound where they were
    logged.
    """

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__(SimpleQueue())
        self._listener: QueueListener | None = QueueListener(self.queue, handler)
        self._listener.start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record with its text, since what it was made from may change before it is written."""
        prepared = copy(record)  # other handlers get the record too
        prepared.msg, prepared.args = record.getMessage(), None
        for name, value in _BOUND.get().items():
            vars(prepared).setdefault(name, value)
        return prepared

    def close(self) -> None:
        """Write what is left; `logging` calls it when the process exits."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
        super().close()


def _escaped(text: str) -> str:
    """The text with its control characters as escapes, so that it stays on its line and tells a
    terminal nothing.
    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def _values(record: logging.LogRecord) -> dict[str, object]:
    """The values that the context and `extra=` add to a record."""
    return {
        **_BOUND.get(),
        **{name: value for name, value in vars(record).items() if name not in _OWN},
    }


def without_secrets(line: str) -> str:
    """The text with *** in place of each secret, and without NUL characters, which PostgreSQL
    cannot store.
    """
    lower = line.casefold()
    for texts, pattern, replacement in _SECRETS:
        if any(text in lower for text in texts):
            line = pattern.sub(replacement, line)
    return line.replace("\0", "\N{REPLACEMENT CHARACTER}")


def cut(text: object) -> str:
    """A path, or a part of one, for a log line or an error: what is longer than 300 characters ends
    in an ellipsis.
    """
    whole = str(text)
    if len(whole) <= _SHOWN:
        return whole
    return f"{whole[:_SHOWN]}…"
