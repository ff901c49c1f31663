"""The commands for what people add to a job: tag, note, sign-off, new-question."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from parity.cli.connection import JobId, ServerQuery
from parity.cli.terminal.options import argument, flat, option
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.judging.verdict.sign_offs import LEAST_REASON, MOST_DAYS
from parity.report.sign_off_words import NOT_A_PASS, accepted_words, lapsed_words

app = typer.Typer()
_ACCEPTED = "Sign-off"


def remark_words(document: Document) -> Iterator[str]:
    """One line each for the tags, the notes and the sign-offs of a job."""
    if tags := document.get("tags"):
        yield f"tags: {', '.join(tags)}"
    for sign_off in document.get("sign_offs", ()):
        yield (
            f"{NOT_A_PASS}: {accepted_words(sign_off)} ({sign_off['id']})"
            if sign_off["state"] == "valid"
            else lapsed_words(sign_off)
        )
    for note in document.get("notes", ()):
        yield (
            f"note by {note['who']}, {note['created_at'][:16].replace('T', ' ')} UTC: "
            f"{' '.join(note['text'].split())}"
        )


@app.command(epilog="parity tag j0000000000001 nightly llama3")
@flat
def tag(
    job: JobId,
    tags: Annotated[
        list[str] | None,
        argument("[TAG]...", "All tags of the job; none removes those that it has."),
    ] = None,
    *,
    at: ServerQuery,
) -> int:
    """Set the tags of a job, by which lists find it.

    Needs the token that submitted the job, or scope admin.
    """
    with at.client() as client:
        remarks = client.set_tags(job, tags or [])
    return at.show(remarks, [f"{job} {', '.join(remarks['tags']) or 'has no tags'}"])


@app.command(epilog="parity note j0000000000001 'the gap is that of the new tokenizer'")
@flat
def note(
    job: JobId,
    text: Annotated[str, argument("TEXT", "Plain text; `-` reads it from stdin.")],
    at: ServerQuery,
) -> int:
    """Add a note to a job.

    Notes have an author and a time, and are never changed.
    """
    with at.client() as client:
        remarks = client.add_note(job, sys.stdin.read() if text == "-" else text)
    return at.show(remarks, remark_words(remarks))


@app.command(
    "sign-off", epilog="parity sign-off j0000000000001 --days 14 --reason 'reruns are queued'"
)
@flat
def sign_off(
    job: JobId,
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=_ACCEPTED,
            help="Say why, in at least 10 characters; kept with your name and the time.",
        ),
    ],
    days: float | None = option(
        None, "Accept the verdict for DAYS, at most 90.", "DAYS", rich_help_panel=_ACCEPTED
    ),
    candidate: str | None = option(
        None,
        "Candidate whose verdict is accepted. [default: the job's only one]",
        "NAME",
        rich_help_panel=_ACCEPTED,
    ),
    revoke: str | None = option(
        None, "End this sign-off instead, by its id.", "SIGN_OFF", rich_help_panel=_ACCEPTED
    ),
    *,
    at: ServerQuery,
) -> int:
    """Accept an inconclusive verdict for some days, or revoke that.

    Needs scope approve, and a person who did not submit the job. Until it expires `parity gate`
    says who accepted it, and exits 0 unless another candidate fails or is inconclusive. The verdict
    stays inconclusive.
    """
    if (days is None) == (revoke is None):
        raise UsageError(
            "give --days to sign off, or --revoke with the id of a sign-off to end it; example: "
            "--days 14"
        )
    if days is not None and not 0.0 < days <= MOST_DAYS:
        raise UsageError(f"--days is {days:g}; expected more than 0 and at most {MOST_DAYS:g}")
    if len(reason.strip()) < LEAST_REASON:
        raise UsageError(
            f"--reason is {reason!r}; expected at least {LEAST_REASON} characters: it is kept with "
            "your name"
        )
    with at.client() as client:
        if revoke is not None:
            remarks = client.revoke_sign_off(job, revoke, reason)
        else:
            remarks = client.sign_off(
                job, candidate or _only_candidate(client.job(job)), reason, days or 0.0
            )
    return at.show(remarks, remark_words(remarks))


@app.command(
    "new-question",
    epilog="parity new-question j0000000000001 --reason 'node 7 computed wrong sums'",
)
@flat
def new_question(
    job: JobId,
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel="Log",
            help="Say why, in at least 10 characters; kept with your name and the time.",
        ),
    ],
    *,
    at: ServerQuery,
) -> int:
    """Register a new question, so that what a job answered may be asked again.

    Needs scope admin. For reasons other than the verdict, such as a broken node. A note of the job
    keeps who did and why.
    """
    if len(reason.strip()) < LEAST_REASON:
        raise UsageError(
            f"--reason is {reason!r}; expected at least {LEAST_REASON} characters: it is kept with "
            "your name"
        )
    with at.client() as client:
        remarks = client.new_question(job, reason)
    return at.show(remarks, remark_words(remarks))


def _only_candidate(document: Mapping[str, Any]) -> str:
    names = [arm["name"] for arm in document["arms"] if arm["role"] == "candidate"]
    if len(names) != 1:
        raise UsageError(
            f"job {document['id']} has {len(names)} candidates; name one with --candidate: "
            f"{', '.join(names)}"
        )
    return str(names[0])
