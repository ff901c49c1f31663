"""The command for CI: get the verdict of parity.yaml, from a server or from files, and exit with a
code for the pipeline.
"""

import copy
import hashlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.canonical_json import canonical_json
from parity.cli import gate_report, watching
from parity.cli.connection import Connection
from parity.cli.jobs import UNSENDABLE, baseline_of, job_file, lines_named
from parity.cli.options import Follow, Labels, Options, Reuse, argument, flag, flat, option
from parity.cli.output import print_lines
from parity.cli.remarks import git, labels_of
from parity.cli.terminal import FOLLOW, REUSE, UsageError, wrong_value
from parity.cli.watching import print_missing, print_outlook
from parity.client.rest import Client, ClientError, Document, UnreachableError
from parity.client.retry import Pauses, is_transient, retry
from parity.comparing.policy_file import place_in, read_yaml
from parity.frozen import frozen
from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import FILES, Outcome, ended, lapsed, origin, result_of
from parity.gate.rules import GateRules, gate_rules_from_mapping
from parity.inert import inert, inert_value
from parity.judging.bundles.strict_json import JsonError, parse_json
from parity.judging.codes import GAP_EXCEEDS_MARGIN
from parity.judging.decision import WORST_FIRST
from parity.judging.document_types import VerdictDocument
from parity.judging.policy import PolicyError
from parity.report.markdown import markdown_sections
from parity.report.view import view_of
from parity.report.words import words

# A gate without a server: its verdicts are the output of `parity compare --json`.

SCHEMA = "parity.verdict/1"
STDIN = "-"
_EXPECTED = "expected the output of `parity compare … --json`"


def gate_file(path: str) -> Document:
    """The content of a file of which only the part `gate:` counts."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: has no keys; expected a file with `gate:`")
    return content


def judged_files(path: str, revision: str) -> Outcome:
    """The outcome for the verdicts in a file, or on stdin. UsageError if it holds anything else."""
    name = "stdin" if path == STDIN else path
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
        content = inert_value(parse_json(text.encode()))
    except JsonError as error:
        raise UsageError(f"{name}: {error}; {_EXPECTED}") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, OSError):
            why = (error.strerror or "cannot be read").lower()
        else:
            why = "is not JSON"
        raise UsageError(f"{name}: {why}; {_EXPECTED}") from None
    verdicts = content.get("verdicts") if isinstance(content, dict) else None
    if (
        not isinstance(verdicts, list)
        or not verdicts
        or not all(_is_verdict(each) for each in verdicts)
    ):
        raise UsageError(f"{name}: holds no verdicts of schema {SCHEMA}; {_EXPECTED}")
    try:
        markdown_sections(verdicts)
        for each in verdicts:
            words(view_of(each))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(f"{name}: a verdict is not whole ({error!r:.60}); {_EXPECTED}") from None
    return Outcome(result=result_of(verdicts), revision=revision, verdicts=verdicts, source=FILES)


def _is_verdict(document: VerdictDocument) -> bool:
    return (
        isinstance(document, dict)
        and document.get("schema") == SCHEMA
        and document.get("verdict") in WORST_FIRST
    )


# The command for CI: get the verdict of parity.yaml from a server, wait for it, and exit with a
# code for the pipeline.

app = typer.Typer()

CODES = "Exit code"

# For so long a server may be away when the question is sent; while a job is watched, `watching` has
# a patience of its own.
_PATIENCE_SECONDS = 30.0
_PAUSES = Pauses(
    first_seconds=2.0, longest_seconds=2.0, longest_retry_after_seconds=60.0, spread=0.5
)


@frozen
class _Question:
    """What the server is asked: `body` as `Client.gate` takes it, from a job file; the wait ends
    `timeout_seconds` after `asked_at` (`time.monotonic()`).

    `elsewhere` says which commits the job file names in place of the pull request's, which no gate
    with pinned rules takes.
    """

    file: str
    body: Document
    lookup: bool
    asked_at: float
    timeout_seconds: float | None
    elsewhere: str | None = None


class Earlier(Options, panel=REUSE):
    """Which earlier verdicts count, and which jobs no longer matter."""

    revision: str | None = option(
        None,
        "Training-code revision; a new one triggers retraining. [default: $GITHUB_SHA, or git "
        "HEAD]",
        "REVISION",
    )
    base: str | None = option(
        None,
        "Full id of the commit that `revision: base` means (engine command). [default: the pull "
        "request's base]",
        "COMMIT",
    )
    head: str | None = option(
        None,
        "Full id of the commit that `revision: head` means. [default: the pull request's head, or "
        "git HEAD]",
        "COMMIT",
    )
    fresh: bool = flag("--fresh", "Train every run again; reuse nothing.")
    lookup: bool = flag(
        "--lookup", "Never train: exit 7 unless a verdict is recorded. Does not wait."
    )
    verdicts: str | None = option(
        None,
        "Gate on the output of `parity compare --json` (`-`: stdin), without a server.",
        "FILE",
    )
    supersede: str = option(
        "",
        "Cancel jobs that earlier gates of GROUP, such as owner/model#7, still wait for.",
        "GROUP",
    )


class Flags(Options, panel=CODES):
    """The options that override the file's `gate:`, by its keys."""

    max_age_days: float | None = option(
        None,
        "Reuse a verdict that is at most this old. [default: 7, or the job file's]",
        "DAYS",
        rich_help_panel=REUSE,
    )
    timeout_seconds: float | None = option(
        None,
        "Stop waiting after SECONDS with exit code 5; the job goes on. [default: the job file's]",
        "SECONDS",
        "--timeout",
        rich_help_panel=FOLLOW,
    )
    advisory: bool | None = option(
        None,
        "Always exit 0 (noted in the log). [default: the job file's, or no]",
        None,
        "--advisory/--no-advisory",
    )
    on_inconclusive: str | None = option(
        None,
        "Exit 3 (fail) or 0 (pass) if the verdict is inconclusive. [default: the job file's, or "
        "fail]",
        "fail|pass",
    )
    on_infra: str | None = option(
        None,
        "Exit 4 (fail) or 0 (pass) if there is no verdict. [default: the job file's, or fail]",
        "fail|pass",
    )


