"""What a job can decide, printed before it trains: one line per candidate, and what it needs of
machines, from one request to the server.
"""

import shlex
from collections.abc import Sequence

from rich.console import Console

from parity.client.rest import Client, ClientError, Document, UnreachableError


def print_outlook(client: Client, file: str, content: Document, console: Console) -> Sequence[str]:
    """Print the line of each candidate of a job file, and what it needs of machines; returns the
    latter. Nothing where the server cannot say: an invalid job is refused when it is submitted.
    """
    if console.quiet:
        return ()
    try:
        answer = client.plan(content["job"], content["policy"], baseline=content.get("baseline"))
        lines = [
            _outlook_line(file, one, alone=len(answer["candidates"]) == 1)
            for one in answer["candidates"]
        ]
        needs: Sequence[str] = answer.get("needs", ())  # an earlier server has none
    except (ClientError, UnreachableError, TypeError, ValueError, KeyError):
        return ()
    for line in (*lines, *needs):
        console.print(line, soft_wrap=True)
    return needs


def print_missing(job: Document, console: Console, printed: Sequence[str] = ()) -> None:
    """Print what a job that was just queued lacks, such as a worker, but for what was `printed`
    before; an earlier server does not say.
    """
    for sentence in job.get("missing", ()):
        if sentence not in printed:
            console.print(f"note: {sentence}", soft_wrap=True)


def _outlook_line(file: str, candidate: Document, *, alone: bool) -> str:
    name, plan = "" if alone else f"{candidate['name']}: ", candidate["plan"]
    if plan is None or plan["decides"]:
        return f"{name}{candidate['line']}"
    # The server's tables and controls, which `parity plan` has not, or a family that the job names.
    borrows = any(
        arm["basis"].startswith(("borrowed", "assumed as in")) for arm in plan["run_noise"]
    )
    if borrows or plan["design"]["controls"]:
        return f"{name}{candidate['line']}. {plan['advice']}"
    return f"{name}{candidate['line']}: `{command(file, plan)}` shows what would decide"


def command(file: str, plan: Document) -> str:
    """The call of `parity plan` that shows the same design, with the policy of the job file."""
    design = plan["design"]
    words = ["parity", "plan", "--policy", file, "--planned-steps", str(design["planned_steps"])]
    words += ["--level", f"{design['level']:.4g}"] if plan["unit"] == "nats" else []
    for arm in ("baseline", "candidate"):
        runs, recipe, rounding = (
            design[f"{arm}_{what}"] for what in ("runs", "recipe", "rounding")
        )
        words += [f"--{arm}-recipe", recipe] if recipe else []
        words += [f"--{arm}-rounding", rounding] if rounding and "+" in (recipe or "") else []
        words += [f"--{arm}-runs", str(runs)] if runs > 1 else []
    words += (
        ["--short-reruns", str(design["short_reruns"]), "--stop-at", f"{design['stop_at']:g}"]
        if design["short_reruns"]
        else []
    )
    if design["step_seconds"]:
        words += [
            "--step-seconds",
            f"{design['step_seconds']:.3g}",
            "--devices",
            str(design["devices"]),
        ]
    return shlex.join(words)
