"""The commands about several jobs (matrix, trend) and for what people add to one: tags, notes,
sign-offs.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from parity.cli.connection import Asked, JobId
from parity.cli.options import Labels, Options, argument, flat, option
from parity.cli.terminal import OUTPUT, UsageError
from parity.client.rest import Document
from parity.judging.verdict.sign_offs import LEAST_REASON, MOST_DAYS
from parity.report.sign_off_words import NOT_A_PASS, accepted_words, lapsed_words
from parity.wording import interval_words, percent, signed

# What a job is found by (tags, and the branch of the code), and what people added to it, as the
# command line states and shows them.

# GitHub (pull request, push) and GitLab; Jenkins and others have BRANCH_NAME.
_IN_CI = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME")


def labels_of(file: str, content: Document, labels: Labels) -> Document:
    """The tags of a job file and of the options, and the branch; empty ones are left out.
    UsageError for tags that are no list of words.
    """
    stated = content.get("tags") or []
    if not isinstance(stated, list) or not all(isinstance(each, str) for each in stated):
        raise UsageError(
            f"{file}: `tags:` is {stated!r}; expected a list of words such as tags: [nightly, "
            "llama3]"
        )
    every = list(dict.fromkeys([*stated, *labels.tag]))
    name = _branch(Path(file)) if labels.branch is None else labels.branch
    return ({"tags": every} if every else {}) | ({"branch": name} if name else {})


def remark_words(document: Document) -> Iterator[str]:
    """One line each for the tags, the notes and the sign-offs of a job."""
    if tags := document.get("tags"):
        yield f"tags: {', '.join(tags)}"
    for each in document.get("sign_offs", ()):
        yield (
            f"{NOT_A_PASS}: {accepted_words(each)} ({each['id']})"
            if each["state"] == "valid"
            else lapsed_words(each)
        )
    for note in document.get("notes", ()):
        yield (
            f"note by {note['who']}, {note['created_at'][:16].replace('T', ' ')} UTC: "
            f"{' '.join(note['text'].split())}"
        )


def _branch(file: Path) -> str:
    """The branch that CI states, else git's where the file is; empty without a branch, as at a
    detached commit.
    """
    for name in _IN_CI:
        if value := os.environ.get(name):
            return value
    return git(file, "symbolic-ref", "--quiet", "--short", "HEAD").strip()


def git(file: Path, *words: str) -> str:
    """What git says where a file is; empty without git, or where it fails."""
    program = shutil.which("git")
    if program is None:
        return ""
    done = subprocess.run(
        [program, *words],
        cwd=file.resolve().parent,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        return ""
    return done.stdout


# The commands that show several jobs at once: matrix and trend.

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
    at: Asked,
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


class Series(Options, panel="Jobs of the trend"):
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
    wanted: Series,
    at: Asked,
) -> int:
    """Show how a gap moved over commits or days, and which of them moved it beyond run-to-run
    noise.
    """
    if (gate is None) == (wanted.baseline is None):
        raise UsageError(
            "give the NAME of the jobs, or --baseline NAME; example: parity trend nightly"
        )
    if wanted.by not in ("commit", "day"):
        raise UsageError(f"--by is {wanted.by!r}; expected commit or day")
    stated = {"gate": gate, **asdict(wanted)}
    with at.client() as client:
        history = client.trend({key: value for key, value in stated.items() if value is not None})
    if not at.as_json:
        print(history["answer"])
    return at.show_rows(
        history,
        (wanted.by, "job", "verdict", "gap, nats (interval)", "gap", "margin"),
        map(_point, history["points"]),
    )


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
    word = point["verdict"].upper() if point["verdict"] else point["status"]
    if point["gap_nats"] is None:
        return (point["group"], point["job"], word, point["why_missing"] or "", "", "")
    margin = "" if point["margin_nats"] is None else f"{point['margin_nats']:.4f}"
    share = "" if point["gap_rel"] is None else percent(point["gap_rel"])
    return (point["group"], point["job"], word, _gap(point), share, margin)


def _gap(values: Document) -> str:
    return (
        f"{signed(values['gap_nats'], 4)} "
        f"({interval_words(values['ci_low'], values['ci_high'], 4)})"
    )


# The commands for what people add to a job: tag, note, sign-off.


@app.command(epilog="parity tag j0000000000001 nightly llama3")
@flat
def tag(
    job: JobId,
    tags: Annotated[
        list[str] | None,
        argument("[TAG]...", "All tags of the job; none removes those that it has."),
    ] = None,
    *,
    at: Asked,
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
    at: Asked,
) -> int:
    """Add a note to a job.

    Notes have an author and a time, and are never changed.
    """
    with at.client() as client:
        remarks = client.add_note(job, sys.stdin.read() if text == "-" else text)
    return at.show(remarks, remark_words(remarks))


_ACCEPTED = "Sign-off"


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
    at: Asked,
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
    at: Asked,
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