@app.command(epilog="parity gate parity.yaml --junit parity.xml --markdown comment.md")
@flat
def gate(
    file: Annotated[
        str | None,
        argument("parity.yaml", "Job file with `job:`, `policy:` and optionally `gate:`."),
    ] = None,
    *,
    earlier: Earlier,
    labels: Labels,
    reuse: Reuse,
    flags: Flags,
    following: Annotated[Follow, ("quiet",)],
    files: gate_report.Files,
    at: Connection,
) -> int:
    """Gate CI on a job: reuse its verdict if there is one, else train.

    Exits 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 no verdict, 5 timeout, 7 no recorded verdict.
    Ctrl-C, or the end of the CI job, stops the wait, not the job.
    """
    excluded = earlier.given("fresh") | ({"supersede": "--supersede"} if earlier.supersede else {})
    if earlier.lookup and excluded:
        given = next(iter(excluded.values()))
        raise UsageError(
            f"{given} {'trains' if given == '--fresh' else 'cancels jobs'} and --lookup never "
            "does; use one of them"
        )
    if earlier.verdicts is None and file is None:
        raise UsageError(
            "the job file is missing; expected parity.yaml, or --verdicts with the output of "
            "`parity compare --json`"
        )
    if earlier.verdicts is not None and (earlier.lookup or excluded):
        raise UsageError("--verdicts asks no server; leave out --lookup, --fresh and --supersede")
    content: Document = {}
    if file is not None:
        content = job_file(file) if earlier.verdicts is None else gate_file(file)
    try:
        rules = gate_rules_from_mapping(content.get("gate"), asdict(flags))
    except PolicyError as error:
        raise UsageError(wrong_value(error, flags.given(), file)) from None
    files.prepare()
    revision = (
        revision_of(Path(file or "parity.yaml")) if earlier.revision is None else earlier.revision
    )
    commits = {"base": earlier.base, "head": earlier.head}
    if file is not None and earlier.verdicts is None:
        content, revision = at_commits(
            file, content, commits, revision if earlier.revision is not None else None
        ) or (content, revision)
    if earlier.verdicts is not None:
        return _leave(judged_files(earlier.verdicts, revision), rules, files)
    assert file is not None  # noqa: S101
    _check_plain(file, content)
    if rules.confirm_marginal_fail and content["policy"].get("looks", 1) == 1:
        place = place_in(file, ["gate", "confirm_marginal_fail"])
        raise UsageError(
            f"{place}: gate.confirm_marginal_fail takes a second look; expected looks: 2 (or more) "
            "under policy"
        )
    needed = {"job": content["job"], "policy": content["policy"], "revision": revision}
    needed |= {"max_age_days": rules.max_age_days, "fresh": earlier.fresh}
    stated = {
        "baseline": baseline_of(content, reuse.reuse),
        "lookup": earlier.lookup,
        "group": earlier.supersede,
    }
    question = _Question(
        file=file,
        body=needed
        | {name: value for name, value in stated.items() if value}
        | labels_of(file, content, labels),
        lookup=earlier.lookup,
        asked_at=time.monotonic(),
        timeout_seconds=rules.timeout_seconds,
        elsewhere=elsewhere(content["job"], commits),
    )
    with at.client() as client:
        outcome = _outcome(client, question, rules, following.progress())
    return _leave(outcome, rules, files)


