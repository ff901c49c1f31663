"""A job on the terminal: what it can decide before it trains, its progress, its state."""

import math
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from parity.cli.connection import Asked
from parity.cli.options import Options, argument, flat, option, repeatable
from parity.cli.output import WIDTH, print_json, print_lines, print_rows
from parity.cli.remarks import remark_words
from parity.cli.terminal import UsageError
from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import Pauses, is_transient, retry
from parity.report.terminal import answer_parts
from parity.wording import age_in_words, count, did_you_mean, signed, version_words

# What a job can decide, printed before it trains: one line per candidate, from one request to the
# server.


def print_outlook(client: Client, file: str, content: Document, console: Console) -> None:
    """Print the line of each candidate of a job file. Nothing where the server cannot say: what is
    wrong with a job, submitting tells.
    """
    if console.quiet:
        return
    try:
        answer = client.plan(content["job"], content["policy"], baseline=content.get("baseline"))
        lines = [
            _outlook_line(file, one, alone=len(answer["candidates"]) == 1)
            for one in answer["candidates"]
        ]
    except (ClientError, UnreachableError, TypeError, ValueError, KeyError):
        return
    for line in lines:
        console.print(line, soft_wrap=True)


def print_missing(job: Document, console: Console) -> None:
    """Print what a job that was just queued lacks, such as a worker; an earlier server does not
    say.
    """
    for sentence in job.get("missing", ()):
        console.print(f"note: {sentence}", soft_wrap=True)


def _outlook_line(file: str, candidate: Document, *, alone: bool) -> str:
    name, plan = "" if alone else f"{candidate['name']}: ", candidate["plan"]
    if plan is None or plan["decides"]:
        return f"{name}{candidate['line']}"
    # The server's tables and controls, which `parity plan` has not, or a family that the job names.
    borrows = any(
        arm["basis"].startswith(("borrowed", "assumed as in")) for arm in plan["run_noise"]
    )
    if borrows or plan["design"]["controls"]:
        return f"{name}{candidate['line']}. {plan['advice']}"
    return f"{name}{candidate['line']}: `{command(file, plan)}` shows what would decide"


def command(file: str, plan: Document) -> str:
    """The call of `parity plan` that shows the same design, with the policy of the job file."""
    design = plan["design"]
    words = ["parity", "plan", "--policy", file, "--planned-steps", str(design["planned_steps"])]
    words += ["--level", f"{design['level']:.4g}"] if plan["unit"] == "nats" else []
    for arm in ("baseline", "candidate"):
        runs, recipe, rounding = (
            design[f"{arm}_{what}"] for what in ("runs", "recipe", "rounding")
        )
        words += [f"--{arm}-recipe", recipe] if recipe else []
        words += [f"--{arm}-rounding", rounding] if rounding and "+" in (recipe or "") else []
        words += [f"--{arm}-runs", str(runs)] if runs > 1 else []
    words += (
        ["--short-reruns", str(design["short_reruns"]), "--stop-at", f"{design['stop_at']:g}"]
        if design["short_reruns"]
        else []
    )
    if design["step_seconds"]:
        words += [
            "--step-seconds",
            f"{design['step_seconds']:.3g}",
            "--devices",
            str(design["devices"]),
        ]
    return shlex.join(words)


# Follow a job: on a terminal a bar, loss, gap and time left per arm, elsewhere plain lines.

ENDED = frozenset({"concluded", "failed", "cancelled"})
_PERIOD_SECONDS = 1.0
_LINE_SECONDS = 30.0
# The server may restart under a watcher, which tries for that long before it gives up.
_PATIENCE_SECONDS = 60.0
PAUSES = Pauses(
    first_seconds=_PERIOD_SECONDS,
    longest_seconds=_PERIOD_SECONDS,
    longest_retry_after_seconds=60.0,
    spread=0.5,
)
_GAP_BINS = 20

Lines = Callable[[Document, bool], Iterable[str]]
"""The lines for a document; the flag says whether one is due that only repeats the state."""


class JobEndedError(Exception):
    """The job ended without a verdict; the message gives the reason."""


class WatchTimeoutError(Exception):
    """The job did not end within the given time, up to which the server answered."""


