"""The commands about one job: submit, watch, again, add-run, cancel, report."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any, TypedDict, cast

import typer

from parity.cli.connection import JobId, ServerQuery, VerdictQuery
from parity.cli.jobs import status, watching
from parity.cli.jobs.job_file import (
    UNSENDABLE,
    baseline_of,
    job_file,
    lines_named,
    with_short_reruns,
)
from parity.cli.jobs.labels import labels_of
from parity.cli.jobs.outlook import print_missing, print_outlook
from parity.cli.jobs.watching import JobEndedError
from parity.cli.terminal.option_words import FOLLOW, NOISE, OUTPUT, QUEUE
from parity.cli.terminal.options import Options, argument, flag, flat, option
from parity.cli.terminal.output import write_file
from parity.cli.terminal.shared_options import Follow, LabelOptions, Reuse
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Client
from parity.comparing.policy_file import read_yaml
from parity.gate.exit_codes import EXIT_CODES, exit_code
from parity.judging.curves.early_stops import MAX_SHORT_RERUNS
from parity.judging.verdict.sign_offs import accepted
from parity.wording import count

app = typer.Typer()


class QueuedJob(TypedDict):
    """A job that was queued: its id and the address of its page."""

    id: str
    url: str


class AddedRuns(TypedDict):
    """A job that got further runs: its id, and how many runs all its arms have now."""

    id: str
    runs: int


class CancelledJob(TypedDict):
    """A job that was to be cancelled: its id and its state, which stays as it was of a job that had
    ended.
    """

    id: str
    status: status.JobState


class Queue(Options, panel=QUEUE):
    """When a job's runs train, and for how long at most."""

    priority: int = option(
        0, "Set the priority, -100 to 100; above 0 needs an admin token.", min=-100, max=100
    )
    max_run_seconds: float | None = option(
        None, "Fail a run that trains longer. [default: the server's limit]", "SECONDS", min=1.0
    )


class EarlyStopOptions(Options, panel=NOISE):
    """Reruns that stop early and measure run-to-run noise, in place of the job file's."""

    short_reruns: int | None = option(
        None,
        "Add reruns to each arm that stop early and measure run-to-run noise; 0: none. [default: "
        "the job file's `short_reruns:`]",
        min=0,
        max=MAX_SHORT_RERUNS,
    )
    stop_at: float | None = option(
        None, "Share of the steps after which they stop. [default: the job file's, or 0.5]", "SHARE"
    )


@app.command(epilog="parity submit parity.yaml --watch")
@flat
def submit(
    file: Annotated[str, argument("parity.yaml", "Job file with `job:` and `policy:`.")],
    watch: bool = flag("--watch", "Follow the job and print its verdicts.", rich_help_panel=FOLLOW),
    *,
    following: Follow,
    queue: Queue,
    labels: LabelOptions,
    reuse: Reuse,
    noise: EarlyStopOptions,
    at: VerdictQuery,
) -> int:
    """Queue a job on the server and print its id and the address of its page.

    First prints on stderr what the job can decide and what it needs of machines and disk, and then
    what it lacks. A job that no registered worker with its devices can hold is refused.
    """
    content = with_short_reruns(job_file(file), noise.short_reruns, noise.stop_at)
    order = (
        asdict(queue)
        | {"baseline": baseline_of(content, reuse.reuse)}
        | labels_of(file, content, labels)
    )
    with at.client() as client:
        progress = following.progress()
        printed = print_outlook(client, file, content, progress)
        try:
            with lines_named(file):
                job = client.submit(content["job"], content["policy"], order=order)
        except (TypeError, ValueError):
            raise UsageError(f"{file}: {UNSENDABLE}") from None
        print_missing(job, progress, printed)
        if look := job.get("look"):
            if look["candidates"] > 1:
                shared = f", shared by {count(look['candidates'], 'candidate')}"
            else:
                shared = ""
            progress.print(f"look {look['number']} of {look['looks']} at this question{shared}")
        return _shown_or_followed(client, job, following, at, watch=watch)


@app.command(epilog="parity watch j0000000000001 --timeout 3600")
@flat
def watch(job: JobId, following: Follow, at: VerdictQuery) -> int:
    """Follow a job to its end and print its verdicts. Ctrl-C stops watching, not the job.

    Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass. A project of parity.Run is
    followed until it is concluded or all runs of a baseline and a candidate have ended; the latter
    exits with 3, because no verdict is recorded yet.
    """
    with at.client() as client:
        return _follow(client, job, following, at)


