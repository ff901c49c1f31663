"""The server's answer to a gate's question, however long it takes; what stops the wait becomes an
outcome too.
"""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from rich.console import Console

from parity.cli.jobs import watching
from parity.cli.jobs.job_file import lines_named
from parity.cli.jobs.outlook import print_missing, print_outlook
from parity.cli.terminal.typed_command import typed_command, without_option
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import Pauses, is_transient, retry
from parity.frozen import frozen
from parity.gate.outcome import GateOutcome, ended, origin

# How long submission retries an unreachable server; while a job is watched, `watching` has a
# patience of its own.
_PATIENCE_SECONDS = 30.0
_PAUSES = Pauses(
    first_seconds=2.0, longest_seconds=2.0, longest_retry_after_seconds=60.0, spread=0.5
)


@frozen
class GateQuestion:
    """What the server is asked: `body` as `Client.gate` takes it, from a job file; the wait ends
    `timeout_seconds` after `asked_at` (`time.monotonic()`).

    `foreign_commits` says which commits the job file names in place of the pull request's, which no
    gate with pinned rules takes.
    """

    file: str
    body: Document
    lookup: bool
    asked_at: float
    timeout_seconds: float | None
    foreign_commits: str | None = None


def verdict_for(client: Client, question: GateQuestion, progress: Console) -> GateOutcome:
    """Have a question answered, however long it takes; what stops it becomes an outcome too."""
    outcome = GateOutcome(result="infrastructure", revision=question.body["revision"])
    try:
        with _sigterm_as_keyboard_interrupt():
            answer = _submit(client, question, progress)
            outcome = replace(outcome, pinned=answer.get("pinned"))  # an earlier server has none
            if outcome.pinned is not None and question.foreign_commits is not None:
                raise UsageError(
                    f"{question.file}: {question.foreign_commits}: the operator pinned the "
                    f"gates of {outcome.pinned['repository']}"
                )
            job = answer["job"]
            if job is None:
                command = without_option(typed_command(), "--lookup")
                trouble = f"{answer['reason']}. Train: {command}"
                return replace(outcome, result="unrecorded", trouble=trouble)
            if answer["found"] == "new":
                printed = print_outlook(client, question.file, question.body, progress)
                print_missing(job, progress, printed)
            url = client.page(job["id"])
            age = {name: answer[name] for name in ("reason", "age_seconds", "expires_at")}
            outcome = replace(outcome, earlier=answer.get("earlier", ()))
            outcome = replace(
                outcome,
                source=answer["found"],
                **age,
                job=job["id"],
                url=url,
                config_hash=job["config_hash"],
            )
            if job["status"] not in watching.ENDED:
                progress.print(f"{origin(outcome)}. Following {url}", soft_wrap=True)
                job = watching.follow(
                    client, job["id"], progress, question.timeout_seconds, since=question.asked_at
                )
            return _exit_code_asked(client, ended(outcome, job))
    except KeyboardInterrupt:
        if question.lookup:
            return replace(outcome, trouble="the lookup was stopped")
        if outcome.job:
            remedy = f"follow it: parity watch {outcome.job}; end it: parity cancel {outcome.job}"
        else:
            remedy = "`parity status` lists it"
        return replace(
            outcome,
            trouble=f"the waiting was stopped; the job, if it was queued, goes on: {remedy}",
        )
    except watching.WatchTimeoutError as error:
        return replace(outcome, result="timeout", trouble=f"{error}{_waiting(client, outcome.job)}")
    except (UnreachableError, ClientError) as error:
        if not is_transient(error):
            raise
        return replace(outcome, trouble=str(error))


def _exit_code_asked(client: Client, outcome: GateOutcome) -> GateOutcome:
    """The outcome with the server's exit code, which counts where the operator pinned rules for the
    token's repository.
    """
    if outcome.pinned is None or outcome.job is None:
        return outcome
    return replace(outcome, server_code=client.gate_exit(outcome.job)["exit_code"])


def _submit(client: Client, question: GateQuestion, progress: Console) -> Document:
    """The server's answer to the question; sent again for a while where none comes, under one
    key.
    """
    key = uuid.uuid4().hex
    errors: list[Exception] = []

    def note_first(error: Exception) -> None:
        if not errors:
            progress.print(f"asking again for {_PATIENCE_SECONDS:g} s: {error}", soft_wrap=True)
        errors.append(error)

    with lines_named(question.file):
        return retry(
            lambda: client.gate(question.body, key),
            pauses=_PAUSES,
            is_retryable=is_transient,
            wait=time.sleep,
            on_error=note_first,
            patience_seconds=_PATIENCE_SECONDS,
        )


def _waiting(client: Client, job_id: str | None) -> str:
    """What a job waits for, where it does and the server still says so."""
    try:
        waiting = client.job(job_id)["waiting"] if job_id else None
    except (UnreachableError, ClientError):
        waiting = None
    return f". {waiting}" if waiting else ""


@contextmanager
def _sigterm_as_keyboard_interrupt() -> Iterator[None]:
    """SIGTERM, with which CI ends a job, stops the waiting as Ctrl-C does; that too where a shell
    in the background ignores it.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
