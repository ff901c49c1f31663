"""The commands `golden …`: did a run of the same recipe keep its numerics?"""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from parity.cli.git import git
from parity.cli.inputs.columns import pattern_option, stated_columns
from parity.cli.terminal.help import Group
from parity.cli.terminal.option_words import OUTPUT, RECIPE_WORDS
from parity.cli.terminal.options import Options, argument, flat, option, repeatable
from parity.cli.terminal.output import write_file
from parity.cli.terminal.shared_options import Json
from parity.cli.terminal.typed_command import typed_command
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES
from parity.golden.check import Check, RunFacts, check_golden, check_restart, read_goldens
from parity.golden.formats import (
    document,
    headline,
    history_lines,
    junit,
    markdown,
    text_lines,
)
from parity.golden.golden_file import is_golden, read_golden
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

    def write(self, check: Check) -> None:
        """Write the reports that are wanted, and GitHub's where it runs this."""
        if self.junit:
            write_file(self.junit, junit(check).encode())
        if self.markdown:
            write_file(self.markdown, markdown(check).encode())
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            _append(summary, markdown(check))
        if outputs := os.environ.get("GITHUB_OUTPUT"):
            values = {
                "answer": check.answer,
                "exit_code": check.exit_code,
                "headline": headline(check),
            }
            lines = (f"{name}={' '.join(str(value).split())}" for name, value in values.items())
            _append(outputs, "\n".join(lines) + "\n")


@golden.command(epilog="parity golden check run.csv llama.golden.jsonl --changed container")
@flat
def check(
    files: Annotated[
        list[str],
        argument(
            "RUN [GOLDEN...]",
            "A run, as `parity compare` takes it, and its golden, or several goldens that are "
            "reruns of one, which give the test its own noise. With --changed resume a log alone, "
            "whose repeated steps are compared with what they were before.",
        ),
    ],
    *,
    stated: RunOptions,
    reports: CheckFiles,
    out: Json,
) -> int:
    """Check a run against a golden of its own recipe.

    Exits with 0 if the run is identical or differs by numerics only, 1 if it is worse or better, or
    set-up or data changed, and 3 if these runs cannot tell.
    """
    if len(files) == 1 and stated.changed == "resume" and not is_golden(files[0]):
        result = check_restart(files[0], stated.facts(files[0]), option=RECIPE)
    else:
        run, goldens = _run_and_goldens(files)
        result = check_golden(
            read_goldens(goldens),
            run,
            stated.facts(run),
            changed=stated.changed,
            fork=stated.fork,
            accept=f'parity golden update {goldens[0]} {run} --reason "…"',
            option=RECIPE,
        )
    reports.write(result)
    out.show(document(result), text_lines(result))
    return result.exit_code


@golden.command(epilog="parity golden update llama.golden.jsonl run.csv --reason 'image 26.06'")
@flat
def update(
    file: Annotated[
        str, argument("GOLDEN", "The golden's file; one that does not exist is written first.")
    ],
    run: Annotated[str, argument("RUN", "The run, as `parity compare` takes it.")],
    *,
    taken: TakenOptions,
    stated: RunOptions,
    out: Json,
) -> int:
    """Take a run as the golden: the first one, or the next if it is identical or differs by
    numerics only.

    Anything else needs --accept with the answer. Another recipe is always refused.
    """
    request = Request(
        reason=taken.reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=git(Path(file), "rev-parse", "--short", "HEAD").strip() or None,
        accept=taken.accept,
        every=taken.every,
    )
    if taken.reason is None and Path(file).exists() and is_golden(file):
        raise UsageError(
            f'--reason is missing; example: `{typed_command()} --reason "image 26.06"`'
        )
    try:
        written = update_golden(
            file,
            run,
            stated.facts(run),
            request,
            changed=stated.changed,
            fork=stated.fork,
            option=RECIPE,
        )
    except NotAcceptedError as error:
        out.show(document(error.check), text_lines(error.check))
        print(f"parity: {error}", file=sys.stderr)
        return error.check.exit_code or EXIT_CODES["fail"]
    return out.show(_update_document(written), _update_lines(written))


@golden.command(epilog="parity golden show llama.golden.jsonl")
@flat
def show(file: Annotated[str, argument("GOLDEN", "The golden's file.")], *, out: Json) -> int:
    """Show a golden: its recipe, what is on record, and why it was updated."""
    shown = read_golden(file)
    history = [
        {
            "date": one.date,
            "answer": one.answer,
            "gap_pct": one.gap_pct,
            "reason": one.reason,
            "commit": one.commit,
            "accepted": one.accepted,
        }
        for one in shown.updates
    ]
    facts = {
        "recipe": shown.recipe,
        "random": list(shown.random),
        "container": shown.container,
        "hardware": shown.hardware,
        "data": shown.data,
        "facts": dict(shown.facts),
        "steps": len(shown.curve.steps),
        "first_step": int(shown.curve.steps[0]),
        "last_step": int(shown.curve.steps[-1]),
        "taken_pct": taken_gaps(shown.updates),
        "updates": history,
    }
    return out.show(facts, history_lines(shown))


def _run_and_goldens(files: Sequence[str]) -> tuple[str, list[str]]:
    """The run and the goldens among the files of a call, whatever their order."""
    goldens = [file for file in files if is_golden(file)]
    runs = [file for file in files if file not in goldens]
    if len(runs) == 1 and goldens:
        return runs[0], goldens
    if not goldens:
        raise UsageError(
            f"none of {', '.join(files)} is a golden; `parity golden update NAME.golden.jsonl "
            f"{runs[0]}` writes one of a run"
        )
    named = ", ".join(runs) or "none"
    raise UsageError(
        f"expected one run in addition to {', '.join(goldens)}, found {named}: give the file or "
        "source of one run"
    )


def _update_document(written: Written) -> dict[str, object]:
    return {
        "written": written.is_written,
        "golden": written.golden.curve.label,
        "check": None if written.check is None else document(written.check),
        "taken_pct": taken_gaps(written.golden.updates),
    }


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
