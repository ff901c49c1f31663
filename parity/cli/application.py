"""Run a command, and turn its errors into exit codes, in one place.

Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2.
"""

import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from parity.cli.command_table import Commands
from parity.cli.terminal.help import HELP_NAMES, help_all
from parity.cli.terminal.typed_command import remember_command, typed_command
from parity.cli.terminal.wrong_calls import CommandLineError, what_is_wrong, wrong_value
from parity.gate.exit_codes import EXIT_CODES
from parity.inert import inert
from parity.judging.policy import PolicyError
from parity.version import VERSION

_INTERRUPTED = 130  # what typer makes of Ctrl-C


_CLIENT_ERROR = "parity.client.rest.ClientError"
ERROR_CODES = {
    "parity.cli.terminal.wrong_calls.UsageError": "usage",
    "parity.comparing.statements.InputError": "usage",
    "parity.recipes.RecipeError": "usage",
    "parity.readers.errors.UnreachableSourceError": "infrastructure",
    "parity.readers.errors.ReadError": "usage",
    "parity.judging.secondary.accuracy.EvaluationError": "usage",
    "parity.golden.golden_file.GoldenError": "usage",
    "parity.judging.bundles.read_bundle.EvidenceError": "usage",
    "parity.cards.card_file.CardError": "usage",
    "parity.report.figures.figure_file.FigureError": "usage",
    _CLIENT_ERROR: "usage",
    "parity.client.rest.UnreachableError": "infrastructure",
    "parity.cli.jobs.watching.JobEndedError": "infrastructure",
    "parity.cli.jobs.watching.WatchTimeoutError": "timeout",
}
"""Exit codes by class, as text: a class that was never imported was never raised, and most commands
import few of these.
"""

app = typer.Typer(
    name="parity",
    cls=Commands,
    help="Check whether a training recipe converges as well as its baseline on your model.",
    epilog="parity compare fp8.csv nvfp4.csv --recipe nvfp4=nvfp4 --planned-steps 1500",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings=HELP_NAMES,
)
_Version = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]
_Everything = Annotated[bool, help_all("commands")]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    remember_command(arguments)
    try:
        code = app(
            args=list(arguments) if arguments is not None else None,
            prog_name="parity",
            standalone_mode=False,
        )
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
    except CommandLineError as error:
        _complain(what_is_wrong(error))
        code = EXIT_CODES["usage"]
    except PolicyError as error:
        _complain(wrong_value(error))
        code = EXIT_CODES["usage"]
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = EXIT_CODES["infrastructure"]
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone; nobody is left to tell
        code = EXIT_CODES["infrastructure"]
    except Exception as error:  # noqa: BLE001
        name = _exit_name(error)
        if name is None:
            traceback.print_exc()
        _complain(_with_commands(error) if name else f"internal error, please report it: {error!r}")
        code = EXIT_CODES[name or "infrastructure"]
    return code if isinstance(code, int) else 0


def _exit_name(error: Exception) -> str | None:
    """The name of the exit code of an error that is not a bug; None for any other."""
    for base in type(error).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name == _CLIENT_ERROR and getattr(error, "status", 0) >= 500:
            return "infrastructure"
        if name in ERROR_CODES:
            return ERROR_CODES[name]
    return None


def _with_commands(error: Exception) -> str:
    """What an error says; where further options or the name of a run would do, with the whole
    commands.
    """
    said, form = getattr(error, "said", str(error)), getattr(error, "form", None)
    if (instead := getattr(error, "instead", {})) and (command := typed_command(instead)):
        return f"{said}: `{command}`"
    words = getattr(error, "words", ())
    if not words and form is not None:
        words = [shlex.split(form(one)) for one in getattr(error, "tries", ())]
    if not words:
        return str(error)
    commands = " or ".join(f"`{typed_command(further=further)}`" for further in words)
    return f"{said}; type {commands}"


def _complain(message: str) -> None:
    print("parity: " + inert(" ".join(message.split())), file=sys.stderr)


def root(
    context: typer.Context,
    version: _Version = False,
    everything: _Everything = False,  # noqa: ARG001
) -> None:
    """Print the version, or the help where no command is given."""
    if version:
        print(f"parity {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_CODES["usage"])


root.__dict__["basic"] = {"version", "everything", "help"}  # not the completion of the shell
app.callback(invoke_without_command=True)(root)
