"""The command `gate` for CI: get the verdict of parity.yaml, from a server or from files, and exit
with a code for the pipeline.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from parity.canonical_json import canonical_json
from parity.cli.connection import ServerConnection
from parity.cli.gate import report
from parity.cli.gate.commits import foreign_commits, job_with_commits, revision_of
from parity.cli.gate.narrow_fail import verdict_with_second_look
from parity.cli.gate.server_answer import GateQuestion
from parity.cli.gate.verdict_files import gate_file, judged_files
from parity.cli.jobs.job_file import UNSENDABLE, baseline_of, job_file
from parity.cli.jobs.labels import labels_of
from parity.cli.terminal.option_words import FOLLOW, REUSE
from parity.cli.terminal.options import Options, argument, flag, flat, option
from parity.cli.terminal.output import print_lines
from parity.cli.terminal.shared_options import Follow, LabelOptions, Reuse
from parity.cli.terminal.wrong_calls import UsageError, wrong_value
from parity.client.rest import Document
from parity.comparing.policy_file import place_in
from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import GateOutcome, lapsed, numerics_lines, origin
from parity.gate.rules import GateRules, gate_rules_from_mapping
from parity.inert import inert
from parity.judging.policy import PolicyError

app = typer.Typer()

CODES = "Exit code"


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
    labels: LabelOptions,
    reuse: Reuse,
    flags: Flags,
    following: Annotated[Follow, ("quiet",)],
    files: report.ReportFiles,
    at: ServerConnection,
) -> int:
    """Gate CI on a job: reuse its verdict if there is one, else train.

    Exits 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 no verdict, 5 timeout, 7 no recorded verdict.
    Ctrl-C, or the end of the CI job, stops the wait, not the job.
    """
    excluded = earlier.given("fresh") | ({"supersede": "--supersede"} if earlier.supersede else {})
    if earlier.lookup and excluded:
        typed_option = next(iter(excluded.values()))
        does = "trains" if typed_option == "--fresh" else "cancels jobs"
        raise UsageError(f"{typed_option} {does} and --lookup never does; use one of them")
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
        content, revision = job_with_commits(
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
    question = GateQuestion(
        file=file,
        body=needed
        | {name: value for name, value in stated.items() if value}
        | labels_of(file, content, labels),
        lookup=earlier.lookup,
        asked_at=time.monotonic(),
        timeout_seconds=rules.timeout_seconds,
        foreign_commits=foreign_commits(content["job"], commits),
    )
    with at.client() as client:
        outcome = verdict_with_second_look(client, question, rules, following.progress())
    return _leave(outcome, rules, files)


def _leave(outcome: GateOutcome, rules: GateRules, files: report.ReportFiles) -> int:
    """Print the line, write the reports; the exit code."""
    if files.json == report.STDOUT:
        sys.stdout.write(canonical_json(report.document(outcome, rules)))
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
        *numerics_lines(outcome),
        note,
        *report.write(outcome, rules, files),
    ]
    print_lines(filter(None, lines), Console(stderr=True, highlight=False, markup=False))
    return code


def _check_plain(file: str, content: Document) -> None:
    try:
        json.dumps([content["job"], content["policy"], content.get("baseline")], allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(f"{file}: {UNSENDABLE}") from None
