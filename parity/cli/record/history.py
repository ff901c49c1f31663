"""The commands that show several jobs at once: matrix and trend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import UsageError, print_json, print_rows
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client
from parity.wording import interval_words, percent, signed

app = typer.Typer()


@app.command("matrix", epilog="parity matrix j0000000000001 j0000000000002")
def matrix(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs; the first is what the others are compared with.")],
    by: Annotated[str, typer.Option(metavar="recipe|name", help="One column per recipe, or per name, of a candidate.")] = "recipe",
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Show the verdicts of several jobs side by side, and what keeps jobs from being compared."""
    if by not in ("recipe", "name"):
        raise UsageError(f"--by is {by!r}; expected recipe or name")
    with Client(server, token) as client:
        table = client.compare_jobs(jobs, by)
    if as_json:
        print_json(table)
        return 0
    rows = []
    for row in table["rows"]:
        cells = [_cell(cell) for cell in row["cells"]]
        rows.append((row["job"]["id"], row["job"]["name"], ", ".join(row["differs"]), *cells))
    print_rows(("job", "name", "differs in", *table["columns"]), rows)
    return 0


@app.command("trend", epilog="parity trend nightly --branch main --by day")
def trend(
    gate: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the jobs, as in the job file.")] = None,
    baseline: Annotated[str | None, typer.Option(metavar="NAME", help="Follow the jobs that name this promoted baseline instead.")] = None,
    candidate: Annotated[str | None, typer.Option(metavar="NAME", help="Candidate. [default: the first of the newest job]")] = None,
    by: Annotated[str, typer.Option(metavar="commit|day", help="Group the jobs by commit or by day.")] = "commit",
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this branch.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most this many jobs, the newest.")] = 50,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Show how a gap moved over commits or days, and which of them moved it beyond run noise."""
    if (gate is None) == (baseline is None):
        raise UsageError("a trend is that of one gate or of one baseline; give the name of the jobs, or --baseline NAME")
    if by not in ("commit", "day"):
        raise UsageError(f"--by is {by!r}; expected commit or day")
    stated = {"gate": gate, "baseline": baseline, "candidate": candidate, "by": by, "branch": branch, "limit": limit}
    with Client(server, token) as client:
        history = client.trend({key: value for key, value in stated.items() if value is not None})
    if as_json:
        print_json(history)
        return 0
    print(history["answer"])
    print_rows((by, "job", "verdict", "gap, nats (interval)", "gap", "margin"), [_point(point) for point in history["points"]])
    return 0


def _cell(cell: Mapping[str, Any]) -> str:
    """The verdicts of a job in one column."""
    words = [_verdict(verdict) for verdict in cell["verdicts"]]
    return "; ".join([*words, *(f"{name} has no verdict" for name in cell["waiting"])])


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict["gap_nats"] is None:
        return f"{verdict['verdict'].upper()} {verdict['code']}"
    share = "" if verdict["gap_rel"] is None else f", {percent(verdict['gap_rel'])}"
    margin = "" if verdict["margin_nats"] is None else f", margin {verdict['margin_nats']:.4f}"
    return f"{verdict['verdict'].upper()} {_gap(verdict)}{share}{margin}"


def _point(point: Mapping[str, Any]) -> Sequence[str]:
    word = (point["verdict"] or point["status"]).upper() if point["verdict"] else point["status"]
    if point["gap_nats"] is None:
        return (point["group"], point["job"], word, point["why_missing"] or "", "", "")
    margin = "" if point["margin_nats"] is None else f"{point['margin_nats']:.4f}"
    share = "" if point["gap_rel"] is None else percent(point["gap_rel"])
    return (point["group"], point["job"], word, _gap(point), share, margin)


def _gap(values: Mapping[str, Any]) -> str:
    return f"{signed(values['gap_nats'], 4)} ({interval_words(values['ci_low'], values['ci_high'], 4)})"
