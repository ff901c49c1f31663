"""The command line: the commands in their groups, imported when they are called, and the one place
where errors become exit codes.
"""

import functools
import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_group_from_info
from typer.models import TyperInfo

from parity.cli.terminal import (
    ALL_OPTIONS,
    HELP_NAMES,
    Command,
    CommandLineError,
    Group,
    help_all,
    what_is_wrong,
    wrong_value,
)
from parity.extensions import lab
from parity.gate.exit_codes import EXIT_CODES
from parity.inert import inert
from parity.judging.policy import PolicyError
from parity.version import VERSION

# A group of commands whose modules are imported when a command is called: listing them costs no
# import of the judge or of a client.


@dataclass(frozen=True, slots=True)
class Place:
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

    places: ClassVar[Mapping[str, Place]] = {}

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
def _command(place: Place, name: str) -> Any:
    """The command of a name, from its module. Made once a process: Typer reads every option
    for it.
    """
    app = getattr(importlib.import_module(place.module), place.app)
    for command in app.registered_commands:
        command.cls = Command
    group = get_group_from_info(
        TyperInfo(app), pretty_exceptions_short=False, rich_markup_mode=None, suggest_commands=True
    )
    if group.name == name:
        return group
    return group.commands[name]


# The commands in their groups, and the one place where errors become exit codes (`exits`).
#
# Data goes to stdout, progress and errors to stderr; a usage error is one line and exit code 2.

_INTERRUPTED = 130  # what typer makes of Ctrl-C
FILES, JOBS, OWN_RUNS = (
    "Files (no server needed)",
    "Jobs on a server",
    "Runs that you train yourself",
)


class Commands(LazyGroup):
    """Every command, in the order of the help, which shows the `first` of them unless all are asked
    for.
    """

    first: ClassVar[tuple[str, ...]] = ("compare", "plan", "gate", "report")
    closing: ClassVar[str] = (
        f"Exit codes: {', '.join(f'{code} {name}' for name, code in EXIT_CODES.items())}. A server "
        "has the documentation under /docs."
    )
    places: ClassVar[Mapping[str, Place]] = {
        "compare": Place(
            "parity.cli.compare",
            FILES,
            "Judge candidates against a baseline from files, with no server.",
        ),
        "verify": Place(
            "parity.cli.verify", FILES, "Recompute a verdict from its evidence bundle, offline."
        ),
        "calibrate": Place(
            "parity.cli.design",
            FILES,
            "Measure run-to-run noise on reruns of one configuration, and check the judge against "
            "it.",
        ),
        "plan": Place(
            "parity.cli.design",
            FILES,
            "Estimate what an experiment, or a budget, can decide before you spend GPU time.",
        ),
        "noise": Place(
            "parity.cli.record",
            FILES,
            "Show noise tables: how much runs of one recipe differ, by family.",
            app="noise",
        ),
        "preflight": Place(
            "parity.cli.verify",
            FILES,
            "Compare this machine's arithmetic with known answers, in less than a minute.",
        ),
        "submit": Place(
            "parity.cli.jobs",
            JOBS,
            "Queue a job on the server and print its id and the address of its page.",
        ),
        "watch": Place("parity.cli.jobs", JOBS, "Follow a job to its end and print its verdicts."),
        "status": Place(
            "parity.cli.watching",
            JOBS,
            "Show the state of a job, or list the newest jobs (in a pipe: one per line, "
            "tab-separated).",
        ),
        "again": Place(
            "parity.cli.jobs",
            JOBS,
            "Queue a new job with the specification of one that has ended, and a change of it.",
        ),
        "add-run": Place(
            "parity.cli.jobs", JOBS, "Add a run to each arm of a job that has no verdict yet."
        ),
        "cancel": Place(
            "parity.cli.jobs", JOBS, "Cancel a job; a job that has ended stays as it is."
        ),
        "report": Place("parity.cli.jobs", JOBS, "Print the verdicts of a job that has ended."),
        **{name: Place(module, JOBS, line) for name, (module, line) in lab().commands.items()},
        "matrix": Place(
            "parity.cli.remarks",
            JOBS,
            "Show the verdicts of several jobs side by side, and what keeps jobs from being "
            "compared.",
        ),
        "trend": Place(
            "parity.cli.remarks",
            JOBS,
            "Show how a gap moved over commits or days, and which of them moved it beyond "
            "run-to-run noise.",
        ),
        "tag": Place("parity.cli.remarks", JOBS, "Set the tags of a job, by which lists find it."),
        "note": Place("parity.cli.remarks", JOBS, "Add a note to a job."),
        "sign-off": Place(
            "parity.cli.remarks",
            JOBS,
            "Accept an inconclusive verdict for some days, or revoke that.",
        ),
        "new-question": Place(
            "parity.cli.remarks",
            JOBS,
            "Register a new question, so that what a job answered may be asked again.",
        ),
        "doctor": Place(
            "parity.cli.verify",
            JOBS,
            "List workers, what each can train, and the jobs that wait for one.",
        ),
        "gate": Place(
            "parity.cli.gate",
            JOBS,
            "Gate CI on a job: reuse its verdict if there is one, else train.",
        ),
        "baseline": Place(
            "parity.cli.record",
            JOBS,
            "Manage named baselines: train once, promote with a reason, and use by name in job "
            "files (`baseline: {name: fp8}`).",
            app="baselines",
        ),
        "resend": Place(
            "parity.cli.runs",
            OWN_RUNS,
            "Send the steps that training scripts logged with parity.Run and could not send; "
            "spools of running processes are skipped.",
        ),
        "import": Place(
            "parity.cli.runs", OWN_RUNS, "Record finished runs of a job with engine external."
        ),
        "runs": Place(
            "parity.cli.runs",
            OWN_RUNS,
            "Judge the runs of a job that you train, and state what no record holds of them.",
            app="runs",
        ),
    }

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and summaries of the first commands, or of all by their titles."""
        if ctx.meta.get(ALL_OPTIONS):
            return super().commands_by_panel(ctx)
        return {"First commands": [(name, self.places[name].summary) for name in self.first]}


_CLIENT_ERROR = "parity.client.rest.ClientError"
ERROR_CODES = {
    "parity.cli.terminal.UsageError": "usage",
    "parity.comparing.statements.InputError": "usage",
    "parity.recipes.RecipeError": "usage",
    "parity.readers.errors.UnreachableSourceError": "infrastructure",
    "parity.readers.errors.ReadError": "usage",
    "parity.judging.secondary.accuracy.EvaluationError": "usage",
    "parity.judging.bundles.evidence.EvidenceError": "usage",
    "parity.report.figure_file.FigureError": "usage",
    _CLIENT_ERROR: "usage",
    "parity.client.rest.UnreachableError": "infrastructure",
    "parity.cli.watching.JobEndedError": "infrastructure",
    "parity.cli.watching.WatchTimeoutError": "timeout",
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


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
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
        _complain(str(error) if name else f"internal error, please report it: {error!r}")
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


def _complain(message: str) -> None:
    print("parity: " + inert(" ".join(message.split())), file=sys.stderr)


_Version = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]
_Everything = Annotated[bool, help_all("commands")]


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
