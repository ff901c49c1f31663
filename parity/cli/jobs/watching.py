"""Follow a job: on a terminal a bar, loss, gap and time left per arm, elsewhere plain lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from parity.cli.terminal.output import print_lines
from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import Pauses, is_transient, retry
from parity.wording import TABLE_DECIMALS, signed

ENDED = frozenset({"concluded", "failed", "cancelled"})
_PERIOD_SECONDS = 1.0
_LINE_SECONDS = 30.0
# The server may restart under a watcher, which tries for that long before it gives up.
_PATIENCE_SECONDS = 60.0
PAUSES = Pauses(first_seconds=_PERIOD_SECONDS, longest_seconds=_PERIOD_SECONDS, longest_retry_after_seconds=60.0)
_GAP_BINS = 20

Lines = Callable[[Document, bool], Iterable[str]]
"""The lines for a document; the flag says whether one is due that only repeats the state."""


class JobEndedError(Exception):
    """The job ended without a verdict; the message gives the reason."""


class WatchTimeoutError(Exception):
    """The job did not end within the given time, up to which the server answered."""


def follow(
    client: Client, job_id: str, console: Console, timeout_seconds: float | None = None, check: Callable[[], None] | None = None
) -> Document:
    """Show a job's progress until it ends, and return its last document. To stop watching does not stop the job.

    `check` is called about once a second; what it raises ends the watching.
    """
    documents = poll(lambda: client.job(job_id), job_id, timeout_seconds, check or (lambda: None))
    states: dict[str, str] = {}
    if not console.is_terminal:
        return follow_lines(
            documents, lambda each, is_due: [*forecast_changes(each, states), *([_state(client, each)] if is_due else [])], console
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
    return f"{document['status']} {document['share_done']:.0%}, {_left(document['eta_seconds'])} left: {arms}{waiting}"


@contextmanager
def goes_on(kind: str, *, watch: str, end: str) -> Iterator[None]:
    """On Ctrl-C, leave a job, an analysis or a search running, and say which command follows it and which ends it."""
    try:
        yield
    except KeyboardInterrupt:
        raise JobEndedError(f"stopped watching; the {kind} goes on. Follow it: {watch}. End it: {end}") from None


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
    """Follow an analysis or a search in lines; if that is broken off, the error says which command follows it again."""
    try:
        with goes_on(kind, watch=watch, end=end):
            return follow_lines(poll(fetch, own, timeout_seconds), lines, console)
    except UnreachableError as error:
        raise UnreachableError(f"{error}. The {kind} goes on there; follow it: {watch}") from None


def poll(
    fetch: Callable[[], Document], job_id: str, timeout_seconds: float | None, check: Callable[[], None] = lambda: None
) -> Iterator[Document]:
    """What `fetch` returns about once a second; its `status` is that of the job, and the last one has ended.

    Raises WatchTimeoutError where it had not ended in time; where no server answered at that time, the last request's error.
    """
    limit = math.inf if timeout_seconds is None else timeout_seconds
    began = time.monotonic()
    unanswered: list[Exception] = []  # errors since the last answer

    def wait(seconds: float) -> None:
        left = began + limit - time.monotonic()
        if left <= 0.0:
            if unanswered and not _too_many_requests(unanswered[-1]):
                raise unanswered[-1]
            raise WatchTimeoutError(f"job {job_id} did not end within {limit:g} s and goes on; follow it with `parity watch {job_id}`")
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


def _too_many_requests(error: Exception) -> bool:
    return isinstance(error, ClientError) and error.status == 429


def forecast_changes(document: Document, states: dict[str, str]) -> list[str]:
    """A line for each candidate whose forecast changed its state since the last call; `states` (by arm) is updated. No verdict."""
    lines = []
    for arm in document["arms"]:
        live = arm.get("live")
        if live and states.get(arm["name"]) != live["state"]:
            states[arm["name"]] = live["state"]
            lines.append(f"{arm['name']}: {live['sentence']}")
    return lines


def _line(arm: Document, gaps: Mapping[str, float]) -> str:
    gap = f" gap {signed(gaps[arm['name']], TABLE_DECIMALS)}" if arm["name"] in gaps else ""
    return f"{arm['name']} {arm['steps_done']}/{arm['planned_steps']} loss {_loss(arm['loss'])}{gap}"


def table(document: Document, gaps: Mapping[str, float]) -> Table:
    """One row per arm: bar, steps, loss, gap (nats, where known) and time left."""
    shown = Table(box=None, pad_edge=False, title_justify="left", title=document["waiting"], title_style="dim")
    for heading in ("arm", ""):
        shown.add_column(heading, no_wrap=True)
    for heading in ("steps", "loss", "gap, nats", "left"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for arm in document["arms"]:
        done, planned = arm["steps_done"], arm["planned_steps"]
        gap = signed(gaps[arm["name"]], TABLE_DECIMALS) if arm["name"] in gaps else "–"
        gap = "baseline" if arm["role"] == "baseline" else gap
        shown.add_row(
            arm["name"],
            ProgressBar(total=planned, completed=done, width=20),
            f"{done:,}/{planned:,}",
            _loss(arm["loss"]),
            gap,
            _left(arm["eta_seconds"]),
        )
    return shown


def _gaps(client: Client, document: Document) -> dict[str, float]:
    """Candidate -> gap over the last twentieth of the steps that it shares with the baseline, where there are any."""
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
    return f"{value:.4f}" if isinstance(value, float) else value or "–"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
