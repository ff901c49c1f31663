"""The command `status`: the state of a job, or a list of jobs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

import typer
from rich.console import Console

from parity.cli.connection import ServerQuery
from parity.cli.jobs.progress import AS_SENT, has_no_runs, recent_gaps, table
from parity.cli.jobs.remarks import remark_words
from parity.cli.jobs.watching import ENDED
from parity.cli.terminal.options import Options, argument, flat, option, repeatable
from parity.cli.terminal.output import WIDTH, print_json, print_lines, print_rows
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.judging.decision import worst
from parity.report.formats.terminal import answer_parts
from parity.wording import age_in_words, count, did_you_mean, version_words

app = typer.Typer()

SORTS = ("newest", "oldest", "name", "ended", "gap")
FILTERS = "Filters of the list"
JobState = Literal["queued", "running", "concluded", "failed", "cancelled"]
JOB_STATES: Sequence[str] = get_args(JobState)
_MOST_WAITING = 12
_STATES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


class Filters(Options, panel=FILTERS):
    """Which jobs are listed, and in which order."""

    status: str | None = option(
        None, f"List only jobs in this state: {', '.join(JOB_STATES)}.", "STATUS"
    )
    verdict: str | None = option(None, "Only jobs with this verdict on a candidate.", "VERDICT")
    name: str | None = option(None, "Only jobs whose name contains TEXT.", "TEXT")
    tag: list[str] = repeatable("Only jobs with this tag; repeatable.", "TAG")
    recipe: str | None = option(None, "Only jobs with a candidate of this recipe.", "RECIPE")
    model: str | None = option(None, "Only jobs whose model's name contains TEXT.", "TEXT")
    revision: str | None = option(None, "Only jobs whose revision begins with PREFIX.", "PREFIX")
    branch: str | None = option(None, "Only jobs of this branch.", "NAME")
    baseline: str | None = option(None, "Only jobs that name this promoted baseline.", "NAME")
    since: str | None = option(
        None, "Only jobs submitted on this day (UTC, 2026-11-23) or later.", "DAY"
    )
    until: str | None = option(None, "Only jobs submitted on this day or earlier.", "DAY")
    sort: str | None = option(None, f"Order: {', '.join(SORTS)}. [default: newest]", "ORDER")


@app.command(epilog="parity status --status concluded --tag nightly --sort gap")
@flat
def status(
    job: Annotated[
        str | None, argument("[JOB]", "Id of a job; without it the newest jobs are listed.")
    ] = None,
    limit: int = option(
        20, "List at most this many jobs.", min=1, max=500, rich_help_panel=FILTERS
    ),
    *,
    listed: Filters,
    at: ServerQuery,
) -> int:
    """Show the state of a job, or list the newest jobs (in a pipe: one per line, tab-separated)."""
    for name, words in (("status", JOB_STATES), ("verdict", tuple(_STATES)), ("sort", SORTS)):
        value = getattr(listed, name)
        if value is not None and value not in words:
            raise UsageError(
                f"--{name} is {value!r}; expected one of "
                f"{', '.join(words)}{did_you_mean(value, words)}"
            )
    filters = {key: value for key, value in asdict(listed).items() if value}
    with at.client() as client:
        answer = client.jobs(limit, filters=filters) if job is None else client.job(job)
        gaps = {} if job is None or answer["status"] in ENDED else recent_gaps(client, answer)
    if at.as_json:
        print_json(answer["items"] if job is None else answer)
    elif job is None:
        _list_jobs(answer["items"], filtered=bool(filters.keys() - {"sort"}))
    else:
        _show_job(answer, gaps)
    return 0


def _show_job(document: Document, gaps: Mapping[str, float]) -> None:
    """The verdict, the state, progress per arm, overrides, reused runs, and the ids of runs that
    the user trains.
    """
    console = Console(width=WIDTH, highlight=False, markup=False)
    for part in answer_parts(document["verdicts"]) if document["verdicts"] else ():
        console.print(part)
    reason = (
        document["message"]
        or document["waiting"]
        or (AS_SENT.capitalize() if has_no_runs(document) else "")
        or f"{document['share_done']:.0%} of the steps are done"
    )
    reason = conclusion_words(document) or reason
    console.print(
        f"{document['id']} {document['name']}: {document['status']}. {reason}", soft_wrap=True
    )
    if not has_no_runs(document):
        console.print(table(document, gaps))
    rules = [
        f"{arm['name']}: {rule}" for arm in document["arms"] for rule in arm.get("overrides", ())
    ]
    print_lines(
        (*rules, *_queue_words(document), *reused_words(document), *remark_words(document)), console
    )
    if document["engine"] == "external":
        _list_runs(document)


def conclusion_words(document: Mapping[str, Any]) -> str:
    """What is left to do for a project of which all runs have ended; "" for any other job."""
    if not document.get("awaits_conclusion"):  # an earlier server does not say
        return ""
    unfinished = [arm["name"] for arm in document["arms"] if not _has_finished(arm)]
    if unfinished:
        return (
            f"all its runs have ended, and {', '.join(unfinished)} has no finished run; train one "
            f"with parity.Run, or end the project with `parity cancel {document['id']}`"
        )
    return f"all its runs have ended; `parity runs conclude {document['id']}` records the verdict"


def waiting_words(document: Mapping[str, Any]) -> str:
    """How a job without a verdict comes to one. While a project's runs train it is judged as of now
    at most.
    """
    job = document["id"]
    if not document["is_open"]:
        return f"`parity watch {job}` waits for it"
    if words := conclusion_words(document):
        return words
    follow = f"`parity watch {job}` follows it until its runs have ended"
    if len(document["arms"]) > 1 and all(map(_has_finished, document["arms"])):
        return f"{follow}; `parity runs judge {job}` judges the finished ones as of now"
    return follow


def _has_finished(arm: Mapping[str, Any]) -> bool:
    return any(run["state"] == "finished" for run in arm["runs"])


def _list_runs(document: Document) -> None:
    """The runs that a user's own scripts train: each with its id (for PARITY_RUN) and its number of
    steps.
    """
    rows = [
        (
            run["id"],
            arm["name"],
            f"{run['replicate']}{', stops early' if run['kind'] == 'short' else ''}",
            "" if run["planned_steps"] is None else f"{run['planned_steps']:,}",
            run["state"].replace("_", " "),
            run["message"] or "",
        )
        for arm in document["arms"]
        for run in (*arm["runs"], *arm["short_reruns"])
    ]
    print_rows(("run", "arm", "replicate", "steps", "state", "why"), rows)


def _queue_words(document: Document) -> list[str]:
    """One line per run that waits for a scheduler, with the scheduler's reason, those with the same
    words together; of many the first.
    """
    waiting: dict[str, list[str]] = {}
    for arm in document["arms"]:
        for run in (*arm["runs"], *arm["short_reruns"]):
            if run.get("waiting"):
                waiting.setdefault(run["waiting"], []).append(
                    f"{arm['name']} replicate {run['replicate']}"
                )
    lines = [
        f"{names[0]} is {words}"
        if len(names) == 1
        else f"{names[0]} and {count(len(names) - 1, 'other run')} are {words}"
        for words, names in waiting.items()
    ]
    more = sum(map(len, [*waiting.values()][_MOST_WAITING:]))
    return lines[:_MOST_WAITING] + (
        [f"and {count(more, 'further run')} in the queue"] if more else []
    )


def reused_words(document: Document) -> list[str]:
    """One line for the named baseline of a job, and one per run whose curve was reused."""
    lines = []
    if named := document["baseline"]:
        lines.append(
            f"against baseline {version_words(named)}, {count(named['controls'], 'control')}"
        )
    for arm in document["arms"]:
        for run in arm["runs"]:
            if reused := run["reused"]:
                if reused["age_seconds"] is None:
                    age = ""
                else:
                    age = f", trained {age_in_words(reused['age_seconds'])} ago"
                lines.append(
                    f"{arm['name']} replicate {run['replicate']} is reused: run {reused['run']} of "
                    f"job {reused['job']}{age}"
                )
    return lines


def _list_jobs(jobs: Sequence[Document], *, filtered: bool) -> None:
    if not jobs:
        print(
            "no jobs match"
            if filtered
            else "no job yet; submit one with `parity submit parity.yaml`",
            file=sys.stderr,
        )
        return
    rows = []
    for job in jobs:
        if job["status"] == "running":
            state = f"{job['status']} {job['share_done']:.0%}"
        else:
            state = job["status"]
        rows.append((job["id"], job["name"], state, _answer(job), " ".join(job.get("tags", ()))))
    print_rows(("job", "name", "status", "answer", "tags"), rows)


def _answer(job: Document) -> str:
    """The one state of a job with its lead, "FAIL: nvfp4 fails."; a server before leads were kept
    gives the verdicts by candidate. "" without any.
    """
    verdicts = job["verdicts"]
    if not verdicts:
        return ""
    lead = job.get("lead") or ", ".join(
        f"{verdict['candidate']} {_STATES[verdict['verdict']]}" for verdict in verdicts
    )
    return f"{_STATES[worst(verdict['verdict'] for verdict in verdicts)]}: {lead}"
