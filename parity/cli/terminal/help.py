"""Help as plain text of 80 columns: one example, options in groups, no type names, and no summary that is cut short."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from parity.judging.criteria import NOISE_FLOOR, PROFILES
from parity.recipes import OTHER, RECIPES

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

# Groups of options.
ARMS, TABLE, POLICY, EVIDENCE, OUTPUT = "Runs and arms", "Table of runs", "Policy", "Further evidence", "Output"
EXPERIMENT, NOISE, SERVER, QUEUE, LABELS = "Experiment", "Noise", "Server", "Queue", "Tags and branch"

# Lists of words in the help of several options.
RECIPE_WORDS = f"{', '.join(RECIPES)}, or {OTHER}NAME for your own"
STATED_PROFILES = ", ".join(f"{name} ({str(amount).replace(' %', '%')})" for name, amount in PROFILES.items() if amount is not None)
ALL_PROFILES = f"{STATED_PROFILES}, {NOISE_FLOOR} (4.2 x the measured run noise of the baseline)"

_OPTIONS = "Options"
_VALUES = {int: "N", float: "NUMBER"}
_WIDTH = 80


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help: usage, purpose, example, arguments, commands or options by group."""
    formatter.width = _WIDTH
    formatter.write_usage(ctx.command_path, " ".join(_usage(command, ctx)))
    command.format_help_text(ctx, formatter)
    if command.epilog:
        with formatter.section("Example"):
            formatter.write(f"{' ' * formatter.current_indent}{command.epilog}\n")
    arguments: list[tuple[str, str]] = []
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            arguments.append((parameter.metavar or parameter.name.upper(), parameter.help or ""))
        elif not getattr(parameter, "hidden", False):
            panels.setdefault(_panel(parameter, _OPTIONS), []).append(_option(parameter))
    commands = command.commands_by_panel(ctx) if isinstance(command, Group) else {}
    rest = panels.pop(_OPTIONS, [])
    for title, rows in ({"Arguments": arguments} | commands | panels | {_OPTIONS: rest}).items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=26)


class Command(TyperCommand):
    """A command whose epilog is its example: one line that works as it stands."""

    format_help = write_help


class Group(TyperGroup):
    """A group of commands with whole summaries."""

    format_help = write_help

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and summaries of the visible commands, by the group in which the help lists them."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                summary = command.get_short_help_str(1000)
                panels.setdefault(_panel(command, "Commands"), []).append((name, summary))
        return panels


def value_type(parameter: Any) -> type:
    """The type of a parameter's value: `int`, `float` or `str`."""
    annotation = str(getattr(getattr(parameter, "type_descriptor", None), "annotation", ""))
    return next((kind for kind in (int, float) if kind.__name__ in annotation), str)


def _usage(command: Any, ctx: Any) -> list[str]:
    if isinstance(command, Group):
        return ["COMMAND", "[OPTIONS]"]
    arguments = [
        parameter.metavar or parameter.name.upper() for parameter in command.get_params(ctx) if parameter.param_type_name == "argument"
    ]
    needed = [
        f"{max(parameter.opts, key=len)} {_value(parameter)}"
        for parameter in command.get_params(ctx)
        if parameter.param_type_name == "option" and parameter.required
    ]
    return [*arguments, *needed, "[OPTIONS]"]


def _option(parameter: Any) -> tuple[str, str]:
    """An option's names with its value's name, and its help with the default where that says something."""
    names = "/".join([", ".join(sorted(parameter.opts, key=len)), *parameter.secondary_opts])
    if not parameter.is_flag:
        names += f" {_value(parameter)}"
    notes = ["required"] if parameter.required else []
    default = parameter.default
    if not parameter.is_flag and isinstance(default, (int, float, str)):
        notes.append(f"default: {f'${parameter.envvar}, or ' if parameter.envvar else ''}{default}")
    elif parameter.envvar:
        notes.append(f"default: ${parameter.envvar}")
    return names, (parameter.help or "") + (f" [{'; '.join(notes)}]" if notes else "")


def _value(parameter: Any) -> str:
    return str(parameter.metavar or _VALUES.get(value_type(parameter), "TEXT"))


def _panel(item: Any, otherwise: str) -> str:
    panel = getattr(item, "rich_help_panel", None)
    return panel if isinstance(panel, str) else otherwise
