"""`parity heal`: looks for the latest step from which a candidate may go on with a safer recipe;
prints the cost first, follows the search, and prints the answer.
"""

from functools import partial

import typer

from parity.cli.connection import JobId, ServerQuery
from parity.cli.jobs import watching
from parity.cli.jobs.watching import JobEndedError
from parity.cli.terminal.option_words import FOLLOW, OUTPUT
from parity.cli.terminal.options import Options, flag, flat, option
from parity.cli.terminal.plan_cost import check_agreed, print_plan
from parity.cli.terminal.shared_options import Follow
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import Document
from parity.wording import did_you_mean
from parity_lab.client import LabClient, is_of_job
from parity_lab.healing_lines import healing_lines, healing_plan_lines, lead

app = typer.Typer()
_SCOPES = ("all", "forward")


class HealQuestion(Options, panel="What to look for"):
    """Which candidate is healed, with what, and for how much."""

    candidate: str | None = option(None, "Candidate to heal. [default: the job's only one]", "NAME")
    to: str = option("bf16", "Recipe of the rest of the run.", "RECIPE")
    gemms: str = option("all", "Which products go on with it: all, or forward.", "WHICH")
    budget: float | None = option(
        None,
        "Largest cost, in device hours. [default: all looks; --plan prints it]",
        "HOURS",
        min=0,
    )


@app.command("heal", epilog="parity heal j0000000000001 --to bf16 --yes")
@flat
def heal(
    job: JobId,
    asked: HealQuestion,
    plan_only: bool = flag(
        "--plan", "Print the plan with its cost and stop.", rich_help_panel=OUTPUT
    ),
    speedup: float | None = option(
        None,
        "How much faster than the baseline the candidate trains, for the net speedup.",
        "FACTOR",
        min=0.01,
        rich_help_panel=OUTPUT,
    ),
    yes: bool = option(
        False,
        "Do not ask before the search is queued.",
        None,
        "--yes",
        "-y",
        rich_help_panel=FOLLOW,
    ),
    *,
    following: Follow,
    at: ServerQuery,
) -> int:
    """Find the latest step from which a safer recipe heals a candidate.

    Forks of the candidate's kept checkpoints are trained to the planned end with the safer recipe,
    and judged against the job's own baseline. Prints the cost first. With the id of such a search
    it follows that one. Exits 0 with an answer, whatever it says.
    """
    if asked.gemms not in _SCOPES:
        raise UsageError(
            f"--gemms is {asked.gemms!r}, expected {' or '.join(_SCOPES)}"
            f"{did_you_mean(asked.gemms, _SCOPES)}"
        )
    question = {
        "candidate": asked.candidate,
        "to": asked.to,
        "gemms": asked.gemms,
        "budget": asked.budget,
    }
    progress = following.progress()
    with LabClient(at.server, at.token) as client:
        healing = job if is_of_job(client.healing, job) else None
        if healing is None:
            plan = client.healing_plan(job, question)
            print_plan(
                plan, healing_plan_lines(plan), progress, plan_only=plan_only, as_json=at.as_json
            )
            if plan_only:
                return 0
            check_agreed("queue the search, or --plan to see its cost alone", yes=yes)
            healing = client.heal(job, question)["job"]
        progress.print(f"following {client.page(healing)}", soft_wrap=True)
        document = watching.follow_to_end(
            partial(client.healing, healing),
            healing,
            _progress,
            progress,
            following.timeout,
            kind="search",
            watch=f"parity heal {healing}",
            end=f"parity cancel {healing}",
        )
    if document["status"] != "concluded":
        why = f": {document['message']}" if document["message"] else ""
        if not document["answer"]["looks"]:
            raise JobEndedError(f"search {healing} {document['status']} without an answer{why}")
        at.show(document, healing_lines(document, speedup))
        raise JobEndedError(f"search {healing} {document['status']} before its end{why}")
    return at.show(document, healing_lines(document, speedup))


def _progress(document: Document, is_due: bool) -> list[str]:
    """Where a search is, from time to time."""
    if not is_due or document["status"] in watching.ENDED:
        return []
    plan, answer = document["plan"], document["answer"]
    spent = f"{answer['steps_spent']:,.0f} of at most {plan['most_steps']:,.0f} steps are judged"
    said = f"; {lead(plan, answer)}" if answer["looks"] else ""
    return [f"{document['status']}: {spent}{said}"]
