"""The command `trend`: how a gap moved over commits or days."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from parity.cli.connection import ServerQuery
from parity.cli.jobs.matrix import gap_words
from parity.cli.terminal.options import Options, argument, flat, option
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.wording import percent

app = typer.Typer()


class TrendOptions(Options, panel="Jobs of the trend"):
    """Which jobs make a trend."""

    baseline: str | None = option(
        None, "Follow the jobs that name this promoted baseline instead.", "NAME"
    )
    candidate: str | None = option(
        None, "Candidate. [default: the first of the newest job]", "NAME"
    )
    by: str = option("commit", "Group the jobs by commit or by day.", "commit|day")
    branch: str | None = option(None, "Only jobs of this branch.", "NAME")
    limit: int = option(50, "At most this many jobs, the newest.", min=1, max=200)


@app.command(epilog="parity trend nightly --branch main --by day")
@flat
def trend(
    gate: Annotated[str | None, argument("[NAME]", "Name of the jobs, as in the job file.")] = None,
    *,
    options: TrendOptions,
    at: ServerQuery,
) -> int:
    """Show how a gap moved over commits or days, and which of them moved it beyond run-to-run
    noise.
    """
    if (gate is None) == (options.baseline is None):
        raise UsageError(
            "give the NAME of the jobs, or --baseline NAME; example: parity trend nightly"
        )
    if options.by not in ("commit", "day"):
        raise UsageError(f"--by is {options.by!r}; expected commit or day")
    stated = {"gate": gate, **asdict(options)}
    with at.client() as client:
        history = client.trend({key: value for key, value in stated.items() if value is not None})
    if not at.as_json:
        print(history["answer"])
    return at.show_rows(
        history,
        (options.by, "job", "verdict", "gap, nats (interval)", "gap", "margin"),
        map(_point, history["points"]),
    )


def _point(point: Document) -> Sequence[str]:
    word = point["verdict"].upper() if point["verdict"] else point["status"]
    if point["gap_nats"] is None:
        return (point["group"], point["job"], word, point["why_missing"] or "", "", "")
    margin = "" if point["margin_nats"] is None else f"{point['margin_nats']:.4f}"
    share = "" if point["gap_rel"] is None else percent(point["gap_rel"])
    return (point["group"], point["job"], word, gap_words(point), share, margin)
