"""The command `matrix`: the verdicts of several jobs side by side."""

from typing import Annotated

import typer

from parity.cli.connection import ServerQuery
from parity.cli.terminal.option_words import OUTPUT
from parity.cli.terminal.options import argument, flat, option
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.wording import interval_words, percent, signed

app = typer.Typer()


@app.command(epilog="parity matrix j0000000000001 j0000000000002")
@flat
def matrix(
    jobs: Annotated[
        list[str],
        argument("JOB...", "Ids of jobs; the first is what the others are compared with."),
    ],
    by: str = option(
        "recipe",
        "One column per recipe, or per name, of a candidate.",
        "recipe|name",
        rich_help_panel=OUTPUT,
    ),
    *,
    at: ServerQuery,
) -> int:
    """Show the verdicts of several jobs side by side, and what keeps jobs from being compared."""
    if by not in ("recipe", "name"):
        raise UsageError(f"--by is {by!r}; expected recipe or name")
    with at.client() as client:
        table = client.compare_jobs(jobs, by)
    rows = (
        (row["job"]["id"], row["job"]["name"], ", ".join(row["differs"]), *map(_cell, row["cells"]))
        for row in table["rows"]
    )
    return at.show_rows(table, ("Job", "Name", "Differs in", *table["columns"]), rows, headed=True)


def _cell(cell: Document) -> str:
    """The verdicts of a job in one column."""
    words = [_verdict(verdict) for verdict in cell["verdicts"]]
    return "; ".join([*words, *(f"{name} has no verdict" for name in cell["waiting"])])


def _verdict(verdict: Document) -> str:
    if verdict["gap_nats"] is None:
        return f"{verdict['verdict'].upper()} {verdict['code']}"
    share = "" if verdict["gap_rel"] is None else f", {percent(verdict['gap_rel'])}"
    margin = "" if verdict["margin_nats"] is None else f", margin {verdict['margin_nats']:.4f}"
    return f"{verdict['verdict'].upper()} {gap_words(verdict)}{share}{margin}"


def gap_words(values: Document) -> str:
    """A gap with its interval."""
    return (
        f"{signed(values['gap_nats'], 4)} "
        f"({interval_words(values['ci_low'], values['ci_high'], 4)})"
    )
