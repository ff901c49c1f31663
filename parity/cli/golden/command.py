"""The commands `golden …`: did a run of the same recipe keep its numerics?"""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.cards.golden_card import make_golden_card
from parity.cli.connection import ServerConnection, ServerQuery
from parity.cli.git import git
from parity.cli.golden import on_server
from parity.cli.golden.files import is_golden_or_kept, run_and_goldens
from parity.cli.inputs.columns import pattern_option, stated_columns
from parity.cli.terminal.help import Group
from parity.cli.terminal.option_words import OUTPUT, RECIPE_WORDS
from parity.cli.terminal.options import Options, argument, flat, option, refuse, repeatable
from parity.cli.terminal.output import write_file
from parity.cli.terminal.shared_options import Json
from parity.cli.terminal.typed_command import typed_command
from parity.cli.terminal.written_card import check_card_path, write_card
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.golden.check import Check, RunFacts, check_golden, check_restart, read_goldens
from parity.golden.formats import document, history_lines, junit, markdown, text_lines
from parity.golden.golden_document import (
    GoldenFileDocument,
    GoldenUpdateDocument,
    GoldenUpdateEntry,
)
from parity.golden.golden_file import Golden, is_golden, read_golden
from parity.golden.measured import CHANGES
from parity.golden.update import NotAcceptedError, Request, Written, taken_gaps, update_golden
from parity.golden.words import percent_words
from parity.wording import minus

