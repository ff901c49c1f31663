"""What a command prints, for the pages that show it."""

import contextlib
import io
import shlex

from parity.cli import main as parity
from tools.tables.generated import ROOT


def run(command: str) -> str:
    """What a command prints, run in this process from the root of the checkout."""
    printed = io.StringIO()
    aside = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(aside),
        contextlib.chdir(ROOT),
        contextlib.suppress(SystemExit),
    ):
        parity(shlex.split(command.replace("\\\n", " "))[1:])
    return printed.getvalue()
