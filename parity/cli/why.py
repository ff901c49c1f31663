"""`parity why`: explains a gap by an analysis on the server; prints its cost first, follows it, and prints the parts with intervals."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from parity.cli.jobs import watching
from parity.cli.jobs.options import JobEndedError, JobId, Quiet, Timeout
from parity.cli.terminal.help import OUTPUT
from parity.cli.terminal.options import AsJson, Server, Token
from parity.cli.terminal.output import UsageError, print_json
from parity.cli.terminal.plans import check_agreed, print_plan
from parity.client.address import DEFAULT_URL
from parity.client.lab import LabClient
from parity.client.rest import ClientError, UnreachableError
from parity.why.words import ablation_lines, answer_lines, plan_lines
from parity.wording import did_you_mean

app = typer.Typer()

_AGAINST, _ORIGINS = ("baseline", "bf16"), ("baseline", "candidate")
_LINE_SECONDS = 30.0
_WHAT = "What to measure"


@app.command("why", epilog="parity why j0000000000001 --candidate nvfp4 --yes")
def why(
    job: JobId,
    candidate: Annotated[
        str | None, typer.Option(metavar="NAME", rich_help_panel=_WHAT, help="Candidate to explain. [default: the job's only one]")
    ] = None,
    ablation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_WHAT,
            help="Use this candidate, which lacks a part of the other, instead of forks; repeatable. "
            "[default: all others, unless the engine is emulated]",
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="WHAT", rich_help_panel=_WHAT, help="What a unit has that is off: baseline, or bf16.")
    ] = "baseline",
    origin: Annotated[
        str, typer.Option(metavar="ARM", rich_help_panel=_WHAT, help="Whose checkpoints are forked: baseline, or candidate.")
    ] = "baseline",
    step: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEP", rich_help_panel=_WHAT, help="Kept checkpoint to fork from. [default: nearest to 60 %]"),
    ] = None,
    fork_steps: Annotated[
        int | None, typer.Option(min=1, metavar="STEPS", rich_help_panel=_WHAT, help="Steps of each fork. [default: 100]")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="STEPS", rich_help_panel=_WHAT, help="Largest cost, in steps of training. [default: to find any one unit]"
        ),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", rich_help_panel=_WHAT, help="Also explain a pass, or a gap that forks probably cannot see.")
    ] = False,
    plan_only: Annotated[bool, typer.Option("--plan", rich_help_panel=OUTPUT, help="Print the plan with its cost and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the analysis is queued.")] = False,
    quiet: Quiet = False,
    timeout: Timeout = None,
    server: Server = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> int:
    """Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.

    Prints the cost first, queues an analysis as a job of its own and follows it. With the id of an analysis it follows that one. With
    --ablation, and for engines without forks, it computes the parts from the job's own ablation runs at once. Exits 0 with an answer,
    whatever it says.
    """
    if against not in _AGAINST:
        raise UsageError(f"--against is {against!r}, expected baseline or bf16{did_you_mean(against, _AGAINST)}")
    if origin not in _ORIGINS:
        raise UsageError(f"--origin is {origin!r}, expected baseline or candidate{did_you_mean(origin, _ORIGINS)}")
    question = {
        "candidate": candidate,
        "against": against,
        "origin": origin,
        "step": step,
        "fork_steps": fork_steps,
        "budget": budget,
        "anyway": anyway,
    }
    progress = Console(stderr=True, highlight=False, markup=False, quiet=quiet)
    with LabClient(server, token) as client:
        analysis = job if _is_analysis(client, job) else None
        if analysis is None and (ablation or client.job(job)["engine"] != "emulated"):
            _check_no_fork_options(question, plan_only=plan_only)
            return _print_ablations(client.ablations(job, candidate, ablation or ()), as_json=as_json)
        if analysis is None:
            plan = client.plan_why(job, question)
            print_plan(plan, plan_lines(plan), progress, plan_only=plan_only, as_json=as_json)
            if plan_only:
                return 0
            check_agreed("queue the analysis, or --plan to see its cost alone", yes=yes)
            analysis = client.why(job, question)["job"]
        progress.print(f"following {client.page(analysis)}", soft_wrap=True)
        document = _follow(client, analysis, progress, timeout)
    return _finish(document, as_json=as_json)


def _check_no_fork_options(question: Mapping[str, Any], *, plan_only: bool) -> None:
    given = [name for name in ("step", "fork_steps", "budget") if question[name] is not None]
    given += [name for name, default in (("against", "baseline"), ("origin", "baseline"), ("anyway", False)) if question[name] != default]
    given += ["plan"] if plan_only else []
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{options}: expected without ablation runs, from which no forks are planned or trained; leave it out")


def _print_ablations(document: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json(document)
    else:
        console = Console(highlight=False, markup=False)
        for line in ablation_lines(document):
            console.print(line, soft_wrap=True)
    return 0


def _is_analysis(client: LabClient, job: str) -> bool:
    try:
        return bool(client.analysis(job)["job"] == job)
    except ClientError as error:
        if error.status != 404:
            raise
        return False


def _follow(client: LabClient, analysis: str, console: Console, timeout: float | None) -> dict[str, Any]:
    document: dict[str, Any] = {}
    next_line = 0.0
    try:
        for document in watching.poll(lambda: client.analysis(analysis), analysis, timeout):
            if time.monotonic() >= next_line and document["status"] not in watching.ENDED:
                console.print(_progress(document), soft_wrap=True)
                next_line = time.monotonic() + _LINE_SECONDS
    except UnreachableError as error:
        raise UnreachableError(f"{error}. The analysis goes on there; follow it: parity why {analysis}") from None
    except KeyboardInterrupt:
        note = f"stopped watching; the analysis goes on. Follow it: parity why {analysis}. End it: parity cancel {analysis}"
        raise JobEndedError(note) from None
    return document


def _progress(document: Mapping[str, Any]) -> str:
    plan, answer = document["plan"], document["answer"]
    spent = f"{answer['steps_spent']:,.0f} of at most {plan['most_steps']:,.0f} steps" if answer else "no result yet"
    tested = f"; {len(answer['tested'])} clusters tested, {len(answer['named'])} named so far" if answer and answer["tested"] else ""
    return f"{document['status']}: {spent}{tested}"


def _finish(document: Mapping[str, Any], *, as_json: bool) -> int:
    if document["status"] != "concluded":
        why = f": {document['message']}" if document["message"] else ""
        raise JobEndedError(f"analysis {document['job']} {document['status']} without an answer{why}")
    if as_json:
        print_json(document)
        return 0
    console = Console(highlight=False, markup=False)
    for line in answer_lines(document["plan"], document["answer"]):
        console.print(line, soft_wrap=True)
    return 0