golden = typer.Typer(
    name="golden",
    help="Check a run of the same recipe (new code, container, machine, or a resume) against a "
    "golden curve. Never a verdict about another precision.",
    cls=Group,
    epilog="parity golden check run.csv llama.golden.jsonl",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RECIPE = "--recipe"


class RunOptions(Options, panel="Run"):
    """What is stated of a run."""

    recipe: str | None = option(
        None,
        f"State the recipe of the run: {RECIPE_WORDS}. Another one than the golden's is refused. "
        "[default: as recorded, else the golden's]",
        "RECIPE",
    )
    changed: str | None = option(None, f"State what changed: {', '.join(CHANGES)}.", "WHAT")
    fork: int | None = option(
        None,
        "State the last step before a resume; only later steps are judged. [default: as the losses "
        "show]",
        "STEP",
        min=0,
    )
    random: list[str] = repeatable(
        "State what draws random numbers, such as dropout, which allows more of the first loss; "
        "repeatable. [default: the golden's]",
        "NAME",
    )
    container: str | None = option(None, "Name the container of the run.", "NAME")
    hardware: str | None = option(None, "Name the hardware of the run.", "NAME")
    data: str | None = option(
        None, "State the digest of the run's data; another one than the golden's decides.", "DIGEST"
    )
    column: list[str] = repeatable(
        "Name the column of step, loss, grad_norm, ...; repeatable. [default: well-known names]",
        "QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()

    def facts(self, run: str) -> RunFacts:
        """What is stated, for the rule."""
        return RunFacts(
            recipe=self.recipe,
            random=tuple(self.random),
            container=self.container,
            hardware=self.hardware,
            data=self.data,
            columns=stated_columns(self.column, self.pattern).of_run("run", run),
        )


class TakenOptions(Options, panel="Golden"):
    """How a run is taken as the golden."""

    reason: str | None = option(None, "State the reason; it stays in the file.", "TEXT")
    accept: str | None = option(
        None,
        "Take the run although the answer is ANSWER, such as worse or 'data changed'.",
        "ANSWER",
    )
    every: int = option(1, "Keep every N-th step.", "N", min=1)


class CheckFiles(Options, panel=OUTPUT):
    """The reports of a check."""

    junit: str | None = option(None, "Write JUnit XML to this file.", "FILE")
    markdown: str | None = option(
        None, "Write the text of a pull-request comment to this file.", "FILE"
    )
    card: str | None = option(
        None,
        "Write a card of the check, which `parity verify` makes again, and its Markdown.",
        "card.yaml",
    )

    def write(self, checked: Mapping[str, Any]) -> None:
        """Write the reports that are wanted, and GitHub's where it runs this."""
        if self.junit:
            write_file(self.junit, junit(checked).encode())
        if self.markdown:
            write_file(self.markdown, markdown(checked).encode())
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            _append(summary, markdown(checked))
        if outputs := os.environ.get("GITHUB_OUTPUT"):
            names = ("answer", "exit_code", "headline")
            lines = (f"{name}={' '.join(str(checked[name]).split())}" for name in names)
            _append(outputs, "\n".join(lines) + "\n")


@golden.command(epilog="parity golden check run.csv llama.golden.jsonl --changed container")
@flat
def check(
    files: Annotated[
        list[str],
        argument(
            "RUN [GOLDEN...]",
            "A run, as `parity compare` takes it, and its golden (a file, or server:NAME of a "
            "server), or several goldens that are reruns of one, which give the test its own "
            "noise. With --changed resume a log alone, whose repeated steps are compared with what "
            "they were before.",
        ),
    ],
    *,
    stated: RunOptions,
    reports: CheckFiles,
    at: ServerConnection,
    out: Json,
) -> int:
    """Check a run against a golden of its own recipe.

    Exits with 0 if the run is identical or differs by numerics only, 1 if it is worse or better, or
    set-up or data changed, and 3 if these runs cannot tell.
    """
    if reports.card is not None:
        check_card_path(reports.card, "--card")
    kept = [file for file in files if on_server.is_kept(file)]
    if kept:
        refuse(reports.given("card"), f"needs the file of the golden, but {kept[0]} is a server's")
        checked = _checked_by_server(files, stated, at)
    else:
        made = _check(files, stated)
        checked = document(made)
        if reports.card is not None:
            write_card(reports.card, make_golden_card(made))
    reports.write(checked)
    out.show(checked, text_lines(checked))
    code: int = checked["exit_code"]
    return code


def _check(files: Sequence[str], stated: RunOptions) -> Check:
    """The check of a run by goldens in files, or of a restart in one log."""
    if len(files) == 1 and stated.changed == "resume" and not is_golden_or_kept(files[0]):
        return check_restart(files[0], stated.facts(files[0]), option=RECIPE)
    run, goldens = run_and_goldens(files)
    return check_golden(
        read_goldens(goldens),
        run,
        stated.facts(run),
        changed=stated.changed,
        fork=stated.fork,
        accept=f'parity golden update {goldens[0]} {run} --reason "…"',
        option=RECIPE,
    )


def _checked_by_server(
    files: Sequence[str], stated: RunOptions, at: ServerConnection
) -> Mapping[str, Any]:
    """The document of a check by the server that keeps the goldens."""
    run, goldens = run_and_goldens(files)
    on_server.refuse_files(goldens)
    with at.client() as client:
        return on_server.checked(
            client, goldens, run, stated.facts(run), changed=stated.changed, fork=stated.fork
        )


@golden.command(epilog="parity golden update llama.golden.jsonl run.csv --reason 'image 26.06'")
@flat
def update(
    file: Annotated[
        str,
        argument(
            "GOLDEN",
            "The golden's file, or server:NAME of a server; one that does not exist is written "
            "first.",
        ),
    ],
    run: Annotated[str, argument("RUN", "The run, as `parity compare` takes it.")],
    *,
    taken: TakenOptions,
    stated: RunOptions,
    at: ServerConnection,
    out: Json,
) -> int:
    """Take a run as the golden: the first one, or the next if it is identical or differs by
    numerics only.

    Anything else needs --accept with the answer. Another recipe is always refused.
    """
    is_kept = on_server.is_kept(file)
    request = Request(
        reason=taken.reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=git(Path() if is_kept else Path(file), "rev-parse", "--short", "HEAD").strip()
        or None,
        accept=taken.accept,
        every=taken.every,
    )
    if taken.reason is None and (is_kept or (Path(file).exists() and is_golden(file))):
        raise UsageError(
            f'--reason is missing; example: `{typed_command()} --reason "image 26.06"`'
        )
    options: Mapping[str, Any] = {"changed": stated.changed, "fork": stated.fork}
    if is_kept:
        with at.client() as client:
            sent = on_server.taken(client, file, run, stated.facts(run), request, **options)
        if sent["refused"] is not None:
            return _not_accepted(sent["check"], sent["refused"], out)
        return out.show(sent, on_server.update_lines(sent))
    try:
        written = update_golden(file, run, stated.facts(run), request, option=RECIPE, **options)
    except NotAcceptedError as error:
        return _not_accepted(document(error.check), str(error), out)
    return out.show(_update_document(written), _update_lines(written))


@golden.command(epilog="parity golden show llama.golden.jsonl")
@flat
def show(
    file: Annotated[
        str, argument("GOLDEN", "The golden's file, or server:NAME[@VERSION] of a server.")
    ],
    *,
    at: ServerConnection,
    out: Json,
) -> int:
    """Show a golden: its recipe, what is on record, and why it was updated."""
    if on_server.is_kept(file):
        with at.client() as client:
            kept = client.golden(*on_server.name_and_version(file))
        return out.show(kept, on_server.golden_lines(kept))
    shown = read_golden(file)
    return out.show(_file_document(shown), history_lines(shown))


@golden.command("list", epilog="parity golden list")
@flat
def index(
    name: Annotated[str | None, argument("[NAME]", "List only versions of this name.")] = None,
    *,
    at: ServerQuery,
) -> int:
    """List the fifty newest versions of the goldens that a server keeps; in a pipe, one per
    line.
    """
    with at.client() as client:
        versions = client.goldens(name)["items"]
    if not versions and not at.as_json:
        print(
            "no golden yet; `parity golden update server:NAME RUN --recipe RECIPE --reason TEXT` "
            "writes one",
            file=sys.stderr,
        )
        return 0
    return at.show_rows(versions, on_server.COLUMNS, map(on_server.row, versions))


@golden.command(epilog="parity golden remove server:llama@3 --reason 'old data'")
@flat
def remove(
    kept: Annotated[str, argument("server:NAME@VERSION", "The version to remove.")],
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT", rich_help_panel="Golden", help="State the reason; it stays on record."
        ),
    ],
    *,
    at: ServerQuery,
) -> int:
    """Remove a version of a golden that a server keeps: nothing is judged by it any more, and the
    next run is compared with the version before it. Its history stays.
    """
    name, version = on_server.name_and_version(kept)
    if version is None or not on_server.is_kept(kept):
        raise UsageError(
            f"{kept!r} is no version of a server's golden; expected one such as server:llama@3"
        )
    with at.client() as client:
        removed = client.remove_golden(name, version, reason)
    return at.show(removed, on_server.golden_lines(removed))


