"""What every verb prints: verdicts to stdout as text, JSON or Markdown, reports to files, and the error for a wrong call."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from parity.judging.document_types import VerdictDocument
from parity.report.markdown import render_markdown
from parity.report.text import render_json, render_text

WIDTH = 80


class UsageError(Exception):
    """The call is wrong: what the caller has to change, in one line."""


def show(documents: Sequence[VerdictDocument], *, as_json: bool, markdown: bool) -> None:
    """Print verdict documents to stdout as text, canonical JSON or Markdown."""
    if as_json and markdown:
        raise UsageError("--json and --markdown exclude each other; expected one of them")
    if as_json or markdown:
        sys.stdout.write(render_json(documents) if as_json else render_markdown(documents))
    else:
        Console(width=WIDTH, highlight=False).print(render_text(documents, WIDTH))


def write_file(path: str, data: bytes) -> None:
    """Write a report to a file; UsageError where that can't be done."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: can't be written ({error.strerror})") from None
