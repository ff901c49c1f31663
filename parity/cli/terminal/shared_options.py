"""Groups of options that several commands have: the server, how verdicts are printed, how a job is
followed, what a new job is found by.
"""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console

from parity.cli.terminal.option_words import FOLLOW, LABELS, OUTPUT, REUSE, SERVER
from parity.cli.terminal.options import Options, flag, option, repeatable
from parity.cli.terminal.output import WIDTH, print_json, print_lines, print_rows
from parity.cli.terminal.wrong_calls import UsageError
from parity.client import DEFAULT_URL
from parity.inert import inert_value
from parity.judging.case import AnyDocument
from parity.report.formats.json_text import render_json
from parity.report.formats.markdown import render_markdown
from parity.report.formats.terminal import plain_text, render_text
from parity.report.sign_off_words import Accepted


class Server(Options, panel=SERVER):
    """Which server is asked, and as whom."""

    server: str = option(DEFAULT_URL, "Address of the server.", "URL", envvar="PARITY_URL")
    token: str | None = option(
        None, "Bearer token, if the server requires one.", "TOKEN", envvar="PARITY_TOKEN"
    )


class Json(Options, panel=OUTPUT):
    """JSON in place of text."""

    as_json: bool = flag("--json", "Print JSON instead of text.")

    def show(self, document: object, lines: Iterable[str]) -> int:
        """Print a document as JSON, or as lines; the exit code."""
        if self.as_json:
            print_json(document)
        else:
            print_lines(lines)
        return 0

    def show_rows(
        self,
        document: object,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        headed: bool = False,
    ) -> int:
        """Print a document as JSON, or as a table (as `print_rows`); the exit code."""
        if self.as_json:
            print_json(document)
        else:
            print_rows(headings, rows, headed=headed)
        return 0


class Printing(Json):
    """How verdicts are printed."""

    markdown: bool = flag("--markdown", "Print Markdown instead of text.")
    verbose: bool = option(
        False, "Print all numbers, reasons and advice, too.", None, "--verbose", "-v"
    )
    is_silent: bool = False

    def show_verdicts(
        self, documents: Sequence[AnyDocument], accepted: Accepted | None = None
    ) -> None:
        """Print verdict documents, or comparisons of evaluations, with the sign-offs that hold."""
        if self.as_json and self.markdown:
            raise UsageError("--json and --markdown exclude each other; give only one of them")
        if self.is_silent or not (documents or self.as_json):
            return
        if self.as_json or self.markdown:
            sys.stdout.write(
                render_json(documents, accepted)
                if self.as_json
                else render_markdown(inert_value([*documents]), accepted)
            )
        elif (console := Console(width=WIDTH, highlight=False)).is_terminal:
            console.print(
                render_text(inert_value([*documents]), WIDTH, accepted, verbose=self.verbose),
                crop=False,  # a long command is copied whole
            )
        else:
            sys.stdout.write(
                plain_text(inert_value([*documents]), WIDTH, accepted, verbose=self.verbose)
            )


class Follow(Options, panel=FOLLOW):
    """How a job is followed."""

    quiet: bool = option(False, "Print no progress.", None, "--quiet", "-q")
    timeout: float | None = option(
        None, "Stop waiting after SECONDS with exit code 5; the job goes on.", "SECONDS", min=0
    )

    def progress(self) -> Console:
        """Where progress is printed."""
        return Console(stderr=True, highlight=False, markup=False, quiet=self.quiet)


class Reuse(Options, panel=REUSE):
    """Whether the baseline is trained again."""

    reuse: bool | None = option(
        None,
        "Reuse the curve of an equal, earlier baseline run. [default: yes, or the job file's]",
        None,
        "--reuse/--no-reuse",
    )


class LabelOptions(Options, panel=LABELS):
    """What a new job is found by."""

    tag: list[str] = repeatable("Tag the new job; repeatable, adds to the file's `tags:`.", "TAG")
    branch: str | None = option(
        None, "Branch of the code. [default: the CI system's, or git's]", "NAME"
    )
