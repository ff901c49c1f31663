"""The core works with the lab taken away, and a worker loads none of it before it claims a run of
the lab.
"""

import os
import subprocess
import sys

from parity.extensions import LAB
from server.settings import CHECKOUT

MODULES = [
    ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
    for path in sorted((CHECKOUT / LAB).rglob("*.py"))
]
MODULES = [name.removesuffix(".__init__") for name in MODULES]
TRAINED = "tests/workers/test_supervisor.py::test_a_run_is_trained_and_recorded"
CORE = (
    "tests/parity/cli/compare/test_command.py::test_exit_codes_say_the_verdict",
    "tests/server/api/test_runs.py::test_a_job_that_the_user_trains_is_judged",
    "tests/server/jobs/test_remarks.py::test_a_note_has_its_author_and_time_and_is_plain_text",
)


def python(*arguments, refused=MODULES):
    """A Python in which these modules cannot be imported; nor in the processes that it starts."""
    path = os.pathsep.join(map(str, (CHECKOUT / "tests" / "without", CHECKOUT)))
    environment = os.environ | {"PYTHONPATH": path, "PARITY_TEST_REFUSED": ",".join(refused)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_module_of_the_lab_is_refused():
    program = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(error)
"""
    assert python("-c", program, *MODULES).stdout.count("halted") == len(MODULES)


def test_the_commands_of_the_lab_are_gone_and_the_others_stay():
    listed = python("-m", "parity", "--help-all")
    assert (listed.returncode, "  submit " in listed.stdout, "  why " in listed.stdout) == (
        0,
        True,
        False,
    )
    schemas = python("-m", "parity", "schema").stdout
    assert ("matrix\t" in schemas, "analysis" in schemas) == (True, False)
    unknown = python("-m", "parity", "why", "j1")
    assert (unknown.returncode, unknown.stdout) == (2, ""), unknown.stderr


def passes(*tests, refused=MODULES):
    """Whether tests pass in such a Python."""
    ran = python(
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        "not postgresql",
        *tests,
        refused=refused,
    )
    assert ran.returncode == 0, ran.stdout
    return True


def test_tests_of_the_core_pass_without_the_lab():
    assert passes(*CORE)


def test_the_server_has_no_routes_of_the_lab():
    text = "from tools.openapi import text; import workers.app; print(text().count('/why'))"
    assert python("-c", text).stdout.split() == ["0"]


def test_a_worker_trains_without_loading_the_lab():
    """It is there, as its manifest says, but an import of it would fail."""
    assert passes(TRAINED, refused=[each for each in MODULES if each != LAB])
