"""`parity why`: explains a gap by an analysis on the server; prints its cost first, follows it, and
prints the parts with intervals.
"""

from dataclasses import asdict
from functools import partial

import typer

from parity.cli.connection import JobId, ServerQuery
from parity.cli.jobs import watching
from parity.cli.jobs.watching import JobEndedError
from parity.cli.terminal.option_words import FOLLOW, OUTPUT
from parity.cli.terminal.options import Options, flag, flat, option, repeatable
from parity.cli.terminal.plan_cost import check_agreed, print_plan
from parity.cli.terminal.shared_options import Follow
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.wording import did_you_mean
from parity_lab.answer_lines import ablation_lines, answer_lines, plan_lines
from parity_lab.client import LabClient, is_of_job

app = typer.Typer()


class WhyQuestion(Options, panel="What to measure"):
    """What an analysis measures, and for how many steps of training."""

    candidate: str | None = option(
        None, "Candidate to explain. [default: the job's only one]", "NAME"
    )
    ablation: list[str] = repeatable(
        "Use this candidate, which lacks a part of the other, instead of forks; repeatable. "
        "[default: all others, unless the engine is emulated]",
        "NAME",
    )
    against: str = option(
        "baseline", "What a GEMM that is switched off computes in: baseline, or bf16.", "WHAT"
    )
    origin: str = option("baseline", "Whose checkpoints are forked: baseline, or candidate.", "ARM")
    step: int | None = option(
        None, "Kept checkpoint to fork from. [default: nearest to 60 %]", "STEP", min=1
    )
    fork_steps: int | None = option(None, "Steps of each fork. [default: 100]", "STEPS", min=1)
    budget: float | None = option(
        None,
        "Largest cost, in steps of training. [default: enough to find any one GEMM; --plan prints "
        "it]",
        "STEPS",
        min=1,
    )
    whole: bool = flag(
        "--whole",
        "Train every recorded step again first, whatever that costs, not only some of them.",
    )
    anyway: bool = flag(
        "--anyway",
        "Also explain a pass, what forks probably cannot see, or runs that follow their record "
        "within noise.",
    )


@app.command("why", epilog="parity why j0000000000001 --candidate nvfp4 --yes")
@flat
def why(
    job: JobId,
    asked: WhyQuestion,
    plan_only: bool = flag(
        "--plan", "Print the plan with its cost and stop.", rich_help_panel=OUTPUT
    ),
    yes: bool = option(
        False,
        "Do not ask before the analysis is queued.",
        None,
        "--yes",
        "-y",
        rich_help_panel=FOLLOW,
    ),
    *,
    following: Follow,
    at: ServerQuery,
) -> int:
    """Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.

    Prints the cost first, queues an analysis as a job of its own and follows it. With the id of an
    analysis it follows that one. With --ablation, and for engines without forks, it computes the
    parts from the job's own ablation runs at once. Exits 0 with an answer, whatever it says.
    """
    for name, value, words in (
        ("against", asked.against, ("baseline", "bf16")),
        ("origin", asked.origin, ("baseline", "candidate")),
    ):
        if value not in words:
            raise UsageError(
                f"--{name} is {value!r}, expected {' or '.join(words)}{did_you_mean(value, words)}"
            )
    question = asdict(asked)
    ablation = question.pop("ablation")
    progress = following.progress()
    with LabClient(at.server, at.token) as client:
        analysis = job if is_of_job(client.analysis, job) else None
        if analysis is None and (ablation or client.job(job)["engine"] != "emulated"):
            _check_no_fork_options(question, plan_only=plan_only)
            document = client.ablations(job, asked.candidate, ablation)
            return at.show(document, ablation_lines(document))
        if analysis is None:
            plan = client.plan_of(job, question)
            print_plan(plan, plan_lines(plan), progress, plan_only=plan_only, as_json=at.as_json)
            if plan_only:
                return 0
            check_agreed("queue the analysis, or --plan to see its cost alone", yes=yes)
            analysis = client.begin(job, question)["job"]
        progress.print(f"following {client.page(analysis)}", soft_wrap=True)
        again, end = f"parity why {analysis}", f"parity cancel {analysis}"
        fetch = partial(client.analysis, analysis)
        document = watching.follow_to_end(
            fetch,
            analysis,
            _progress,
            progress,
            following.timeout,
            kind="analysis",
            watch=again,
            end=end,
        )
    if document["status"] != "concluded":
        why = f": {document['message']}" if document["message"] else ""
        raise JobEndedError(
            f"analysis {document['job']} {document['status']} without an answer{why}"
        )
    return at.show(document, answer_lines(document["plan"], document["answer"]))


def _check_no_fork_options(question: Document, *, plan_only: bool) -> None:
    defaults = {
        "step": None,
        "fork_steps": None,
        "budget": None,
        "against": "baseline",
        "origin": "baseline",
        "whole": False,
        "anyway": False,
    }
    names = [name for name, default in defaults.items() if question[name] != default] + [
        "plan"
    ] * plan_only
    if names:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(
            f"{options}: expected without ablation runs, from which no forks are planned or "
            "trained; leave it out"
        )


def _progress(document: Document, is_due: bool) -> list[str]:
    """Where an analysis is, from time to time."""
    if not is_due or document["status"] in watching.ENDED:
        return []
    plan, answer = document["plan"], document["answer"]
    if answer:
        spent = f"{answer['steps_spent']:,.0f} of at most {plan['most_steps']:,.0f} steps"
    else:
        spent = "no result yet"
    if answer and answer["tested"]:
        tested = f"; {len(answer['tested'])} clusters tested, {len(answer['named'])} named so far"
    else:
        tested = ""
    return [f"{document['status']}: {spent}{tested}"]