@app.command(epilog="parity again j0000000000001 --patch change.yaml")
@flat
def again(
    job: JobId,
    patch: str | None = option(
        None,
        "YAML file with what changes, below `job:` and `policy:`; null removes a field.",
        "FILE",
        rich_help_panel="Change",
    ),
    watch: bool = flag(
        "--watch", "Follow the new job and print its verdicts.", rich_help_panel=FOLLOW
    ),
    *,
    following: Follow,
    at: VerdictQuery,
) -> int:
    """Queue a new job with the specification of one that has ended, and a change of it."""
    changed = read_yaml(patch) if patch else {}
    if not isinstance(changed, dict):
        raise UsageError(
            f"{patch}: is no mapping; expected the keys of a job file that change, such as job: "
            "{schedule: {steps: 3000}}"
        )
    with at.client() as client:
        try:
            with lines_named(patch) if patch else nullcontext():
                made = client.again(job, changed)
        except (TypeError, ValueError):
            raise UsageError(f"{patch}: {UNSENDABLE}") from None
        return _shown_or_followed(client, made, following, at, watch=watch)


@app.command("add-run", epilog="parity add-run j0000000000001")
@flat
def add_run(job: JobId, at: ServerQuery) -> int:
    """Add a run to each arm of a job that has no verdict yet.

    Once a candidate has trained, this takes a look that the policy registered.
    """
    with at.client() as client:
        made = client.add_run(job)
    runs, look = [len(arm["runs"]) for arm in made["arms"]], made.get("look")
    counted = f", look {look['number']} of {look['looks']}" if look else ""
    return at.show(
        AddedRuns(id=job, runs=sum(runs)), [f"{job} {' + '.join(map(str, runs))} runs{counted}"]
    )


@app.command(epilog="parity cancel j0000000000001")
@flat
def cancel(job: JobId, at: ServerQuery) -> int:
    """Cancel a job; a job that has ended stays as it is."""
    with at.client() as client:
        state = client.cancel(job)["status"]
    return at.show(CancelledJob(id=job, status=state), [f"{job} {state}"])


@app.command(epilog="parity report j0000000000001 --html report.html")
@flat
def report(
    job: JobId,
    at: VerdictQuery,
    html: str | None = option(
        None,
        "Also write one HTML page with the picture to this file.",
        "FILE",
        rich_help_panel=OUTPUT,
    ),
) -> int:
    """Print the verdicts of a job that has ended.

    Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    with at.client() as client:
        document = client.job(job)
        if html and document["verdicts"]:
            from parity.report.html.page import ConcludedJob, job_report  # noqa: PLC0415

            # a server's answer is JSON
            write_file(html, job_report(cast(ConcludedJob, document), client.page(job)).encode())
        return _finish(document, at)


def _shown_or_followed(
    client: Client, job: Mapping[str, Any], following: Follow, at: VerdictQuery, *, watch: bool
) -> int:
    """Print a new job's id and the address of its page, or follow it."""
    if watch:
        return _follow(client, job["id"], following, at)
    url = client.page(job["id"])
    return at.show(QueuedJob(id=job["id"], url=url), [f"{job['id']} {url}"])


def _follow(client: Client, job_id: str, following: Follow, at: VerdictQuery) -> int:
    progress = following.progress()
    progress.print(f"following {client.page(job_id)}", soft_wrap=True)
    with watching.interrupt_leaves_running(
        "job", watch=f"parity watch {job_id}", end=f"parity cancel {job_id}"
    ):
        document = watching.follow(client, job_id, progress, following.timeout)
    if words := status.conclusion_words(document):
        at.show_verdicts([])
        print(f"parity: job {job_id} has no verdict yet: {words}", file=sys.stderr)
        return EXIT_CODES["inconclusive"]
    return _finish(document, at)


def _finish(document: Mapping[str, Any], at: VerdictQuery) -> int:
    if document["status"] not in watching.ENDED:
        job_id = document["id"]
        raise UsageError(
            f"job {job_id} is {document['status']} and has no verdict yet; "
            f"{status.waiting_words(document)}"
        )
    if document["status"] != "concluded":
        why = f": {document['message']}" if document["message"] else ""
        raise JobEndedError(f"job {document['id']} {document['status']} without a verdict{why}")
    if "why" in document.get("links", {}):
        raise UsageError(
            f"job {document['id']} is an analysis and has no verdict; print it with `parity why "
            f"{document['id']}`"
        )
    holding = accepted(document["verdicts"], document["policy"], document.get("sign_offs", ()))
    at.show_verdicts(document["verdicts"], holding)
    if failed := document.get("failed_by"):  # an earlier server has none
        print(
            f"parity: this pass does not count: job {failed} failed the same question, and a fail "
            "stays",
            file=sys.stderr,
        )
        return EXIT_CODES["fail"]
    return exit_code(document["verdicts"])
