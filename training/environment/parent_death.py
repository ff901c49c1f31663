"""Commands that end when the process that started them dies, `kill -9` included (Linux: prctl(2),
PR_SET_PDEATHSIG).
"""

import os
import sys
from collections.abc import Sequence

# A small process sets the death signal and then becomes the command: code between fork and exec
# (`preexec_fn`) may deadlock if threads run, and jax has threads. The parent may die before the
# signal is set, so the process checks for that afterwards.
_WRAPPER = """
import ctypes, os, sys
parent, signal, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
ctypes.CDLL(None).prctl(1, signal)
if os.getppid() != parent:
    sys.exit(128 + signal)
try:
    os.execvp(command[0], command)
except OSError as error:
    sys.exit(f"{command[0]} can't be started: {error}")
"""


def ends_with_parent(command: Sequence[str], signal: int) -> list[str]:
    """Returns the command to start instead, which gets `signal` when the thread that starts it has
    ended; unchanged if not on Linux.

    If the command can't be started, it ends with status 1 and a sentence on standard error.
    """
    if sys.platform != "linux":
        return list(command)
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _WRAPPER,
        str(os.getpid()),
        str(int(signal)),
        *command,
    ]
