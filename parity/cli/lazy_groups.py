"""A group of commands whose modules are imported when a command is called: listing them costs no
import of the judge or of a client.
"""

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from typer.main import get_group_from_info
from typer.models import TyperInfo

from parity.cli.terminal.help import CommandWithExample, Group


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where a command is: its module, with the Typer app of that name, the title under which the
    help lists it, and its line there.

    The line is the first sentence of the command's own help.
    """

    module: str
    panel: str
    summary: str
    app: str = "app"


class LazyGroup(Group):
    """A group with its commands in `places`, by name and in the order of the help."""

    places: ClassVar[Mapping[str, CommandPlace]] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of a name, from its module; None for an unknown name."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        return _command(place, cmd_name)

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:  # noqa: ARG002
        """Names and summaries of the commands, by the title under which the help lists them."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, place in self.places.items():
            panels.setdefault(place.panel, []).append((name, place.summary))
        return panels


@functools.cache
def _command(place: CommandPlace, name: str) -> Any:
    """The command of a name, from its module. Made once a process: Typer reads every option
    for it.
    """
    app = getattr(importlib.import_module(place.module), place.app)
    for command in app.registered_commands:
        command.cls = CommandWithExample
    group = get_group_from_info(
        TyperInfo(app), pretty_exceptions_short=False, rich_markup_mode=None, suggest_commands=True
    )
    if group.name == name:
        return group
    return group.commands[name]
