"""Ctrl-C ends the command line in one line at any moment: while modules are imported, while files
are read, while a server is awaited.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from parity.cli import INTERRUPTED

WORDS = ["-m", "parity", "compare"]


def _interrupted(
    words: list[str], wait: Callable[[], object], stdin: int = subprocess.DEVNULL
) -> tuple[int, str]:
    """Exit code and stderr of a process that gets SIGINT after `wait`, which begins when the
    process has begun to handle it.
    """
    began, reported = os.pipe()
    code = f"""
import os, runpy, sys, parity.cli as main
handle = main._quit_on_interrupt
def report():
    main._quit_on_interrupt = handle
    handle()
    os.write({reported}, b'x')
main._quit_on_interrupt = report
sys.argv = ['parity', *sys.argv[1:]]
runpy.run_module('parity')
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[reported],
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    os.read(began, 1)
    os.close(began)
    os.close(reported)
    wait()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.6, 1.0, 2.0])
def test_while_modules_are_imported_or_runs_judged(seconds: float, files: dict[str, str]) -> None:
    code, err = _interrupted(
        ["compare", files["fp8"], files["nvfp4"], files["mxfp8"], "--planned-steps", "1500"],
        lambda: time.sleep(seconds),
    )
    assert "Traceback" not in err
    # 1: it was done, with a fail, before the signal came; -SIGINT: it was done, and the interpreter
    # was shutting down
    assert (code, err) == (INTERRUPTED, "parity: interrupted\n") or code in (1, -signal.SIGINT)


def test_while_a_file_is_read(files: dict[str, str]) -> None:
    reading, writing = os.pipe()
    code, err = _interrupted(["compare", files["fp8"], "-"], lambda: time.sleep(6.0), stdin=reading)
    os.close(reading)
    os.close(writing)
    assert (code, err) == (INTERRUPTED, "parity: interrupted\n")


def test_while_a_server_is_awaited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as accepted:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, err = _interrupted(
            ["status", "--server", address], lambda: accepted.enter_context(silent.accept()[0])
        )
    assert (code, err) == (INTERRUPTED, "parity: interrupted\n")


def test_nothing_heavy_is_imported_before_ctrl_c_is_handled() -> None:
    code = (
        "import sys, parity.cli; print(sorted({'numpy', 'scipy', 'typer', 'rich', 'httpx2'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "[]\n"
