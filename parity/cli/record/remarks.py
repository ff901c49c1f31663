"""The commands for what people add to a job: tag, note, sign-off."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from parity.cli.record.labels import remark_words
from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import UsageError, print_json
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client

app = typer.Typer()

_Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as printed by `submit` and `status`.")]


@app.command("tag", epilog="parity tag j0000000000001 nightly llama3")
def tag(
    job: _Job,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="All tags of the job; none removes those that it has.")
    ] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Set the tags of a job, by which lists find it.

    Needs the token that submitted the job, or scope admin.
    """
    with Client(server, token) as client:
        remarks = client.set_tags(job, tags or [])
    if as_json:
        print_json(remarks)
    else:
        print(f"{job} {', '.join(remarks['tags']) or 'has no tags'}")
    return 0


@app.command("note", epilog="parity note j0000000000001 'the gap is that of the new tokenizer'")
def note(
    job: _Job,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Plain text; `-` reads it from stdin.")],
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Add a note to a job.

    Notes have an author and a time, and are never changed.
    """
    with Client(server, token) as client:
        remarks = client.add_note(job, sys.stdin.read() if text == "-" else text)
    _show(remarks, as_json=as_json)
    return 0


@app.command("sign-off", epilog="parity sign-off j0000000000001 --days 14 --reason 'reruns are queued'")
def sign_off(
    job: _Job,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="State the reason; it is kept with your name and the time.")],
    days: Annotated[float | None, typer.Option(metavar="DAYS", help="Accept the verdict for DAYS, at most 90.")] = None,
    candidate: Annotated[
        str | None, typer.Option(metavar="NAME", help="Candidate whose verdict is accepted. [default: the job's only one]")
    ] = None,
    revoke: Annotated[str | None, typer.Option(metavar="SIGN_OFF", help="End this sign-off instead, by its id.")] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Accept an inconclusive verdict for some days, or revoke that.

    Needs scope approve, and a person who did not submit the job. Until it expires `parity gate` exits 0 and says who accepted it. The
    verdict stays inconclusive.
    """
    if (days is None) == (revoke is None):
        raise UsageError("give --days to sign off, or --revoke with the id of a sign-off to end it")
    with Client(server, token) as client:
        if revoke is not None:
            remarks = client.revoke_sign_off(job, revoke, reason)
        else:
            remarks = client.sign_off(job, candidate or _only_candidate(client.job(job)), reason, days or 0.0)
    _show(remarks, as_json=as_json)
    return 0


def _only_candidate(document: Mapping[str, Any]) -> str:
    names = [arm["name"] for arm in document["arms"] if arm["role"] == "candidate"]
    if len(names) != 1:
        raise UsageError(f"job {document['id']} has {len(names)} candidates; name one with --candidate: {', '.join(names)}")
    return str(names[0])


def _show(remarks: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(remarks)
        return
    for line in remark_words(remarks):
        print(line)
