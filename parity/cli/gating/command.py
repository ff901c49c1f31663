"""The command for CI: get the verdict of parity.yaml from a server, wait for it, and exit with a code for the pipeline."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.canonical_json import canonical_json
from parity.cli.gating import report
from parity.cli.gating.files import gate_file, judged_files
from parity.cli.gating.policy import GatePolicy, gate_policy_from_mapping
from parity.cli.gating.report import Outcome, result_of
from parity.cli.jobs import watching
from parity.cli.jobs.files import UNSENDABLE, baseline_of, job_file
from parity.cli.jobs.options import Quiet, Reuse
from parity.cli.jobs.outlook import print_outlook
from parity.cli.record.labels import Branch, Tags, labels_of
from parity.cli.terminal.help import OUTPUT
from parity.cli.terminal.options import Server, Token
from parity.cli.terminal.output import UsageError
from parity.cli.terminal.wrong_calls import wrong_value
from parity.client.address import DEFAULT_URL
from parity.client.rest import Client, ClientError, UnreachableError
from parity.client.retry import Pauses, is_transient, retry
from parity.judging.criteria import CriteriaError
from parity.judging.multiplicity import FAIL_BY_GAP
from parity.judging.sign_offs import accepted

app = typer.Typer()

REUSE, CODES = "Reuse of earlier verdicts", "Exit code"
STDOUT = "-"
_OPTIONS = {
    "max_age_days": "--max-age-days",
    "timeout_seconds": "--timeout",
    "advisory": "--advisory",
    "on_inconclusive": "--on-inconclusive",
    "on_infra": "--on-infra",
}

# For so long a server may be away when the question is sent; while a job is watched, `watching` has a patience of its own.
_PATIENCE_SECONDS = 30.0
_PAUSES = Pauses(first_seconds=2.0, longest_seconds=2.0, longest_retry_after_seconds=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    file: str
    job: Mapping[str, Any]
    criteria: Mapping[str, Any]
    baseline: Mapping[str, Any] | None
    revision: str
    fresh: bool
    lookup: bool
    group: str
    labels: Mapping[str, Any]
    deadline: float | None


@app.command(epilog="parity gate parity.yaml --junit parity.xml --markdown comment.md")
def gate(
    file: Annotated[
        str | None, typer.Argument(metavar="parity.yaml", help="Job file with `job:`, `criteria:` and optionally `gate:`.")
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            rich_help_panel=REUSE,
            help="Training-code revision; a new one triggers retraining. [default: $GITHUB_SHA, or git HEAD]",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", rich_help_panel=REUSE, help="Train every run again; reuse nothing.")] = False,
    lookup: Annotated[
        bool, typer.Option("--lookup", rich_help_panel=REUSE, help="Never train: exit 7 unless a verdict is recorded. Does not wait.")
    ] = False,
    verdicts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=REUSE, help="Gate on the output of `parity compare --json` (`-`: stdin), without a server."
        ),
    ] = None,
    supersede: Annotated[
        str,
        typer.Option(
            metavar="GROUP", rich_help_panel=REUSE, help="Cancel jobs that earlier gates of GROUP, such as owner/model#7, still wait for."
        ),
    ] = "",
    tag: Tags = None,
    branch: Branch = None,
    reuse: Reuse = None,
    max_age_days: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", rich_help_panel=REUSE, help="Reuse a verdict that is at most this old. [default: 7, or the job file's]"
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop waiting after SECONDS with exit code 5; the job goes on. [default: the job file's]"),
    ] = None,
    quiet: Quiet = False,
    advisory: Annotated[
        bool | None,
        typer.Option(
            "--advisory/--no-advisory", rich_help_panel=CODES, help="Always exit 0 (noted in the log). [default: the job file's, or no]"
        ),
    ] = None,
    on_inconclusive: Annotated[
        str | None,
        typer.Option(
            metavar="fail|pass",
            rich_help_panel=CODES,
            help="Exit 3 (fail) or 0 (pass) if the verdict is inconclusive. [default: the job file's, or fail]",
        ),
    ] = None,
    on_infra: Annotated[
        str | None,
        typer.Option(
            metavar="fail|pass",
            rich_help_panel=CODES,
            help="Exit 4 (fail) or 0 (pass) if there is no verdict. [default: the job file's, or fail]",
        ),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", rich_help_panel=OUTPUT, help="Write the outcome as JSON; `-` prints it instead of the headline."
        ),
    ] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Write the text of a pull-request comment to this file.")
    ] = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
) -> int:
    """Gate CI on a job: reuse its verdict if there is one, else train.

    Exits 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 no verdict, 5 timeout, 7 no recorded verdict. Ctrl-C, or the end of the CI job, stops
    the wait, not the job.
    """
    if lookup and (fresh or supersede):
        raise UsageError(f"--lookup trains and cancels nothing; leave out {'--fresh' if fresh else '--supersede'}")
    if verdicts is None and file is None:
        raise UsageError("the job file is missing; expected parity.yaml, or --verdicts with the output of `parity compare --json`")
    if verdicts is not None and (lookup or fresh or supersede):
        raise UsageError("--verdicts asks no server; leave out --lookup, --fresh and --supersede")
    content = {} if file is None else job_file(file) if verdicts is None else gate_file(file)
    flags = {
        "max_age_days": max_age_days,
        "timeout_seconds": timeout,
        "advisory": advisory,
        "on_inconclusive": on_inconclusive,
        "on_infra": on_infra,
    }
    try:
        policy = gate_policy_from_mapping(content.get("gate"), flags)
    except CriteriaError as error:
        raise UsageError(wrong_value(error, {key: _OPTIONS[key] for key, value in flags.items() if value is not None})) from None
    report.prepare((None if json_file == STDOUT else json_file, junit, markdown))
    revision = revision_of(Path(file or "parity.yaml")) if revision is None else revision
    if verdicts is not None:
        return _leave(judged_files(verdicts, revision), policy, json_file, junit, markdown)
    assert file is not None  # noqa: S101 (refused above)
    _check_plain(file, content)
    if policy.confirm_marginal_fail and content["criteria"].get("looks", 1) == 1:
        raise UsageError(f"{file}: gate.confirm_marginal_fail takes a second look; expected looks: 2 (or more) under criteria")
    question = _Question(
        file=file,
        job=content["job"],
        criteria=content["criteria"],
        baseline=baseline_of(content, reuse),
        revision=revision,
        fresh=fresh,
        lookup=lookup,
        group=supersede,
        labels=labels_of(file, content, tag, branch),
        deadline=None if policy.timeout_seconds is None else time.monotonic() + policy.timeout_seconds,
    )
    progress = Console(stderr=True, highlight=False, markup=False, quiet=quiet)
    with Client(server, token) as client:
        outcome = _outcome(client, question, policy, progress)
    return _leave(outcome, policy, json_file, junit, markdown)


def _leave(outcome: Outcome, policy: GatePolicy, json_file: str | None, junit: str | None, markdown: str | None) -> int:
    """Print the line, write the reports; the exit code."""
    if json_file == STDOUT:
        sys.stdout.write(canonical_json(report.document(outcome, policy)))
        json_file = None
    else:
        print(outcome.line)
    code, note = report.exit_code_under(outcome, policy)
    log = Console(stderr=True, highlight=False, markup=False)
    lines = [
        f"{report.origin(outcome)}. {outcome.url or ''}".rstrip() if outcome.job or outcome.source else "",
        *report.lapsed(outcome),
        note,
    ]
    lines += report.write(outcome, policy, json=json_file, junit=junit, comment=markdown)
    for line in lines:
        if line:
            log.print(line, soft_wrap=True)
    return code


def _check_plain(file: str, content: Mapping[str, Any]) -> None:
    try:
        json.dumps([content["job"], content["criteria"], content.get("baseline")], allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(f"{file}: {UNSENDABLE}") from None


def _outcome(client: Client, question: _Question, policy: GatePolicy, progress: Console) -> Outcome:
    """The verdict, after a second look where a fail is narrow and the policy wants one."""
    outcome = _verdict_for(client, question, policy, progress)
    narrow = [position for position, verdict in enumerate(outcome.verdicts) if verdict["verdict"] == "fail" and is_narrow(verdict)]
    fails = [verdict for verdict in outcome.verdicts if verdict["verdict"] == "fail"]
    if not policy.confirm_marginal_fail or not fails or len(narrow) != len(fails):
        return outcome
    if not question.lookup:
        progress.print(f"{outcome.line}\nThis fail is narrow: one more replicate an arm is trained for a second look.", soft_wrap=True)
    named = bool((question.baseline or {}).get("name"))  # whose runs are given: a further one can't be asked for
    # Without the group: the first look at the same commit would cancel the second.
    larger = dataclasses.replace(question, job=with_one_more_replicate(question.job, narrow, baseline=not named), group="")
    second = _verdict_for(client, larger, policy, progress)
    if second.trouble is not None:  # a fail that nobody could confirm is still a fail, also where trouble may pass
        return dataclasses.replace(outcome, unconfirmed=second.trouble)
    again = {verdict["candidate"]["name"]: verdict for verdict in second.verdicts}
    verdicts = [again.get(verdict["candidate"]["name"], verdict) for verdict in outcome.verdicts]
    first = {name: each for name, each in outcome.accepted.items() if name not in again}
    return dataclasses.replace(
        second,
        verdicts=verdicts,
        result=result_of(verdicts),
        confirms=outcome.job,
        accepted={**first, **second.accepted},
        sign_offs=[*(each for each in outcome.sign_offs if each["candidate"] not in again), *second.sign_offs],
    )


def is_narrow(verdict: Mapping[str, Any]) -> bool:
    """Whether an interval lies beyond the margin by less than half of its own width."""
    if verdict["codes"][0] != FAIL_BY_GAP:
        return False
    gap, margin = verdict["gap"], verdict["margin"]["nats"]
    return bool(gap["lo"] - margin < (gap["hi"] - gap["lo"]) / 2)


def with_one_more_replicate(job: Mapping[str, Any], candidates: Sequence[int], *, baseline: bool = True) -> dict[str, Any]:
    """The job with these candidates alone (by position), and another replicate of them and of the baseline."""
    larger: dict[str, Any] = copy.deepcopy(dict(job))
    larger["candidates"] = [larger["candidates"][position] for position in candidates]
    for arm in (*([larger["baseline"]] if baseline else []), *larger["candidates"]):
        arm["replicates"] = arm.get("replicates", 1) + 1
    return larger


def _verdict_for(client: Client, question: _Question, policy: GatePolicy, progress: Console) -> Outcome:
    """Have a question answered, however long it takes; what stops it becomes an outcome too."""
    outcome = Outcome(result="infrastructure", revision=question.revision)
    try:
        with _stoppable():
            answer = _submit(client, question, policy, progress)
            job = answer["job"]
            if job is None:
                trouble = f"no verdict is recorded: {answer['reason']}. Train one: run `parity gate {question.file}` without --lookup"
                return dataclasses.replace(outcome, result="unrecorded", trouble=trouble)
            if answer["found"] == "new":
                print_outlook(
                    client, question.file, {"job": question.job, "criteria": question.criteria, "baseline": question.baseline}, progress
                )
            url = client.page(job["id"])
            outcome = dataclasses.replace(
                outcome,
                source=answer["found"],
                reason=answer["reason"],
                age_seconds=answer["age_seconds"],
                expires_at=answer["expires_at"],
                job=job["id"],
                url=url,
                config_hash=job["config_hash"],
            )
            if job["status"] not in watching.ENDED:
                progress.print(f"{report.origin(outcome)}. Following {url}", soft_wrap=True)
                job = _wait_for(client, job["id"], question.deadline, progress)
            return _ended(outcome, job)
    except KeyboardInterrupt:
        if question.lookup:
            return dataclasses.replace(outcome, trouble="the lookup was stopped")
        remedy = (
            f"follow it: parity watch {outcome.job}; end it: parity cancel {outcome.job}" if outcome.job else "`parity status` lists it"
        )
        return dataclasses.replace(outcome, trouble=f"the waiting was stopped; the job, if it was queued, goes on: {remedy}")
    except watching.WatchTimeoutError as error:
        return dataclasses.replace(outcome, result="timeout", trouble=f"{error}{_waiting(client, outcome.job)}")
    except (UnreachableError, ClientError) as error:
        if not is_transient(error):
            raise
        return dataclasses.replace(outcome, trouble=str(error))


def _submit(client: Client, question: _Question, policy: GatePolicy, progress: Console) -> dict[str, Any]:
    """The server's answer to the question; sent again for a while where none comes, under one key."""
    key = uuid.uuid4().hex
    errors: list[Exception] = []

    def note_first(error: Exception) -> None:
        if not errors:
            progress.print(f"asking again for {_PATIENCE_SECONDS:g} s: {error}", soft_wrap=True)
        errors.append(error)

    return retry(
        lambda: client.gate(
            question.job,
            question.criteria,
            revision=question.revision,
            max_age_days=policy.max_age_days,
            fresh=question.fresh,
            key=key,
            baseline=question.baseline,
            lookup=question.lookup,
            group=question.group,
            labels=question.labels,
        ),
        pauses=_PAUSES,
        is_retryable=is_transient,
        wait=time.sleep,
        on_error=note_first,
        patience_seconds=_PATIENCE_SECONDS,
    )