def follow(
    client: Client,
    job_id: str,
    console: Console,
    timeout_seconds: float | None = None,
    since: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Document:
    """Show a job's progress until it ends, and return its last document. To stop watching does not
    stop the job.

    The time limit counts from `since` (`time.monotonic()`), by default from now. `check` is called
    about once a second; what it raises ends the watching.
    """
    documents = poll(lambda: client.job(job_id), job_id, timeout_seconds, since, check)
    states: dict[str, str] = {}
    if not console.is_terminal:
        return follow_lines(
            documents,
            lambda each, is_due: [
                *forecast_changes(each, states),
                *([_state(client, each)] if is_due else []),
            ],
            console,
        )
    document: Document = {}
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        for document in documents:
            print_lines(forecast_changes(document, states), live.console)
            live.update(table(document, _gaps(client, document)))
    return document


def _state(client: Client, document: Document) -> str:
    """The state of a job and of its arms in one line."""
    gaps = _gaps(client, document)
    arms = "; ".join(_line(arm, gaps) for arm in document["arms"])
    waiting = f". {document['waiting']}" if document["waiting"] else ""
    return (
        f"{document['status']} {document['share_done']:.0%}, {_left(document['eta_seconds'])} "
        f"left: {arms}{waiting}"
    )


@contextmanager
def goes_on(kind: str, *, watch: str, end: str) -> Iterator[None]:
    """On Ctrl-C, leave a job or an analysis running, and say which command follows it and which
    ends it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise JobEndedError(
            f"stopped watching; the {kind} goes on. Follow it: {watch}. End it: {end}"
        ) from None
    finally:
        signal.signal(signal.SIGINT, before)


def follow_lines(documents: Iterable[Document], lines: Lines, console: Console) -> Document:
    """Print what `lines` gives for each document until the last, and return that."""
    document: Document = {}
    next_line = 0.0
    for document in documents:
        is_due = time.monotonic() >= next_line
        print_lines(lines(document, is_due), console)
        if is_due:
            next_line = time.monotonic() + _LINE_SECONDS
    return document


def follow_to_end(
    fetch: Callable[[], Document],
    own: str,
    lines: Lines,
    console: Console,
    timeout_seconds: float | None,
    *,
    kind: str,
    watch: str,
    end: str,
) -> Document:
    """Follow an analysis in lines; if that is broken off, the error says which command follows it
    again.
    """
    try:
        with goes_on(kind, watch=watch, end=end):
            return follow_lines(poll(fetch, own, timeout_seconds), lines, console)
    except UnreachableError as error:
        raise UnreachableError(f"{error}. The {kind} goes on there; follow it: {watch}") from None


def poll(
    fetch: Callable[[], Document],
    job_id: str,
    timeout_seconds: float | None,
    since: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Document]:
    """What `fetch` returns about once a second; its `status` is that of the job, and the last one
    has ended.

    Raises WatchTimeoutError where it had not ended in time; where no server answered at that time,
    the last request's error.
    """
    limit = math.inf if timeout_seconds is None else timeout_seconds
    began = time.monotonic() if since is None else since
    unanswered: list[Exception] = []  # errors since the last answer

    def wait(seconds: float) -> None:
        left = began + limit - time.monotonic()
        if left <= 0.0:
            if unanswered and getattr(unanswered[-1], "status", 0) != 429:  # too many requests
                raise unanswered[-1]
            raise WatchTimeoutError(
                f"job {job_id} did not end within {limit:g} s and goes on; follow it with `parity "
                f"watch {job_id}`"
            )
        time.sleep(min(seconds, left))
        check()

    check()
    while True:
        document = retry(
            fetch,
            pauses=PAUSES,
            is_retryable=is_transient,
            wait=wait,
            on_error=unanswered.append,
            patience_seconds=_PATIENCE_SECONDS,
        )
        unanswered.clear()
        yield document
        if document["status"] in ENDED:
            return
        wait(_PERIOD_SECONDS)


def forecast_changes(document: Document, states: dict[str, str]) -> list[str]:
    """A line for each candidate whose forecast changed its state since the last call; `states` (by
    arm) is updated. No verdict.
    """
    lines = []
    for arm in document["arms"]:
        live = arm.get("live")
        if live and states.get(arm["name"]) != live["state"]:
            states[arm["name"]] = live["state"]
            lines.append(f"{_title(arm)}: {live['sentence']}")
    return lines


def _title(arm: Document) -> str:
    """An arm's name with what it does; an earlier server gives the name alone."""
    return str(arm.get("title", arm["name"]))


def _line(arm: Document, gaps: Mapping[str, float]) -> str:
    gap = f" gap {signed(gaps[arm['name']])}" if arm["name"] in gaps else ""
    planned = "" if arm["planned_steps"] is None else f"/{arm['planned_steps']}"
    return f"{_title(arm)} {arm['steps_done']}{planned} loss {_loss(arm['loss'])}{gap}"


def _steps(arm: Document) -> str:
    """The steps that an arm's runs have done, of those that are planned where that is known."""
    done, planned = arm["steps_done"], arm["planned_steps"]
    if planned is None:
        return f"{done:,}"
    return f"{done:,}/{planned:,}"


def table(document: Document, gaps: Mapping[str, float]) -> Table:
    """One row per arm: bar, steps, loss, gap (nats, where known) and time left."""
    shown = Table(
        box=None, pad_edge=False, title_justify="left", title=document["waiting"], title_style="dim"
    )
    for heading in ("arm", ""):
        shown.add_column(heading, no_wrap=True)
    for heading in ("steps", "loss", "gap, nats", "left"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for arm in document["arms"]:
        done, planned = arm["steps_done"], arm["planned_steps"]
        gap = signed(gaps[arm["name"]]) if arm["name"] in gaps else "–"
        gap = "baseline" if arm["role"] == "baseline" else gap
        shown.add_row(
            _title(arm),
            ProgressBar(total=planned, completed=done, width=20) if planned else "",
            _steps(arm),
            _loss(arm["loss"]),
            gap,
            _left(arm["eta_seconds"]),
        )
    return shown


def _gaps(client: Client, document: Document) -> dict[str, float]:
    """Candidate -> gap over the last twentieth of the steps that it shares with the baseline, where
    there are any.
    """
    gaps = {}
    for arm in document["arms"]:
        if arm["role"] == "candidate" and arm["steps_done"]:
            try:
                mean = client.gap(document["id"], arm["name"], _GAP_BINS)["mean"]
            except (UnreachableError, ClientError) as error:
                if not is_transient(error):
                    raise
                continue
            if mean and isinstance(mean[-1], float):
                gaps[arm["name"]] = mean[-1]
    return gaps


def _loss(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return value or "–"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


# The command `status`: the state of a job, or a list of jobs.

app = typer.Typer()

SORTS = ("newest", "oldest", "name", "ended", "gap")
FILTERS = "Filters of the list"
JOB_STATES = ("queued", "running", "concluded", "failed", "cancelled")
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
    wanted: Filters,
    at: Asked,
) -> int:
    """Show the state of a job, or list the newest jobs (in a pipe: one per line, tab-separated)."""
    for name, known in (("status", JOB_STATES), ("verdict", tuple(_STATES)), ("sort", SORTS)):
        value = getattr(wanted, name)
        if value is not None and value not in known:
            raise UsageError(
                f"--{name} is {value!r}; expected one of "
                f"{', '.join(known)}{did_you_mean(value, known)}"
            )
    filters = {key: value for key, value in asdict(wanted).items() if value}
    with at.client() as client:
        answer = client.jobs(limit, filters=filters) if job is None else client.job(job)
        gaps = {} if job is None or answer["status"] in ENDED else _gaps(client, answer)
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
        or f"{document['share_done']:.0%} of the steps are done"
    )
    reason = conclusion_words(document) or reason
    console.print(
        f"{document['id']} {document['name']}: {document['status']}. {reason}", soft_wrap=True
    )
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
    return f"all its runs have ended; `parity runs conclude {document['id']}` records the verdict"


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
        verdicts = ", ".join(
            f"{verdict['candidate']} {_STATES[verdict['verdict']]}" for verdict in job["verdicts"]
        )
        if job["status"] == "running":
            state = f"{job['status']} {job['share_done']:.0%}"
        else:
            state = job["status"]
        rows.append((job["id"], job["name"], state, verdicts, " ".join(job.get("tags", ()))))
    print_rows(("job", "name", "status", "verdicts", "tags"), rows)
