"""What commands share before they do anything: exit codes, help, and one line for a wrong call. It
imports typer alone.
"""

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from parity.judging.policy import NOISE_FLOOR, PROFILES, PolicyError
from parity.recipes import OTHER, RECIPES
from parity.wording import did_you_mean

# Help as plain text of 80 columns: one example, options in groups, no type names, and no summary
# that is cut short.

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

# Groups of options.
ARMS, TABLE, POLICY, EVIDENCE, OUTPUT = (
    "Runs and arms",
    "Table of runs",
    "Policy",
    "Further evidence",
    "Output",
)
EXPERIMENT, NOISE, SERVER, QUEUE, LABELS = (
    "Experiment",
    "Noise",
    "Server",
    "Queue",
    "Tags and branch",
)
FOLLOW, REUSE = "Waiting", "Reuse of earlier results"

# Lists of words in the help of several options.
RECIPE_WORDS = f"{', '.join(RECIPES)}, or {OTHER}NAME for your own"
STATED_PROFILES = ", ".join(
    f"{name} ({str(amount).replace(' %', '%')})"
    for name, amount in PROFILES.items()
    if amount is not None
)
ALL_PROFILES = (
    f"{STATED_PROFILES}, {NOISE_FLOOR} (4.2 x the measured run-to-run noise of the baseline)"
)

_OPTIONS = "Options"
# in a context's `meta`: its help lists every option, and every command
ALL_OPTIONS = "parity.all_options"
_VALUES = {int: "N", float: "NUMBER"}
_WIDTH = 80


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
            panels.setdefault(_panel(parameter, _OPTIONS), []).append(_option(parameter))
    commands = command.commands_by_panel(ctx) if isinstance(command, Group) else {}
    rest = panels.pop(_OPTIONS, [])
    for title, rows in ({"Arguments": arguments} | commands | panels | {_OPTIONS: rest}).items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=26)
    if closing := getattr(command, "closing", ""):
        formatter.write_paragraph()
        formatter.write_text(closing)


class Command(TyperCommand):
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


def _option(parameter: Any) -> tuple[str, str]:
    """An option's names with its value's name, and its help with the default where that says
    something.
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
    return names, (parameter.help or "") + (f" [{'; '.join(notes)}]" if notes else "")


def _value(parameter: Any) -> str:
    return str(parameter.metavar or _VALUES.get(value_type(parameter), "TEXT"))


def _panel(item: Any, otherwise: str) -> str:
    panel = getattr(item, "rich_help_panel", None)
    return panel if isinstance(panel, str) else otherwise


# One line for a call that the parser refuses: what is wrong, its value, what was expected, and the
# nearest right word.

# typer's own base of "no such option" and its like, wherever its version keeps the class
CommandLineError: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def wrong_value(
    error: PolicyError, options: Mapping[str, str] | None = None, file: str | None = None
) -> str:
    """The line for a policy's value that cannot be used; `options` names the option by which a key
    was set, else it is in the `file`.
    """
    key = error.path.rpartition(".")[2]
    named = (options or {}).get(key, error.path)
    if file is not None and named == error.path:
        from parity.comparing.policy_file import place_in  # noqa: PLC0415

        named = f"{place_in(file, error.path.split('.'))}: {named}"
    return error.sentence_of(named)


def what_is_wrong(error: Any) -> str:
    """The line for an error of the parser."""
    context = getattr(error, "ctx", None)
    command = context.command_path.removeprefix("parity").strip() if context else ""
    see = f"see `{' '.join(['parity', *command.split(), '--help'])}`"
    kind, message = type(error).__name__, " ".join(str(error.format_message()).split())
    if kind == "NoSuchOption":
        if context:
            names = [
                name for parameter in context.command.get_params(context) for name in parameter.opts
            ]
        else:
            names = []
        return (
            "unknown option "
            f"{error.option_name}{did_you_mean(error.option_name, names) or f'; {see}'}"
        )
    if message.startswith("No such command"):
        word = message.split("'")[1] if "'" in message else ""
        return (
            "unknown command "
            f"{word!r}{(did_you_mean(word, context.command.list_commands(context)) if context else '') or f'; {see}'}"  # noqa: E501
        )
    if kind == "NoArgsIsHelpError" or message.startswith("Missing command"):
        return f"`parity {command}` needs a command; {see}"
    if kind == "MissingParameter":
        example = getattr(context.command, "epilog", None) if context else None
        return f"{_called(error.param)} is missing; " + (
            f"example: `{example}`" if example else see
        )
    if kind == "BadOptionUsage":
        if "does not take a value" in message:
            wrong = "takes no value; give it alone"
        else:
            wrong = "needs a value"
        return f"{error.option_name} {wrong}"
    if kind == "BadParameter":
        return (
            f"{_called(error.param)} is {_given_value(error)!r}; expected {_expected(error.param)}"
        )
    if message.startswith("Got unexpected extra argument"):
        words = message.rpartition("(")[2].rstrip(").")
        if words in ("nats", "%"):
            return (
                f"unexpected argument {words!r}; quote an amount that has a blank, such as "
                '--margin "0.01 nats"'
            )
        return f"unexpected argument {words!r}; {see}"
    return message


def _called(parameter: Any) -> str:
    if parameter is None:
        return "an argument"
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return str(max(parameter.opts, key=len))


def _given_value(error: Any) -> object:
    """What was given, as the validation behind typer kept it."""
    cause = error.__cause__ or error.__context__
    details = cause.errors() if hasattr(cause, "errors") else []
    return details[0].get("input", "") if details else error.message


def _expected(parameter: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text"}[value_type(parameter)]
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if low is not None and high is not None:
        return f"{words} from {low:g} to {high:g}"
    if low is not None:
        return f"{words}, at least {low:g}"
    if high is not None:
        return f"{words}, at most {high:g}"
    return words


class UsageError(Exception):
    """A wrong call; the message is one line that says what to change."""
