"""Steps that are small Python programs in place of those of a session."""

import sys
import tempfile
from pathlib import Path

import pytest

from tools.gpu_evidence.budget import SessionBudget
from tools.gpu_evidence.results import new_folder
from tools.gpu_evidence.session import Session
from tools.gpu_evidence.steps import Step, StepSize

DEVICE = """
import json, sys
facts = {"device": "NVIDIA H200", "driver": "580.1", "versions": {"python": "3.12.3", "jax": "0.11.2"}}
open(sys.argv[-1], "w").write(json.dumps(facts))
"""  # noqa: E501


def step(name, program="", **more):
    """A step that runs a program; it needs no time unless `seconds` says so."""
    sizes = (StepSize(seconds=more.pop("seconds", 0.0)),)
    return Step(name=name, module=("-c", program), sizes=sizes, **{"facts": "lines", **more})


FIRST = step("device", DEVICE, facts="file")


@pytest.fixture
def short():
    """A folder with a short path, which a session needs for its service's socket."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        yield Path(folder)


@pytest.fixture
def session(short):
    """A function that makes a session of steps, with its folder; it has a day unless it is given
    another budget.
    """

    def make(*steps, budget=None, rehearsal=False):
        folder = new_folder(short / "out")
        made = Session(
            (FIRST, *steps),
            budget or SessionBudget(24 * 60),
            folder,
            sys.executable,
            rehearsal=rehearsal,
        )
        return made, folder

    return make
