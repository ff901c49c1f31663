"""`parity why` and `parity search`: their cost first, then they follow an analysis or a search on
the server, and print what it says.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
import yaml
from rich.console import Console

from parity.cli import watching
from parity.cli.connection import Asked, JobId
from parity.cli.jobs import job_file, lines_named
from parity.cli.options import Follow, Options, argument, flag, flat, option, repeatable
from parity.cli.output import check_agreed, print_plan, write_file
from parity.cli.terminal import EXIT_CODES, FOLLOW, OUTPUT, UsageError
from parity.cli.watching import JobEndedError
from parity.client.rest import Client, ClientError, Document
from parity.comparing.arms import place_in, read_yaml
from parity.wording import did_you_mean
from parity_lab.answer import ablation_lines
from parity_lab.answer import answer_lines as lines_of_answer
from parity_lab.answer import plan_lines as lines_of_plan
from parity_lab.search import answer_lines, plan_lines, step_line

# Analyses and searches over REST.


class LabClient(Client):
    """A connection to one parity server, with what the lab adds to it."""

    def plan_of(self, kind: str, job_id: str, wish: Document) -> Document:
        """What an analysis (`why`) or a search (`searches`) from a job would run and cost; nothing
        is queued. `wish` as in `begin`.
        """
        return self._post(f"jobs/{job_id}/{kind}:plan", wish)

    def begin(self, kind: str, job_id: str, wish: Document) -> Document:
        """Queue an analysis (`why`), or begin a search (`searches`).

        Each key of a wish is optional: `candidate`, `step`, `fork_steps`, `budget`; of an analysis
        also `against`, `origin`, `whole`, `anyway`; of a search `switches`, `speed`, `pairs`,
        `pilots`, `confirmations`.
        """
        return self._post(f"jobs/{job_id}/{kind}", wish)

    def analysis(self, job_id: str) -> Document:
        """An analysis by its own job, or the newest of an explained job: `plan` and `answer`."""
        return self._get(f"jobs/{job_id}/why")

    def ablations(self, job_id: str, candidate: str | None, names: Sequence[str] = ()) -> Document:
        """The gap of a candidate in parts, from other candidates of the job (`names`; none: all
        others) that leave a part out.
        """
        params = {"ablation": list(names)} | ({"candidate": candidate} if candidate else {})
        return self._get(f"jobs/{job_id}/why/ablations", params)

    def find_search(self, search_id: str) -> Document:
        """A search: its state, plan, steps and assignments."""
        return self._get(f"searches/{search_id}")

    def change_search(self, search_id: str, verb: str) -> Document:
        """`cancel` a search (one that has ended is unchanged), or let a cancelled or failed one go
        on (`resume`).
        """
        return self._post(f"searches/{search_id}:{verb}")


# `parity why`: explains a gap by an analysis on the server; prints its cost first, follows it, and
# prints the parts with intervals.

app = typer.Typer()


class Question(Options, panel="What to measure"):
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
    asked: Question,
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
    at: Asked,
) -> int:
    """Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.

    Prints the cost first, queues an analysis as a job of its own and follows it. With the id of an
    analysis it follows that one. With --ablation, and for engines without forks, it computes the
    parts from the job's own ablation runs at once. Exits 0 with an answer, whatever it says.
    """
    for name, given, words in (
        ("against", asked.against, ("baseline", "bf16")),
        ("origin", asked.origin, ("baseline", "candidate")),
    ):
        if given not in words:
            raise UsageError(
                f"--{name} is {given!r}, expected {' or '.join(words)}{did_you_mean(given, words)}"
            )
    question = asdict(asked)
    ablation = question.pop("ablation")
    progress = following.progress()
    with LabClient(at.server, at.token) as client:
        analysis = job if _is_analysis(client, job) else None
        if analysis is None and (ablation or client.job(job)["engine"] != "emulated"):
            _check_no_fork_options(question, plan_only=plan_only)
            document = client.ablations(job, asked.candidate, ablation)
            return at.show(document, ablation_lines(document))
        if analysis is None:
            plan = client.plan_of("why", job, question)
            print_plan(plan, lines_of_plan(plan), progress, plan_only=plan_only, as_json=at.as_json)
            if plan_only:
                return 0
            check_agreed("queue the analysis, or --plan to see its cost alone", yes=yes)
            analysis = client.begin("why", job, question)["job"]
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
    return at.show(document, lines_of_answer(document["plan"], document["answer"]))


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
    given = [name for name, default in defaults.items() if question[name] != default] + [
        "plan"
    ] * plan_only
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(
            f"{options}: expected without ablation runs, from which no forks are planned or "
            "trained; leave it out"
        )


def _is_analysis(client: LabClient, job: str) -> bool:
    try:
        return bool(client.analysis(job)["job"] == job)
    except ClientError as error:
        if error.status != 404:
            raise
        return False


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


# `parity search`: the fastest assignment inside the margin, by a search on the server; prints its
# cost first and follows it.

_JOB_ID = re.compile(r"j[0-9a-f]{12}-[0-9a-f]{10}")
KEYS = (
    "base",
    "candidate",
    "switches",
    "step",
    "fork_steps",
    "speed",
    "pairs",
    "pilots",
    "confirmations",
    "budget",
)


@app.command("search", epilog="parity search parity.yaml --plan")
@flat
def search(
    what: Annotated[
        str, argument("parity.yaml|SEARCH", "Job file with `search:`, or the id of a search.")
    ],
    plan_only: bool = flag(
        "--plan", "Print the plan with its cost and stop.", rich_help_panel=OUTPUT
    ),
    yes: bool = option(
        False, "Do not ask before the search begins.", None, "--yes", "-y", rich_help_panel=FOLLOW
    ),
    cancel: bool = flag(
        "--cancel", "Cancel a search; what it has measured stays.", rich_help_panel=FOLLOW
    ),
    resume: bool = flag(
        "--resume", "Let a cancelled or failed search go on.", rich_help_panel=FOLLOW
    ),
    output: str | None = option(
        None, "Write the confirmed assignment as a job file.", "FILE", rich_help_panel=OUTPUT
    ),
    *,
    following: Follow,
    at: Asked,
) -> int:
    """Search the fastest precision assignment inside the margin: which GEMMs can stay in the
    candidate's recipe.

    Prints cost and guarantee first, begins the search and follows it. Exits 0 with an assignment
    that the judge confirmed, 3 without one.
    """
    progress, timeout = following.progress(), following.timeout
    with LabClient(at.server, at.token) as client:
        if _is_id(what):
            if cancel:
                document = client.change_search(what, "cancel")
                return at.show(document, [f"{what} {document['state']}"])
            own = (client.change_search(what, "resume") if resume else client.find_search(what))[
                "id"
            ]
        else:
            if cancel or resume:
                raise UsageError(
                    f"{what!r} is a file, expected the id of a search with --cancel and --resume"
                )
            wish = _wish(what)
            base = wish.pop("base", None) or _train_base(
                client, what, progress, timeout, yes=yes, plan_only=plan_only
            )
            with lines_named(what, "search"):
                plan = client.plan_of("searches", base, wish)
            print_plan(plan, plan_lines(plan), progress, plan_only=plan_only, as_json=at.as_json)
            if plan_only:
                return 0
            check_agreed("begin the search, or --plan to see its cost alone", yes=yes)
            own = client.begin("searches", base, wish)["id"]
        progress.print(
            f"following {client.url}/searches/{own}; stop watching with Ctrl-C, it goes on",
            soft_wrap=True,
        )
        document = _follow_search(client, own, progress, timeout)
    return _finish_search(document, output, at)


def _is_id(text: str) -> bool:
    return text.startswith("s") and "." not in text and "/" not in text and "-" in text


def _wish(path: str) -> Document:
    """The `search:` of a file; the server checks its values."""
    if _JOB_ID.fullmatch(path):
        raise UsageError(
            f"{path} is a job, expected a job file or the id of a search; write search: {{base: "
            f"{path}}} into a job file"
        )
    content = read_yaml(path)
    own = content.get("search") if isinstance(content, dict) else None
    if not isinstance(own, dict):
        raise UsageError(
            f"{path}: `search:` is missing or has no keys below it; expected at least search: "
            "{base: JOB}"
        )
    unknown = next((str(key) for key in own if key not in KEYS), None)
    if unknown is not None:
        place = place_in(path, ["search", unknown])
        raise UsageError(
            f"{place}: unknown key search.{unknown}; expected one of "
            f"{', '.join(KEYS)}{did_you_mean(unknown, KEYS)}"
        )
    return dict(own)


def _train_base(
    client: LabClient,
    path: str,
    progress: Console,
    timeout: float | None,
    *,
    yes: bool,
    plan_only: bool,
) -> str:
    """Train the file's job, from which the search then starts; its id."""
    content = job_file(path)
    if not content["job"].get("keep_checkpoints"):
        steps = (content["job"].get("schedule") or {}).get("steps", 1500)
        raise UsageError(
            f"{path}: job.keep_checkpoints is missing, expected a step to fork from, such as "
            f"keep_checkpoints: [{steps // 2}]"
        )
    if plan_only:
        raise UsageError(
            f"{path}: search.base is missing, so the job is trained first; its search can be "
            "planned when it has ended"
        )
    check_agreed("train the job first, or set search.base to one that has ended", yes=yes)
    with lines_named(path):
        job = client.submit(content["job"], content["policy"])["id"]
    progress.print(
        f"search.base is missing: training job {job} first, {client.page(job)}", soft_wrap=True
    )
    document = watching.follow(client, job, progress, timeout)
    if document["status"] != "concluded":
        raise JobEndedError(
            f"job {job} {document['status']}, so there is nothing to search from: "
            f"{document['message'] or ''}"
        )
    progress.print(f"set search.base: {job} to search from it again", soft_wrap=True)
    return str(job)


