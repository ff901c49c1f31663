"""The command line: every verb's group, and the one place where errors become exit codes (`exits`).

Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from parity.cli import baselines, compare, design, gate, jobs, runs, verify
from parity.cli.exits import EXIT_CODES
from parity.cli.output import UsageError
from parity.cli.watching import WatchTimeoutError
from parity.client.rest import ClientError, UnreachableError
from parity.judging.criteria import CriteriaError
from parity.judging.evidence import EvidenceError
from parity.judging.secondary.evaluations import EvaluationError
from parity.readers import ReadError
from parity.report.figures import FigureError
from parity.version import VERSION

app = typer.Typer(
    name="parity",
    help="Is a training recipe as good as its baseline for your model? Exit codes: "
    + ", ".join(f"{code} {name}" for name, code in EXIT_CODES.items())
    + ".",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
)

# typer's own base of "no such option" and its like, wherever its version keeps the class
_CommandLineError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with a documented exit code; never a traceback for bad input."""
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except _CommandLineError as error:
        _complain(error.format_message() if isinstance(error, typer.BadParameter) else str(error))
        code = EXIT_CODES["usage"]
    except (UsageError, ReadError, CriteriaError, EvaluationError, EvidenceError, FigureError) as error:
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
        _complain(f"an error of parity itself, please report it: {error!r}")
        code = EXIT_CODES["infrastructure"]
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> None:
    print("parity: " + " ".join(message.split()), file=sys.stderr)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the engine's version.")] = False) -> None:
    """Is a training recipe as good as its baseline for your model?"""
    if version:
        print(f"parity {VERSION}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_CODES["usage"])


for verbs in (compare.app, verify.app, design.app, jobs.app, gate.app, runs.app, baselines.app):
    app.add_typer(verbs)

if __name__ == "__main__":
    main()
