"""The commands `runs …` for runs that users train: state, judge, conclude, fail."""

import sys
from typing import Annotated, Any

import typer

from parity.cli.connection import JobId, ServerQuery, VerdictQuery
from parity.cli.inputs.pairs import pairs
from parity.cli.jobs import watching
from parity.cli.terminal.help import Group
from parity.cli.terminal.option_words import ARMS
from parity.cli.terminal.options import Options, argument, flat, option, repeatable
from parity.cli.terminal.shared_options import Follow
from parity.cli.terminal.wrong_calls import UsageError
from parity.gate.exit_codes import EXIT_CODES, exit_code

runs = typer.Typer(
    name="runs",
    help="Judge the runs of a job that you train, and state what no record holds of them.",
    cls=Group,
    epilog="parity runs state j0000000000001 --rounding nvfp4=nearest",
    rich_markup_mode=None,
)


class RunStatements(Options, panel=ARMS):
    """What an owner states of external runs."""

    recipe: list[str] = repeatable("State the recipe of an arm. Repeatable.", "ARM=RECIPE")
    rounding: list[str] = repeatable(
        "State how an arm rounds gradients, stochastic or nearest. Repeatable.", "ARM=HOW"
    )
    seeds: list[str] = repeatable(
        "State the seed of each run of an arm, in order. Repeatable.", "ARM=S,S,..."
    )
    planned_steps: int | None = option(None, "State the planned length of a run.", "N")
    tokens_per_step: int | None = option(None, "State the tokens that a step trains on.", "N")
    family: str | None = option(
        None,
        "Name the family of reruns whose run-to-run noise all arms borrow (`parity noise list`).",
        "NAME",
    )

    def request(self) -> dict[str, Any]:
        """The facts that are stated, as the server takes them."""
        seeds = {
            arm: [_seed(arm, seed) for seed in arm_seeds.split(",")]
            for arm, arm_seeds in pairs(self.seeds, "--seeds").items()
        }
        by_arm = {
            "recipe": pairs(self.recipe, "--recipe"),
            "rounding": pairs(self.rounding, "--rounding"),
            "seeds": seeds,
        }
        job_facts = {
            "planned_steps": self.planned_steps,
            "tokens_per_step": self.tokens_per_step,
            "family": self.family,
        }
        return {
            fact: value for fact, value in (by_arm | job_facts).items() if value not in (None, {})
        }


@runs.command(
    "state", epilog="parity runs state j0000000000001 --rounding nvfp4=nearest --planned-steps 1500"
)
@flat
def state(job: JobId, stated: RunStatements, at: VerdictQuery) -> int:
    """State what no record holds of a job's external runs, before they end or after, and print how
    they are judged with it.

    Nothing on record is overwritten. After the job's end its recorded verdict stays, and each
    further statement of the same fact counts as a further look at the question. Needs the token
    that submitted the job, or scope admin.
    """
    request = stated.request()
    if not request:
        raise UsageError(
            "nothing is stated; give --recipe, --rounding, --seeds, --planned-steps, "
            "--tokens-per-step or --family"
        )
    with at.client() as client:
        remarks = client.state(job, request)
        document = client.job(job)
        is_whole = len(document["arms"]) > 1 and all(
            any(run["state"] == "finished" for run in arm["runs"]) for arm in document["arms"]
        )
        verdicts = client.rejudge(job)["verdicts"] if is_whole and not document["is_open"] else []
    for statement in remarks["statements"]:
        of = f" of {statement['arm']}" if statement["arm"] else ""
        print(
            f"stated: {statement['fact']}{of} {statement['value']}, "
            f"by {statement['who']}, {statement['created_at']}",
            file=sys.stderr,
        )
    if not is_whole:
        print("The job is judged with it once each arm has a finished run.", file=sys.stderr)
    elif document["is_open"]:
        print(
            f"`parity runs judge {job}` judges with it, which is a look at the question of this "
            "project.",
            file=sys.stderr,
        )
    at.show_verdicts(verdicts)
    return EXIT_CODES["pass"]


@runs.command("judge", epilog="parity runs judge j0000000000001")
@flat
def judge_now(job: JobId, at: VerdictQuery) -> int:
    """Print how a job's finished runs are judged as of now; no verdict is recorded.

    Of an open project each judging with other runs or statements counts as a look, so its owner
    alone may ask. Exits with the worst verdict: 1 fail, 3 inconclusive, 0 pass.
    """
    with at.client() as client:
        verdicts = client.rejudge(job)["verdicts"]
    at.show_verdicts(verdicts)
    return exit_code(verdicts)


@runs.command("conclude", epilog="parity runs conclude j0000000000001")
@flat
def conclude(job: JobId, following: Follow, at: VerdictQuery) -> int:
    """Close a project of parity.Run, which takes no further run then, and print its recorded
    verdict.

    A job that failed with JUDGE_FAILED is judged again, for a token of scope admin. Exits with the
    worst verdict: 1 fail, 3 inconclusive, 0 pass. Needs the token that made the project, or scope
    admin.
    """
    with at.client() as client:
        client.conclude(job)
        with watching.interrupt_leaves_running(
            "job", watch=f"parity watch {job}", end=f"parity cancel {job}"
        ):
            document = watching.follow(client, job, following.progress(), following.timeout)
    at.show_verdicts(document["verdicts"])
    return exit_code(document["verdicts"])


@runs.command("fail", epilog="parity runs fail r0000000000001 --reason 'out of memory at step 900'")
@flat
def fail(
    run: Annotated[str, argument("RUN", "Id of the run, as `parity status JOB` prints it.")],
    reason: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel="Failure",
            help="State the reason; it is kept with the run.",
        ),
    ],
    at: ServerQuery,
) -> int:
    """End a run that will not go on as failed: it is not judged, and the verdict notes that it was
    left out.
    """
    with at.client() as client:
        document = client.run(run)
        manifest = {
            name: value for name, value in (document["manifest"] or {}).items() if name != "engine"
        }
        if document["state"] == "running":
            attempt_number = document["attempt"]
        else:
            attempt_number = client.attach(run, manifest)["attempt"]
        ended = client.finish(run, attempt_number, "failed", reason)
    return at.show(ended, [f"{run} {ended['state']}"])


def _seed(arm: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise UsageError(
            f"--seeds {arm} has {text.strip()!r:.40}; expected whole numbers from 0, separated by "
            "commas"
        )
    return int(text)
