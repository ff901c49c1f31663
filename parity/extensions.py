"""What the lab (`why` and `heal`) adds to the core. The core names the lab here alone, as text,
and works with the lab taken away.

The lab's modules are imported when they are first needed: a worker loads none of them before it
claims a run of the lab.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib import import_module
from types import ModuleType

from parity.frozen import frozen

LAB = "parity_lab"


@frozen
class Lab:
    """What the lab adds, as data; all of it is empty where the lab is taken away.

    `commands`: for jobs on a server, with their module and their line in the help. `documents`:
    what they print with --json (`parity.cli.printed_documents`); its schemas are in the folder
    `schemas` of the lab. `kinds`: the
    kinds of runs that are never judged, with what such a run did. `rules`: who may call an
    operation of the API (`server.web.access.rules`). `parts`: the modules, by the name of what the
    core asks them for.
    """

    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    documents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    def part(self, name: str) -> ModuleType | None:
        """A module of the lab; None where the lab is taken away."""
        if name not in self.parts:
            return None
        return import_module(self.parts[name])


@cache
def lab() -> Lab:
    """The lab of this installation."""
    try:
        found: Lab = import_module(LAB).LAB
    except ModuleNotFoundError as error:
        if error.name is None or not f"{LAB}.".startswith(f"{error.name}."):
            raise  # of a library that is missing, not of the lab
        return Lab()
    return found
