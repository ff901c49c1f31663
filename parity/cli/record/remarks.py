"""The commands for what people add to a job: tag, note, sign-off."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from parity.cli.connection import Asked, JobId
from parity.cli.options import argument, flat, option
from parity.cli.record.labels import remark_words
from parity.cli.terminal.output import UsageError

app = typer.Typer()


@app.command("tag", epilog="parity tag j0000000000001 nightly llama3")
@flat
def tag(
    job: JobId,
    tags: Annotated[list[str] | None, argument("[TAG]...", "All tags of the job; none removes those that it has.")] = None,
    *,
    at: Asked,
) -> int:
    """Set the tags of a job, by which lists find it.

    Needs the token that submitted the job, or scope admin.
    """
    with at.client() as client:
        remarks = client.set_tags(job, tags or [])
    return at.show(remarks, [f"{job} {', '.join(remarks['tags']) or 'has no tags'}"])


@app.command("note", epilog="parity note j0000000000001 'the gap is that of the new tokenizer'")
@flat
def note(
    job: JobId,
    text: Annotated[str, argument("TEXT", "Plain text; `-` reads it from stdin.")],
    at: Asked,
) -> int:
    """Add a note to a job.

    Notes have an author and a time, and are never changed.
    """
    with at.client() as client:
        remarks = client.add_note(job, sys.stdin.read() if text == "-" else text)
    return at.show(remarks, remark_words(remarks))


@app.command("sign-off", epilog="parity sign-off j0000000000001 --days 14 --reason 'reruns are queued'")
@flat
def sign_off(
    job: JobId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="State the reason; it is kept with your name and the time.")],
    days: float | None = option(None, "Accept the verdict for DAYS, at most 90.", "DAYS"),
    candidate: str | None = option(None, "Candidate whose verdict is accepted. [default: the job's only one]", "NAME"),
    revoke: str | None = option(None, "End this sign-off instead, by its id.", "SIGN_OFF"),
    *,
    at: Asked,
) -> int:
    """Accept an inconclusive verdict for some days, or revoke that.

    Needs scope approve, and a person who did not submit the job. Until it expires `parity gate` exits 0 and says who accepted it. The
    verdict stays inconclusive.
    """
    if (days is None) == (revoke is None):
        raise UsageError("give --days to sign off, or --revoke with the id of a sign-off to end it")
    with at.client() as client:
        if revoke is not None:
            remarks = client.revoke_sign_off(job, revoke, reason)
        else:
            remarks = client.sign_off(job, candidate or _only_candidate(client.job(job)), reason, days or 0.0)
    return at.show(remarks, remark_words(remarks))


def _only_candidate(document: Mapping[str, Any]) -> str:
    names = [arm["name"] for arm in document["arms"] if arm["role"] == "candidate"]
    if len(names) != 1:
        raise UsageError(f"job {document['id']} has {len(names)} candidates; name one with --candidate: {', '.join(names)}")
    return str(names[0])
