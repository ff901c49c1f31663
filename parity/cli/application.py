"""The commands in their groups, and the one place where errors become exit codes (`exits`).

Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from parity.cli import baselines, compare, design, floors, jobs, preflight, runs, verify
from parity.cli.gating import command as gate
from parity.cli.terminal.exits import EXIT_CODES
from parity.cli.terminal.help import HELP_NAMES, Command, Group
from parity.cli.terminal.output import UsageError
from parity.cli.terminal.wrong_calls import CommandLineError, what_is_wrong, wrong_value
from parity.cli.watching import WatchTimeoutError
from parity.client.rest import ClientError, UnreachableError
from parity.comparing.stated import InputError
from parity.judging.criteria import CriteriaError
from parity.judging.evidence import EvidenceError
from parity.judging.secondary.evaluations import EvaluationError
from parity.readers import ReadError
from parity.readers.source import UnreachableSourceError
from parity.report.figure_file import FigureError
from parity.version import VERSION

_INTERRUPTED = 130  # what typer makes of Ctrl-C
FILES, JOBS, OWN_RUNS = "Files (no server needed)", "Jobs on a server", "Runs that you train yourself"

app = typer.Typer(
    name="parity",
    cls=Group,
    help="Check whether a training recipe converges as well as its baseline on your model. Exit codes: "
    + ", ".join(f"{code} {name}" for name, code in EXIT_CODES.items())
    + ".",
    epilog="parity compare fp8.csv nvfp4.csv --recipe nvfp4=nvfp4 --planned-steps 1500",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings=HELP_NAMES,
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    try:
        code = app(args=list(arguments) if arguments is not None else None, prog_name="parity", standalone_mode=False)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
    except CommandLineError as error:
        _complain(what_is_wrong(error))
        code = EXIT_CODES["usage"]
    except CriteriaError as error:
        _complain(wrong_value(error))
        code = EXIT_CODES["usage"]
    except UnreachableSourceError as error:
        _complain(str(error))
        code = EXIT_CODES["infrastructure"]
    except (UsageError, InputError, ReadError, EvaluationError, EvidenceError, FigureError) as error:
        _complain(str(error))
        code = EXIT_CODES["usage"]
    except ClientError as error:
        _complain(str(error))
        code = EXIT_CODES["usage"] if error.status < 500 else EXIT_CODES["infrastructure"]
    except (UnreachableError, jobs.JobEndedError) as error:
        _complain(str(error))
        code = EXIT_CODES["infrastructure"]
    except WatchTimeoutError as error:
        _complain(str(error))
        code = EXIT_CODES["timeout"]
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted")
        code = EXIT_CODES["infrastructure"]
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout has gone; nobody is left to tell
        code = EXIT_CODES["infrastructure"]
    except Exception as error:  # noqa: BLE001 (a bug of ours must not leave with Python's 1, which says "fail")
        traceback.print_exc()
        _complain(f"internal error, please report it: {error!r}")
        code = EXIT_CODES["infrastructure"]
    return code if isinstance(code, int) else 0


def _complain(message: str) -> None:
    print("parity: " + " ".join(message.split()), file=sys.stderr)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Print the version, or the help where no command is given."""
    if version:
        print(f"parity {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_CODES["usage"])


def _add(panel: str, *groups: typer.Typer) -> None:
    """Add groups of commands, listed under one title in the help."""
    for group in groups:
        for command in group.registered_commands:
            command.cls = Command
            if group not in (baselines.app, floors.app):  # whose commands have a list of their own
                command.rich_help_panel = panel
        app.add_typer(group, rich_help_panel=panel)


_add(FILES, compare.app, verify.app, design.app, floors.app, preflight.app)
_add(JOBS, jobs.app, gate.app)
_add(OWN_RUNS, runs.app)
_add(JOBS, baselines.app)
