"""Every command: its module, its group, and its line in the help."""

from collections.abc import Mapping
from typing import Any, ClassVar

from parity.cli.lazy_groups import CommandPlace, LazyGroup
from parity.cli.terminal.help import ALL_OPTIONS
from parity.extensions import lab
from parity.gate.exit_codes import EXIT_CODES

FILES, JOBS, OWN_RUNS = (
    "Files (no server needed)",
    "Jobs on a server",
    "Runs that you train yourself",
)


class Commands(LazyGroup):
    """Every command, in the order of the help, which shows the `first` of them unless all are asked
    for.
    """

    first: ClassVar[tuple[str, ...]] = ("compare", "plan", "gate", "report")
    closing: ClassVar[str] = (
        f"Exit codes: {', '.join(f'{code} {name}' for name, code in EXIT_CODES.items())}. A server "
        "has the documentation under /docs."
    )
    places: ClassVar[Mapping[str, CommandPlace]] = {
        "compare": CommandPlace(
            "parity.cli.compare.command",
            FILES,
            "Judge candidates against a baseline from files, with no server.",
        ),
        "verify": CommandPlace(
            "parity.cli.verify",
            FILES,
            "Recompute a verdict from its evidence bundle, or a card, offline.",
        ),
        "card": CommandPlace(
            "parity.cli.cards.card",
            FILES,
            "Write the card of a verdict, for a pull request, a model card or a paper.",
        ),
        "calibrate": CommandPlace(
            "parity.cli.design.calibrate",
            FILES,
            "Measure run-to-run noise on reruns of one configuration, and check the judge against "
            "it.",
        ),
        "plan": CommandPlace(
            "parity.cli.design.plan",
            FILES,
            "Estimate what an experiment, or a budget, can decide before you spend GPU time.",
        ),
        "noise": CommandPlace(
            "parity.cli.noise",
            FILES,
            "Show noise tables: how much runs of one recipe differ, by family.",
            app="noise",
        ),
        "mlperf": CommandPlace(
            "parity.cli.mlperf",
            FILES,
            "Judge how many samples MLPerf runs need, beside the reference's and a margin.",
        ),
        "golden": CommandPlace(
            "parity.cli.golden.command",
            FILES,
            "Check a run of the same recipe (new code, container, machine, or a resume) against a "
            "golden curve.",
            app="golden",
        ),
        "schema": CommandPlace(
            "parity.cli.schema",
            FILES,
            "Print the JSON Schema of a document that --json prints, or list them.",
        ),
        "skill": CommandPlace(
            "parity.cli.skill",
            FILES,
            "Print SKILL.md: for agents and scripts, what to ask, and what each exit code demands.",
        ),
        "preflight": CommandPlace(
            "parity.cli.preflight",
            FILES,
            "Compare this machine's arithmetic with known answers, in less than a minute.",
        ),
        "submit": CommandPlace(
            "parity.cli.jobs.commands",
            JOBS,
            "Queue a job on the server and print its id and the address of its page.",
        ),
        "watch": CommandPlace(
            "parity.cli.jobs.commands", JOBS, "Follow a job to its end and print its verdicts."
        ),
        "status": CommandPlace(
            "parity.cli.jobs.status",
            JOBS,
            "Show the state of a job, or list the newest jobs (in a pipe: one per line, "
            "tab-separated).",
        ),
        "again": CommandPlace(
            "parity.cli.jobs.commands",
            JOBS,
            "Queue a new job with the specification of one that has ended, and a change of it.",
        ),
        "add-run": CommandPlace(
            "parity.cli.jobs.commands",
            JOBS,
            "Add a run to each arm of a job that has no verdict yet.",
        ),
        "cancel": CommandPlace(
            "parity.cli.jobs.commands", JOBS, "Cancel a job; a job that has ended stays as it is."
        ),
        "report": CommandPlace(
            "parity.cli.jobs.commands", JOBS, "Print the verdicts of a job that has ended."
        ),
        **{
            name: CommandPlace(module, JOBS, line)
            for name, (module, line) in lab().commands.items()
        },
        "matrix": CommandPlace(
            "parity.cli.jobs.matrix",
            JOBS,
            "Show the verdicts of several jobs side by side, and what keeps jobs from being "
            "compared.",
        ),
        "trend": CommandPlace(
            "parity.cli.jobs.trend",
            JOBS,
            "Show how a gap moved over commits or days, and which of them moved it beyond "
            "run-to-run noise.",
        ),
        "tag": CommandPlace(
            "parity.cli.jobs.remarks", JOBS, "Set the tags of a job, by which lists find it."
        ),
        "note": CommandPlace("parity.cli.jobs.remarks", JOBS, "Add a note to a job."),
        "sign-off": CommandPlace(
            "parity.cli.jobs.remarks",
            JOBS,
            "Accept an inconclusive verdict for some days, or revoke that.",
        ),
        "new-question": CommandPlace(
            "parity.cli.jobs.remarks",
            JOBS,
            "Register a new question, so that what a job answered may be asked again.",
        ),
        "doctor": CommandPlace(
            "parity.cli.doctor",
            JOBS,
            "List workers, what each can train, and the jobs that wait for one.",
        ),
        "gate": CommandPlace(
            "parity.cli.gate.command",
            JOBS,
            "Gate CI on a job: reuse its verdict if there is one, else train.",
        ),
        "baseline": CommandPlace(
            "parity.cli.baseline",
            JOBS,
            "Manage named baselines: train once, promote with a reason, and use by name in job "
            "files (`baseline: {name: fp8}`).",
            app="baselines",
        ),
        "resend": CommandPlace(
            "parity.cli.runs.resend",
            OWN_RUNS,
            "Send the steps that training scripts logged with parity.Run and could not send; "
            "spools of running processes are skipped.",
        ),
        "import": CommandPlace(
            "parity.cli.runs.imports",
            OWN_RUNS,
            "Record finished runs of a job with engine external.",
        ),
        "runs": CommandPlace(
            "parity.cli.runs.external_runs",
            OWN_RUNS,
            "Judge the runs of a job that you train, and state what no record holds of them.",
            app="runs",
        ),
    }

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and summaries of the first commands, or of all by their titles."""
        if ctx.meta.get(ALL_OPTIONS):
            return super().commands_by_panel(ctx)
        return {"First commands": [(name, self.places[name].summary) for name in self.first]}
