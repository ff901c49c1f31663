"""Count the files that a user flow executes: `python -m tools.flows [NAME]` prints a line a flow.

A file counts when one of its functions is called, in any thread of the process, while the flow's
test runs (its fixtures do not count): not when it is only imported, and nothing in child processes.
Files that a reader must open to follow a flow are about these.
"""

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tools.size import PACKAGES

ROOT = Path(__file__).parents[1]
FLOWS = {
    "compare of two files": (
        "tests/parity/cli/compare/test_command.py::test_the_worst_of_several_verdicts"
    ),
    "submit, train both arms, verdict": (
        "tests/workers/test_supervisor.py::"
        "test_arms_agree_in_everything_but_the_recipe_and_an_environment_that_differs_confounds_the_verdict[sqlite]"
    ),
    "live page, one update": "tests/server/api/curves/test_forecast.py::test_a_running_job_has_its_gap_and_a_forecast_of_the_rest[postgresql]",  # noqa: E501
    "gate, verdict cached": "tests/server/test_gate.py::test_a_concluded_job_is_served_with_its_age[sqlite-gaps0-0-PASS]",  # noqa: E501
    "gate on files": "tests/server/test_gate.py::test_verdicts_from_files_need_no_server",
    "why: plan, then answer": "tests/server/test_why_command.py::test_the_plan_comes_first_and_the_answer_last[sqlite]",  # noqa: E501
    "import of a pair, judged": "tests/server/test_import.py::test_a_pair_is_imported_and_judged[sqlite]",  # noqa: E501
}
_OURS = tuple(f"{ROOT / package}{os.sep}" for package in PACKAGES)
_counting = threading.Event()
_called: set[CodeType] = set()


def _profile(frame: FrameType, event: str, _: object) -> None:
    # of a function, not a body of a class
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED and _counting.is_set():
        _called.add(frame.f_code)


def pytest_configure() -> None:
    """Begin to follow calls, in this thread and in all that it starts."""
    threading.setprofile(_profile)
    sys.setprofile(_profile)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Count what the test itself calls."""
    _counting.set()
    yield
    _counting.clear()


def pytest_unconfigure() -> None:
    """Print the figures: files of ours with a function that was called, and functions."""
    sys.setprofile(None)
    ours = [code for code in _called if code.co_filename.startswith(_OURS)]
    print(f"\nfiles {len({code.co_filename for code in ours})} functions {len(ours)}")


if __name__ == "__main__":
    for name, test in FLOWS.items():
        if name.startswith(tuple(sys.argv[1:]) or ""):
            command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tools.flows", test)
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            figures = [line for line in done.stdout.splitlines() if line.startswith("files ")]
            print(
                f"{name:34} "
                f"{figures[-1] if done.returncode == 0 and figures else done.stdout[-600:]}",
                flush=True,
            )
