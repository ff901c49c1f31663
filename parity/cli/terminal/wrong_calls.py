"""One line for a call that the parser refuses: what is wrong, its value, what was expected, and the nearest right word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from parity.cli.terminal.help import value_type
from parity.judging.criteria import CriteriaError
from parity.wording import did_you_mean

# typer's own base of "no such option" and its like, wherever its version keeps the class
CommandLineError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def wrong_value(error: CriteriaError, options: Mapping[str, str] | None = None) -> str:
    """The line for a policy's value that cannot be used; `options` names the option by which a key was set, if it was one."""
    key = error.path.rpartition(".")[2]
    named = (options or {}).get(key, error.path)
    if error.expected.startswith("no such key"):
        known = error.expected.partition(": ")[2]
        return f"{named}: unknown key; expected one of {known}{did_you_mean(key, known.split(', '))}"
    words = error.expected.partition("one of ")[2].partition(";")[0].split(", ")
    return f"{named} is {error.value!r}; expected {error.expected}{did_you_mean(str(error.value), filter(None, words))}"


def what_is_wrong(error: Any) -> str:
    """The line for an error of the parser."""
    context = getattr(error, "ctx", None)
    command = context.command_path.removeprefix("parity").strip() if context else ""
    see = f"see `{' '.join(['parity', *command.split(), '--help'])}`"
    kind, message = type(error).__name__, " ".join(str(error.format_message()).split())
    if kind == "NoSuchOption":
        names = [name for parameter in context.command.get_params(context) for name in parameter.opts] if context else []
        return f"unknown option {error.option_name}{did_you_mean(error.option_name, names) or f'; {see}'}"
    if message.startswith("No such command"):
        word = message.split("'")[1] if "'" in message else ""
        return f"unknown command {word!r}{(did_you_mean(word, context.command.list_commands(context)) if context else '') or f'; {see}'}"
    if kind == "NoArgsIsHelpError" or message.startswith("Missing command"):
        return f"`parity {command}` needs a command; {see}"
    if kind == "MissingParameter":
        example = getattr(context.command, "epilog", None) if context else None
        return f"{_called(error.param)} is missing; " + (f"example: `{example}`" if example else see)
    if kind == "BadOptionUsage":
        return _bad_usage(error, message)
    if kind == "BadParameter":
        return f"{_called(error.param)} is {_value(error)!r}; expected {_expected(error.param)}"
    if message.startswith("Got unexpected extra argument"):
        words = message.rpartition("(")[2].rstrip(").")
        if words in ("nats", "%"):
            return f'unexpected argument {words!r}; quote an amount that has a blank, such as --margin "0.01 nats"'
        return f"unexpected argument {words!r}; {see}"
    return message


def _bad_usage(error: Any, message: str) -> str:
    if "does not take a value" in message:
        return f"{error.option_name} takes no value; give it alone"
    return f"{error.option_name} needs a value"


def _called(parameter: Any) -> str:
    if parameter is None:
        return "an argument"
    return str(parameter.metavar or parameter.name) if parameter.param_type_name == "argument" else max(parameter.opts, key=len)


def _value(error: Any) -> object:
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
    return f"{words}, at most {high:g}" if high is not None else words
