"""The entry point of the command line: it leaves with a documented exit code, and Ctrl-C ends it in one line at any moment."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 4  # `infrastructure` in parity.cli.terminal, which is not imported yet where this is needed


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented code; bad input never ends in a traceback."""
    as_process = arguments is None
    if as_process:
        _quit_on_interrupt()
    from parity.cli.application import run  # noqa: PLC0415  (takes a second or two, in which Ctrl-C may come)

    try:
        if as_process:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(arguments)
    except KeyboardInterrupt:  # before or after `run` handles it itself
        sys.stderr.write("parity: interrupted\n")
        code = INTERRUPTED
    if as_process:
        _quit_on_interrupt()
    sys.exit(code)


def _quit_on_interrupt() -> None:
    """While modules are imported or the interpreter shuts down an exception could get lost or printed: leave at once instead."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os.write(2, b"parity: interrupted\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, leave)
