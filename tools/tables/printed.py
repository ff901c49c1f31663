"""What commands print, for the pages that show it."""

import contextlib
import io
import shlex
from pathlib import Path

from parity.cli import main as parity
from tools.tables.generated import ROOT


def run(command: str, folder: Path = ROOT) -> str:
    """What a command prints, run in this process from a folder: the root of the checkout."""
    printed = io.StringIO()
    aside = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(aside),
        contextlib.chdir(folder),
        contextlib.suppress(SystemExit),
    ):
        parity(shlex.split(command.replace("\\\n", " "))[1:])
    return printed.getvalue()


def example(command: str, folder: Path = ROOT, before: str = "") -> str:
    """A command and what it prints, as blocks of a page; without what follows from the first line
    on that begins with `before`, where that is set.
    """
    lines = [line.rstrip() for line in run(command, folder).rstrip("\n").splitlines()]
    if before:
        at = next(number for number, line in enumerate(lines) if line.startswith(before))
        lines = [*"\n".join(lines[:at]).rstrip("\n").splitlines(), "…"]
    shown = "\n".join(lines)
    return f"```sh\n{command}\n```\n\n```\n{shown}\n```"