def _not_accepted(checked: Mapping[str, Any], sentence: str, out: Json) -> int:
    """Print the answer because of which a golden was not written; the exit code."""
    out.show(checked, text_lines(checked))
    print(f"parity: {sentence}", file=sys.stderr)
    return checked["exit_code"] or EXIT_CODES["fail"]


def _file_document(shown: Golden) -> GoldenFileDocument:
    return GoldenFileDocument(
        recipe=shown.recipe,
        random=list(shown.random),
        container=shown.container,
        hardware=shown.hardware,
        data=shown.data,
        facts=dict(shown.facts),
        steps=len(shown.curve.steps),
        first_step=int(shown.curve.steps[0]),
        last_step=int(shown.curve.steps[-1]),
        taken_pct=taken_gaps(shown.updates),
        updates=[
            GoldenUpdateEntry(
                date=one.date,
                answer=one.answer,
                gap_pct=one.gap_pct,
                reason=one.reason,
                commit=one.commit,
                accepted=one.accepted,
            )
            for one in shown.updates
        ],
    )


def _update_document(written: Written) -> GoldenUpdateDocument:
    return GoldenUpdateDocument(
        written=written.is_written,
        golden=written.golden.curve.label,
        check=None if written.check is None else document(written.check),
        taken_pct=taken_gaps(written.golden.updates),
    )


def _update_lines(written: Written) -> list[str]:
    if not written.is_written:
        return ["identical: the golden stays as it is"]
    entry = written.golden.updates[-1]
    rows = f"{len(written.golden.curve.steps):,} steps, {written.golden.recipe}"
    if entry.answer is None:
        return [f"golden written: {rows}"]
    taken = percent_words(taken_gaps(written.golden.updates))
    return [
        minus(
            f"golden written: {rows}; {entry.answer}, gap {percent_words(entry.gap_pct)}, sum of "
            f"gaps since the last accepted one {taken}"
        )
    ]


def _append(path: str, text: str) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
