"""The entry point of the command line: it leaves with a documented exit code, and Ctrl-C ends it in
one line at any moment.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

# `infrastructure` in parity.gate.exit_codes, which is not imported yet where this is needed
INTERRUPTED = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a documented code; bad input never ends in a traceback."""
    if arguments is None:  # a process of its own
        _quit_on_interrupt()
        # at exit Python searches no module for cycles, which took a tenth of a short command
        atexit.register(gc.freeze)
    from parity.cli.application import run  # noqa: PLC0415

    sys.exit(run(arguments))


def _quit_on_interrupt() -> None:
    """Leave at once: an exception could get lost in a callback of the interpreter, or be printed,
    while modules are imported or it ends.

    A command that has something to say when it is interrupted handles the signal for as long
    (`parity.cli.jobs.watching.interrupt_leaves_running`).
    """

    def leave(_number: int, _frame: FrameType | None) -> None:
        os.write(2, b"parity: interrupted\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, leave)
