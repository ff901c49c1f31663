"""One line for a call that is refused: what is wrong, its value, what was expected, and the nearest
right word.
"""

from collections.abc import Mapping
from typing import Any

import typer

from parity.cli.terminal.help import value_type
from parity.judging.policy import PolicyError
from parity.wording import did_you_mean

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
        near = _near_option(error.option_name, names)
        return f"unknown option {error.option_name}{near or f'; {see}'}"
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


def _near_option(word: str, names: list[str]) -> str:
    """ "; did you mean --planned-steps?" for "--steps", which is a word of it; else the option with
    the nearest spelling, or "".
    """
    whole = [name for name in names if word.strip("-") in name.strip("-").split("-")]
    return f"; did you mean {' or '.join(whole[:2])}?" if whole else did_you_mean(word, names)