def _leave(outcome: Outcome, rules: GateRules, files: gate_report.Files) -> int:
    """Print the line, write the reports; the exit code."""
    if files.json == gate_report.STDOUT:
        sys.stdout.write(canonical_json(gate_report.document(outcome, rules)))
    else:
        print(inert(outcome.line))
    code, note = exit_code_under(outcome, rules)
    if outcome.job or outcome.source:
        link = f"{origin(outcome)}. {outcome.url or ''}".rstrip()
    else:
        link = ""
    earlier = [f"earlier answer: {answer}" for answer in outcome.earlier]
    lines = [
        link,
        *earlier,
        *lapsed(outcome),
        note,
        *gate_report.write(outcome, rules, files),
    ]
    print_lines(filter(None, lines), Console(stderr=True, highlight=False, markup=False))
    return code


def _check_plain(file: str, content: Document) -> None:
    try:
        json.dumps([content["job"], content["policy"], content.get("baseline")], allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(f"{file}: {UNSENDABLE}") from None


def _outcome(client: Client, question: _Question, rules: GateRules, progress: Console) -> Outcome:
    """The verdict, after a second look where a fail is narrow and the file wants one."""
    outcome = _verdict_for(client, question, progress)
    fails = [
        position
        for position, verdict in enumerate(outcome.verdicts)
        if verdict["verdict"] == "fail"
    ]
    if (
        not rules.confirm_marginal_fail
        or not fails
        or not all(is_narrow(outcome.verdicts[position]) for position in fails)
    ):
        return outcome
    if outcome.pinned is not None and len(fails) < len(outcome.verdicts):
        return replace(
            outcome,
            unconfirmed="the operator pinned all candidates of the job, and one that has passed "
            "is not looked at again",
        )
    if not question.lookup:
        progress.print(
            f"{outcome.line}\nThis fail is narrow: one more replicate an arm is trained for a "
            "second look.",
            soft_wrap=True,
        )
    # whose runs are given: a further one can't be asked for
    named = bool(question.body.get("baseline", {}).get("name"))
    # Without the group: the first look at the same commit would cancel the second.
    larger = with_one_more_replicate(question.body["job"], fails, baseline=not named)
    second = _verdict_for(
        client, replace(question, body={**question.body, "job": larger, "group": ""}), progress
    )
    # a fail that nobody could confirm is still a fail, also where trouble may pass
    if second.trouble is not None:
        return replace(outcome, unconfirmed=second.trouble)
    again = {verdict["candidate"]["name"]: verdict for verdict in second.verdicts}
    verdicts = [again.get(verdict["candidate"]["name"], verdict) for verdict in outcome.verdicts]
    first = {name: each for name, each in outcome.accepted.items() if name not in again}
    return replace(
        second,
        verdicts=verdicts,
        result=result_of(verdicts),
        confirms=outcome.job,
        accepted={**first, **second.accepted},
        sign_offs=[
            *(each for each in outcome.sign_offs if each["candidate"] not in again),
            *second.sign_offs,
        ],
    )


def is_narrow(verdict: Mapping[str, Any]) -> bool:
    """Whether an interval lies beyond the margin by less than half of its own width."""
    if verdict["codes"][0] != GAP_EXCEEDS_MARGIN.code:
        return False
    gap, margin = verdict["gap"], verdict["margin"]["nats"]
    return bool(gap["lo"] - margin < (gap["hi"] - gap["lo"]) / 2)


def with_one_more_replicate(
    job: Document, candidates: Sequence[int], *, baseline: bool = True
) -> Document:
    """The job with these candidates alone (by position), and another replicate of them and of the
    baseline.
    """
    larger: Document = copy.deepcopy(dict(job))
    larger["candidates"] = [larger["candidates"][position] for position in candidates]
    for arm in (*([larger["baseline"]] if baseline else []), *larger["candidates"]):
        arm["replicates"] = arm.get("replicates", 1) + 1
    return larger


def _verdict_for(client: Client, question: _Question, progress: Console) -> Outcome:
    """Have a question answered, however long it takes; what stops it becomes an outcome too."""
    outcome = Outcome(result="infrastructure", revision=question.body["revision"])
    try:
        with _stoppable():
            answer = _submit(client, question, progress)
            outcome = replace(outcome, pinned=answer.get("pinned"))  # an earlier server has none
            if outcome.pinned is not None and question.elsewhere is not None:
                raise UsageError(
                    f"{question.file}: {question.elsewhere}: the operator pinned the gates of "
                    f"{outcome.pinned['repository']}"
                )
            job = answer["job"]
            if job is None:
                trouble = f"{answer['reason']}. Train: parity gate {question.file}"
                return replace(outcome, result="unrecorded", trouble=trouble)
            if answer["found"] == "new":
                print_outlook(client, question.file, question.body, progress)
                print_missing(job, progress)
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


def _exit_code_asked(client: Client, outcome: Outcome) -> Outcome:
    """The outcome with the server's exit code, which counts where the operator pinned rules for the
    token's repository.
    """
    if outcome.pinned is None or outcome.job is None:
        return outcome
    return replace(outcome, server_code=client.gate_exit(outcome.job)["exit_code"])


def _submit(client: Client, question: _Question, progress: Console) -> Document:
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
def _stoppable() -> Iterator[None]:
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


def at_commits(
    file: str, content: Document, given: Mapping[str, str | None], revision: str | None
) -> tuple[Document, str] | None:
    """The job file with full commit ids in place of `revision: base` and `head`, and the revision
    of the gate; None for another engine.

    Raises UsageError where the file needs a commit that neither an option nor the pull request
    names.
    """
    if content["job"].get("engine") != "command":
        for name, value in given.items():
            if value is not None:
                raise UsageError(
                    f"--{name} fills `revision: {name}` of a job with engine: command; leave it out"
                )
        return None
    commits = pull_request_commits() | {
        name: value for name, value in given.items() if value is not None
    }
    if "head" not in commits and (head := git(Path(file), "rev-parse", "HEAD").strip()):
        commits["head"] = head
    job = dict(content["job"])
    arms = [job.get("baseline"), *(job.get("candidates") or [])]
    for arm in arms:
        word = arm.get("revision") if isinstance(arm, dict) else None
        if word in given and word not in commits:
            expected = f"--{word} COMMIT (git rev-parse origin/main)"
            raise UsageError(
                f"{file}: revision is {word}, and no commit is known for it; expected {expected}"
            )
    filled = [
        {**arm, "revision": commits.get(str(arm["revision"]), arm["revision"])}
        if "revision" in (arm or ())
        else arm
        for arm in arms
    ]
    job |= {"baseline": filled[0], "candidates": filled[1:]}
    return {**content, "job": job}, revision or commits.get("head", "")


def elsewhere(job: Document, given: Mapping[str, str | None]) -> str | None:
    """Which other commits a job with engine command trains than options or the pull request name;
    None where it trains these alone.

    A pull request writes its own job file: with another base, another head, steps between the two
    or both swapped, it would be judged by what it did not change.
    """
    if job.get("engine") != "command":
        return None
    known = pull_request_commits() | {
        name: value for name, value in given.items() if value is not None
    }
    base, head = known.get("base"), known.get("head")
    first, *others = [
        str((arm or {}).get("revision"))
        for arm in (job.get("baseline"), *(job.get("candidates") or []))
    ]
    if head is not None and head not in others:
        return f"no candidate has revision {head}; expected `revision: head`"
    if base is None or head is None or {first, *others} == {head}:
        return None
    strange = [first] if first != base else [arm for arm in others if arm not in (base, head)]
    if not strange:
        return None
    return (
        f"revision is {strange[0]}; expected `revision: base` of the baseline, and base or head of "
        "each candidate"
    )


def pull_request_commits() -> dict[str, str]:
    """The ids of base and head that GitHub's event names; empty elsewhere. `GITHUB_SHA` is a merge
    of the two, on no branch.
    """
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        return {name: str(event["pull_request"][name]["sha"]) for name in ("base", "head")}
    except (KeyError, OSError, ValueError, TypeError):
        return {}


def revision_of(file: Path) -> str:
    """What CI says is checked out, else git's HEAD where the file is, with a digest of what was
    changed since; else nothing.
    """
    if given := os.environ.get("GITHUB_SHA"):
        return given
    head = git(file, "rev-parse", "HEAD").strip()
    changed = git(file, "diff", "HEAD") if head else ""
    return head + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:12]}" if changed else "")