def _wait_for(client: Client, job_id: str, deadline: float | None, progress: Console) -> dict[str, Any]:
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return watching.follow(client, job_id, progress, left)


def _waiting(client: Client, job_id: str | None) -> str:
    """What a job waits for, where it does and the server still says so."""
    try:
        waiting = client.job(job_id)["waiting"] if job_id else None
    except (UnreachableError, ClientError):
        waiting = None
    return f". {waiting}" if waiting else ""


def _ended(outcome: Outcome, job: Mapping[str, Any]) -> Outcome:
    if job["status"] != "concluded":
        why = f": {job['message']}" if job["message"] else ""
        return dataclasses.replace(outcome, trouble=f"job {job['id']} {job['status']} without a verdict{why}")
    sign_offs = job.get("sign_offs", ())  # an earlier server has none
    return dataclasses.replace(
        outcome,
        result=result_of(job["verdicts"]),
        verdicts=job["verdicts"],
        reused=report.reused_words(job),
        accepted=accepted(job["verdicts"], job["criteria"], sign_offs) if sign_offs else {},
        sign_offs=sign_offs,
    )


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM, with which CI ends a job, stops the waiting as Ctrl-C does; that too where a shell in the background ignores it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def revision_of(file: Path) -> str:
    """What CI says is checked out, else git's HEAD where the file is, with a digest of what was changed since; else nothing."""
    if given := os.environ.get("GITHUB_SHA"):
        return given
    git = shutil.which("git")
    head = _git(git, file, "rev-parse", "HEAD").strip()
    changed = _git(git, file, "diff", "HEAD") if head else ""
    return head + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:12]}" if changed else "")


def _git(git: str | None, file: Path, *words: str) -> str:
    if git is None:
        return ""
    done = subprocess.run([git, *words], cwd=file.resolve().parent, check=False, capture_output=True, text=True, errors="replace")
    return done.stdout if done.returncode == 0 else ""
