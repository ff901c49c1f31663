"""Follow a job or an analysis to its end: on a terminal a table, elsewhere plain lines."""

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from parity.cli.jobs.progress import forecast_changes, recent_gaps, state_line, table
from parity.cli.terminal.output import print_lines
from parity.client.rest import Client, Document, UnreachableError
from parity.client.retry import Pauses, is_transient, retry

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
    stop the job. An open project is followed until all its runs have ended: it waits for its owner.

    The time limit counts from `since` (`time.monotonic()`), by default from now. `check` is called
    about once a second; what it raises ends the watching.
    """
    documents = poll(lambda: client.job(job_id), job_id, timeout_seconds, since, check)
    states: dict[str, str] = {}
    if not console.is_terminal:
        return follow_lines(
            documents,
            lambda latest, is_due: [
                *forecast_changes(latest, states),
                *([state_line(client, latest)] if is_due else []),
            ],
            console,
        )
    document: Document = {}
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        for document in documents:
            print_lines(forecast_changes(document, states), live.console)
            live.update(table(document, recent_gaps(client, document)))
    return document


@contextmanager
def interrupt_leaves_running(kind: str, *, watch: str, end: str) -> Iterator[None]:
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
    analysis_id: str,
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
        with interrupt_leaves_running(kind, watch=watch, end=end):
            return follow_lines(poll(fetch, analysis_id, timeout_seconds), lines, console)
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
    has ended, or is of a project that goes on only by what its owner does.

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
        if document["status"] in ENDED or document.get("awaits_conclusion"):
            return
        wait(_PERIOD_SECONDS)