def _follow_search(
    client: LabClient, search_id: str, console: Console, timeout: float | None
) -> Document:
    def fetch() -> Document:
        document = client.find_search(search_id)
        return document | {"status": "running" if document["state"] == "running" else "concluded"}

    shown: set[str] = set()

    def lines(document: Document, is_due: bool) -> Iterator[str]:
        """Each step when it has an outcome; from time to time also those that have none yet, and
        the first of them at once.
        """
        is_due = is_due and bool(shown)
        for step in document["steps"]:
            line = step_line(step)
            if line not in shown and (step["outcome"] or is_due or not shown):
                shown.add(line)
                yield line

    again = f"parity search {search_id}"
    try:
        return watching.follow_to_end(
            fetch,
            search_id,
            lines,
            console,
            timeout,
            kind="search",
            watch=again,
            end=f"{again} --cancel",
        )
    except watching.WatchTimeoutError:
        raise watching.WatchTimeoutError(
            f"search {search_id} did not end within {timeout:g} s and goes on; follow it: {again}"
        ) from None


def _finish_search(document: Document, output: str | None, at: Asked) -> int:
    if document["state"] in {"failed", "cancelled"}:
        remedy = f"go on with `parity search {document['id']} --resume`"
        raise JobEndedError(
            f"search {document['id']} {document['state']}: {document['message']}; {remedy}"
        )
    if output is not None and document["job"] is not None:
        content = {
            "job": document["job"],
            "policy": {
                key: value for key, value in document["policy"].items() if value is not None
            },
        }
        write_file(output, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    at.show(
        {name: value for name, value in document.items() if name != "status"},
        answer_lines(document),
    )
    if document["state"] == "found":
        return 0
    return EXIT_CODES["inconclusive"]
