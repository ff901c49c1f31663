"""The commands that show several jobs at once: matrix and trend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from parity.cli.connection import Asked
from parity.cli.options import Options, argument, flat, option
from parity.cli.terminal.output import UsageError
from parity.client.rest import Document
from parity.wording import interval_words, percent, signed

app = typer.Typer()


@app.command("matrix", epilog="parity matrix j0000000000001 j0000000000002")
@flat
def matrix(
    jobs: Annotated[list[str], argument("JOB...", "Ids of jobs; the first is what the others are compared with.")],
    by: str = option("recipe", "One column per recipe, or per name, of a candidate.", "recipe|name"),
    *,
    at: Asked,
) -> int:
    """Show the verdicts of several jobs side by side, and what keeps jobs from being compared."""
    if by not in ("recipe", "name"):
        raise UsageError(f"--by is {by!r}; expected recipe or name")
    with at.client() as client:
        table = client.compare_jobs(jobs, by)
    rows = ((row["job"]["id"], row["job"]["name"], ", ".join(row["differs"]), *map(_cell, row["cells"])) for row in table["rows"])
    return at.show_rows(table, ("job", "name", "differs in", *table["columns"]), rows)


class Series(Options):
    """Which jobs make a trend."""

    baseline: str | None = option(None, "Follow the jobs that name this promoted baseline instead.", "NAME")
    candidate: str | None = option(None, "Candidate. [default: the first of the newest job]", "NAME")
    by: str = option("commit", "Group the jobs by commit or by day.", "commit|day")
    branch: str | None = option(None, "Only jobs of this branch.", "NAME")
    limit: int = option(50, "At most this many jobs, the newest.", min=1, max=200)


@app.command("trend", epilog="parity trend nightly --branch main --by day")
@flat
def trend(
    gate: Annotated[str | None, argument("[NAME]", "Name of the jobs, as in the job file.")] = None,
    *,
    wanted: Series,
    at: Asked,
) -> int:
    """Show how a gap moved over commits or days, and which of them moved it beyond run noise."""
    if (gate is None) == (wanted.baseline is None):
        raise UsageError("a trend is that of one gate or of one baseline; give the name of the jobs, or --baseline NAME")
    if wanted.by not in ("commit", "day"):
        raise UsageError(f"--by is {wanted.by!r}; expected commit or day")
    stated = {"gate": gate, **asdict(wanted)}
    with at.client() as client:
        history = client.trend({key: value for key, value in stated.items() if value is not None})
    if not at.as_json:
        print(history["answer"])
    return at.show_rows(history, (wanted.by, "job", "verdict", "gap, nats (interval)", "gap", "margin"), map(_point, history["points"]))


def _cell(cell: Document) -> str:
    """The verdicts of a job in one column."""
    words = [_verdict(verdict) for verdict in cell["verdicts"]]
    return "; ".join([*words, *(f"{name} has no verdict" for name in cell["waiting"])])


def _verdict(verdict: Document) -> str:
    if verdict["gap_nats"] is None:
        return f"{verdict['verdict'].upper()} {verdict['code']}"
    share = "" if verdict["gap_rel"] is None else f", {percent(verdict['gap_rel'])}"
    margin = "" if verdict["margin_nats"] is None else f", margin {verdict['margin_nats']:.4f}"
    return f"{verdict['verdict'].upper()} {_gap(verdict)}{share}{margin}"


def _point(point: Document) -> Sequence[str]:
    word = (point["verdict"] or point["status"]).upper() if point["verdict"] else point["status"]
    if point["gap_nats"] is None:
        return (point["group"], point["job"], word, point["why_missing"] or "", "", "")
    margin = "" if point["margin_nats"] is None else f"{point['margin_nats']:.4f}"
    share = "" if point["gap_rel"] is None else percent(point["gap_rel"])
    return (point["group"], point["job"], word, _gap(point), share, margin)


def _gap(values: Document) -> str:
    return f"{signed(values['gap_nats'], 4)} ({interval_words(values['ci_low'], values['ci_high'], 4)})"
