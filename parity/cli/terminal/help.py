"""Help as plain text of 80 columns: one example, options in groups, no type names, and no summary
that is cut short.
"""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from parity.cli.printed_documents import schemas_of

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


_OPTIONS = "Options"
# in a context's `meta`: its help lists every option, and every command
ALL_OPTIONS = "parity.all_options"
_VALUES = {int: "N", float: "NUMBER"}
_WIDTH = 80
_JSON = "--json"


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help: usage, purpose, example, arguments, commands or options by group; `basic`
    ones unless all are asked for.
    """
    formatter.width = _WIDTH
    formatter.write_usage(ctx.command_path, " ".join(_usage(command, ctx)))
    command.format_help_text(ctx, formatter)
    if command.epilog:
        with formatter.section("Example"):
            formatter.write(f"{' ' * formatter.current_indent}{command.epilog}\n")
    arguments: list[tuple[str, str]] = []
    panels: dict[str, list[tuple[str, str]]] = {}
    basic = None if ctx.meta.get(ALL_OPTIONS) else getattr(command.callback, "basic", None)
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            arguments.append((parameter.metavar or parameter.name.upper(), parameter.help or ""))
        elif not getattr(parameter, "hidden", False) and (basic is None or parameter.name in basic):
            panels.setdefault(_panel(parameter, _OPTIONS), []).append(_option(parameter, ctx))
    commands = command.commands_by_panel(ctx) if isinstance(command, Group) else {}
    rest = panels.pop(_OPTIONS, [])
    for title, rows in ({"Arguments": arguments} | commands | panels | {_OPTIONS: rest}).items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=26)
    if closing := getattr(command, "closing", ""):
        formatter.write_paragraph()
        formatter.write_text(closing)


class CommandWithExample(TyperCommand):
    """A command whose epilog is its example: one line that works as it stands."""

    format_help = write_help


class Group(TyperGroup):
    """A group of commands with whole summaries."""

    format_help = write_help

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and summaries of the visible commands, by the group in which the help lists
        them.
        """
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                summary = command.get_short_help_str(1000)
                panels.setdefault(_panel(command, "Commands"), []).append((name, summary))
        return panels


def help_all(what: str) -> Any:
    """The option `--help-all`, which shows all of what `--help` shows a part of."""
    return typer.Option(
        "--help-all", is_eager=True, callback=_show_all, help=f"Show all {what} and exit."
    )


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta[ALL_OPTIONS] = True
        print(ctx.get_help())
        raise typer.Exit


def value_type(parameter: Any) -> type:
    """The type of a parameter's value: `int`, `float` or `str`."""
    annotation = str(getattr(getattr(parameter, "type_descriptor", None), "annotation", ""))
    return next((kind for kind in (int, float) if kind.__name__ in annotation), str)


def _usage(command: Any, ctx: Any) -> list[str]:
    if isinstance(command, Group):
        return ["COMMAND", "[OPTIONS]"]
    arguments = [
        parameter.metavar or parameter.name.upper()
        for parameter in command.get_params(ctx)
        if parameter.param_type_name == "argument"
    ]
    needed = [
        f"{max(parameter.opts, key=len)} {_value(parameter)}"
        for parameter in command.get_params(ctx)
        if parameter.param_type_name == "option" and parameter.required
    ]
    return [*arguments, *needed, "[OPTIONS]"]


def _option(parameter: Any, ctx: Any) -> tuple[str, str]:
    """An option's names with its value's name, and its help with the default where that says
    something; that of --json with the schemas of what the command prints.
    """
    names = "/".join([", ".join(sorted(parameter.opts, key=len)), *parameter.secondary_opts])
    if not parameter.is_flag:
        names += f" {_value(parameter)}"
    notes = ["required"] if parameter.required else []
    default = parameter.default
    if not parameter.is_flag and isinstance(default, (int, float, str)) and default != "":
        notes.append(f"default: {f'${parameter.envvar}, or ' if parameter.envvar else ''}{default}")
    elif parameter.envvar:
        notes.append(f"default: ${parameter.envvar}")
    if _JSON in parameter.opts:
        command = ctx.command_path.partition(" ")[2]
        notes += [f"parity schema {'|'.join(schemas_of(command))}"]
    return names, (parameter.help or "") + (f" [{'; '.join(notes)}]" if notes else "")


def _value(parameter: Any) -> str:
    return str(parameter.metavar or _VALUES.get(value_type(parameter), "TEXT"))


def _panel(item: Any, otherwise: str) -> str:
    panel = getattr(item, "rich_help_panel", None)
    return panel if isinstance(panel, str) else otherwise
