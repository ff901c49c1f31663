"""Tables of many runs on the command line: their options, their arms, and the comparison of
held-out losses.
"""

import dataclasses
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from parity.canonical_json import picked
from parity.cli.inputs import Facts
from parity.cli.options import Options, Printing, flag, option, refuse, repeatable
from parity.cli.output import paths_by_name, write_file
from parity.cli.terminal import OUTPUT, SERVER, TABLE, UsageError
from parity.comparing.arms import Arm, Stated, refuse_mixed_units, refuse_read_facts
from parity.comparing.statements import HELD_OUT, LOSS_KINDS, stated_multiplicity
from parity.judging.bundles.evidence import Case, bundle_bytes
from parity.judging.curves.curve import Curve
from parity.judging.curves.reading import different_meanings
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.policy import LOSS, Policy
from parity.readers.columns.names import is_held_out
from parity.readers.columns.several_runs import SHOWN
from parity.readers.files.text import STDIN
from parity.readers.run_tables.known_columns import HARDWARE
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.run_times import read_run_times
from parity.readers.run_tables.size_table import read_sizes
from parity.readers.trackers.sources import is_source
from parity.recipes import RECIPES
from parity.report.evaluation_figure import draw_evaluation_figure
from parity.report.junit import render_junit
from parity.wording import count, did_you_mean, first_few

NEEDS_ARM_BY = "needs --arm-by COLUMN, the column that names the arms in a table of many runs"
NEEDS_HELD_OUT = (
    f"needs losses of held-out data; state --loss-is {HELD_OUT}, or name their column, such as "
    "val_loss, with --loss"
)
NOT_BY_SIZE = (
    "is not used with --size-by, where each size has an end of its own; choose one size with "
    "--where to use it"
)
NO_COLUMN = "is not used with --arm-by; name the columns with --step and --loss"


class Table(Options, panel=TABLE):
    """A table of many runs: its columns, and how its runs are compared. `arm` is an option of
    `calibrate` alone.
    """

    arm_by: str | None = option(
        None, "Read many runs from one table, in which COLUMN names the arm of each row.", "COLUMN"
    )
    run_by: str | None = option(
        None,
        "Name the columns that together tell the runs of an arm apart. [default: one run an arm]",
        "COLUMN[,COLUMN]",
    )
    size_by: str | None = option(
        None,
        "Name the columns that together name the size of a model, in a table of final losses: "
        "each size is compared on its own.",
        "COLUMN[,COLUMN]",
    )
    where: list[str] = repeatable(
        "Read only the rows with this value; a column given several times may have any of them. "
        "Repeatable.",
        "COLUMN=VALUE",
    )
    baseline: str | None = option(None, "Name the arm that is the baseline.", "ARM")
    arm: str | None = None
    step: str | None = option(
        None, "Name the column of the step. [default: well-known names]", "COLUMN"
    )
    loss: str | None = option(
        None, "Name the column of the loss. [default: well-known names]", "COLUMN"
    )
    pair_by: str | None = option(
        None,
        "Pair runs of two arms that have the same value, because they share data and "
        "initialization. "
        "[default: held-out losses unpaired; training losses as their batches show]",
        "COLUMN",
    )
    cluster: str | None = option(
        None,
        "Count runs with the same value, such as those of one system, as one piece of evidence.",
        "COLUMN",
    )
    at: str | None = option(
        None, "Compare at these steps. [default: the last 20 % that all reached]", "STEP[,STEP]"
    )
    target: float | None = option(
        None, "Compare how many steps the arms need to reach this loss.", "NATS"
    )
    tokens_per_step: float | None = option(
        None, "Set the tokens per step or sample, so that points are shown in tokens.", "N"
    )
    times: str | None = option(
        None,
        "Read the times of the runs: a table with the same arm and run columns, and times such as "
        "minutes_to_target or step_seconds.",
        "FILE",
    )

    def layout(self) -> RunTable:
        """The columns of the table; UsageError where --arm-by is missing."""
        if not self.arm_by:
            raise UsageError(
                "--arm-by COLUMN is missing; expected the column that names the arm in a table of "
                "many runs"
            )
        keep = () if self.cluster is None else (self.cluster,)
        return RunTable(
            arm=self.arm_by,
            run=self.run_columns(),
            step=self.step,
            loss=self.loss,
            seed=self.pair_by,
            keep=keep,
            where=self.selection(),
        )

    def selection(self) -> dict[str, list[str]]:
        """The values of each column that --where names."""
        values: dict[str, list[str]] = {}
        for item in self.where:
            column, _, value = item.partition("=")
            if not (column and value):
                raise UsageError(f"--where is {item!r}; expected COLUMN=VALUE such as batch=2048")
            values.setdefault(column, []).append(value)
        return values

    def run_columns(self) -> tuple[str, ...]:
        """The columns of --run-by; none where each arm has one run."""
        if self.run_by is None:
            return ()
        return _columns(self.run_by, "--run-by", "system,run")


def _columns(text: str, option: str, example: str) -> tuple[str, ...]:
    columns = tuple(part.strip() for part in text.split(","))
    if "" in columns:
        raise UsageError(f"{option} is {text!r}; expected one or several columns such as {example}")
    return columns


class Reports(Printing, panel=OUTPUT):
    """How a comparison is printed, and what else is written."""

    junit: str | None = option(None, "Also write JUnit XML to this file.", "out.xml")
    figure: str | None = option(
        None, "Also draw one figure per candidate, as .png, .svg or .pdf.", "out.pdf"
    )
    bundle: str | None = option(
        None, "Also write an evidence bundle, which `parity verify` recomputes.", "out.zip"
    )
    html: str | None = option(
        None, "Also write the page of the verdict, one file that needs no network.", "out.html"
    )
    open_page: bool = flag(
        "--open", "Open the page of the verdict; without --html it is a temporary file."
    )
    push: bool = flag(
        "--push",
        "Also record runs and verdict on the server and print the address of the page. If it "
        "breaks off, run it again.",
        rich_help_panel=SERVER,
    )

    def write(
        self,
        case: Case | EvaluationCase,
        documents: Sequence[VerdictDocument] | Sequence[EvaluationDocument],
        draw: Callable[[Sequence[str]], None],
    ) -> None:
        """Write the bundle, the figures (`draw` takes one path per candidate) and JUnit XML, where
        they are wanted.
        """
        if self.bundle:
            write_file(self.bundle, bundle_bytes(case, documents))
        if self.figure:
            draw(
                paths_by_name(
                    self.figure, [document["candidate"]["name"] for document in documents]
                )
            )
        if self.junit:
            write_file(self.junit, render_junit(documents).encode())


def read_table(files: Sequence[str], options: Table) -> dict[str, list[Curve]]:
    """The runs of each arm of the one table; raises UsageError for several files, and ReadError."""
    return read_run_table(*_of_table(files, options))


def _of_table(files: Sequence[str], options: Table) -> tuple[str, RunTable]:
    """The one table and its layout."""
    layout = options.layout()
    if len(files) != 1:
        raise UsageError(
            f"{count(len(files), 'file')} with --arm-by; expected one table that holds all arms"
        )
    if is_source(files[0]):
        raise UsageError(
            f"{files[0]} is one run of a tracker, but --arm-by reads a table of many runs; give "
            "the runs as arms, without --arm-by"
        )
    if files[0] == options.times == STDIN:
        raise UsageError('"-" was given for the table and for --times; stdin can be read only once')
    return files[0], layout


def chosen_arm(arms: Mapping[str, object], option: str, name: str | None) -> str:
    """The arm that an option names; UsageError where it is missing or unknown."""
    names = ", ".join(arms)
    if name is None:
        raise UsageError(f"{option} is missing; expected one of the arms {names}")
    if name not in arms:
        raise UsageError(
            f"{option} is {name!r}; expected one of the arms {names}{did_you_mean(name, arms)}"
        )
    return name


def read_table_arms(files: Sequence[str], options: Table, facts: Facts) -> list[list[Arm]]:
    """The arms of the table, baseline first, with what options state of them, once for each size
    that --size-by names.

    Raises UsageError or ReadError. A size at which the baseline or every candidate is missing is
    left out and named on stderr.
    """
    if options.size_by is None:
        by_name = read_table(files, options)
        return [
            _arms_of(
                by_name, chosen_arm(by_name, "--baseline", options.baseline), by_name, facts, ""
            )
        ]
    sizes = read_sizes(
        *_of_table(files, options), _columns(options.size_by, "--size-by", "params,tokens")
    )
    names = dict.fromkeys(name for by_name in sizes.values() for name in by_name)
    baseline = chosen_arm(names, "--baseline", options.baseline)
    compared = [size for size, by_name in sizes.items() if baseline in by_name and len(by_name) > 1]
    left_out = [size for size in sizes if size not in compared]
    if not compared:
        raise UsageError(
            f"no size has {baseline} and another arm: {first_few(left_out, SHOWN, '; ')}; expected "
            "a loss of each at one size"
        )
    if left_out:
        print(
            f"parity: left out where {baseline} or every other arm is missing: "
            f"{first_few(left_out, SHOWN, '; ')}",
            file=sys.stderr,
        )
    return [_arms_of(sizes[size], baseline, names, facts, f" ({size})") for size in compared]


def _arms_of(
    by_name: Mapping[str, Sequence[Curve]],
    baseline: str,
    names: Mapping[str, object],
    facts: Facts,
    size: str,
) -> list[Arm]:
    """The arms of one comparison; `size` is what follows the name of a candidate, `names` are those
    of all arms.
    """
    facts.refuse_unknown(names)
    arms = [
        (
            name if name == baseline else name + size,
            [_with_facts(run, name, facts.of(name)) for run in by_name[name]],
        )
        for name in sorted(by_name, key=lambda name: name != baseline)
    ]
    refuse_mixed_units(arms, [], "--step COLUMN")
    return arms


def _with_facts(run: Curve, arm: str, stated: Stated) -> Curve:
    """The run with what is stated of its arm; a number whose arm is named as a recipe has that one,
    as one that is typed.
    """
    refuse_read_facts(stated.context, f"--context {arm}")
    named = arm if PRINTED_STEP in run.columns and arm in RECIPES else None
    return dataclasses.replace(
        run,
        recipe=stated.recipe or named,
        rounding=stated.rounding,
        context={**run.context, **stated.context},
    )


def holds_held_out_losses(loss_is: str | None, columns: Collection[str | None]) -> bool:
    """Whether runs hold held-out losses, as stated, else by the names of the columns that were
    named for the loss (None: none was).
    """
    if loss_is not in (None, *LOSS_KINDS):
        raise UsageError(
            f"--loss-is is {loss_is!r}; expected "
            f"{' or '.join(LOSS_KINDS)}{did_you_mean(loss_is, LOSS_KINDS)}"
        )
    if loss_is:
        return loss_is == HELD_OUT
    return any(column is not None and is_held_out(column) for column in columns)


def refuse_evaluation_options(options: Table) -> None:
    """Raise UsageError where an option that only a comparison of held-out losses has was given for
    training losses.
    """
    refuse(options.given("cluster", "at", "target", "tokens_per_step", "times"), NEEDS_HELD_OUT)


def judge_evaluations(
    arms: Sequence[Arm],
    options: Table,
    policy: Policy,
    planned_steps: int | None,
    look: int,
    *,
    paired: bool,
) -> tuple[EvaluationCase, list[EvaluationDocument]]:
    """Judge arms of held-out losses, baseline first: the case and one document per candidate.
    Raises UsageError or ReadError.
    """
    if checks := [check for check in policy.checks if check != LOSS]:
        raise UsageError(
            f"the policy's checks are {', '.join(checks)}, but these are held-out losses; expected "
            f"{LOSS} alone"
        )
    if (why := different_meanings(arms)) is not None:
        raise UsageError(f"{why} Name columns of one quantity (--column ARM:loss=NAME)")
    (name, baseline), candidates = arms[0], dict(arms[1:])
    times = read_times(options, dict(arms)) if options.times else []
    try:
        case = EvaluationCase(
            baseline=baseline,
            candidates=candidates,
            policy=policy,
            baseline_name=name,
            paired=paired,
            at=_steps(options.at),
            **picked(options, "cluster", "target", "tokens_per_step"),
            planned_steps=planned_steps,
            times=times,
            multiplicity=stated_multiplicity(look, "--look", policy.looks, len(candidates)),
        )
        return case, case.documents()
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise UsageError(
            f"--{field.replace('_', '-')} {rest}"
            if field in Table.__dataclass_fields__
            else str(error)
        ) from None


def report_evaluations(
    judged: Sequence[tuple[EvaluationCase, Sequence[EvaluationDocument]]], reports: Reports
) -> None:
    """Print the documents as text, canonical JSON or Markdown, and write the reports."""
    documents = [document for _, own in judged for document in own]
    if len(judged) > 1 and (
        one := next(iter(reports.given("bundle", "html", "open_page").values()), None)
    ):
        raise UsageError(f"{one} holds the comparison at one size; choose one with --where")

    def draw(paths: Sequence[str]) -> None:
        for path, document in zip(paths, documents, strict=True):
            draw_evaluation_figure(path, document)

    reports.write(judged[0][0], documents, draw)
    if reports.as_json:
        reports.show_verdicts(documents)
    else:
        for number, document in enumerate(documents):
            if number:
                print()
            reports.show_verdicts([document])


def read_times(options: Table, arms: Mapping[str, Sequence[Curve]]) -> list[RunTimes]:
    """The times of every run of the arms; UsageError where the two tables do not hold the same
    runs.
    """
    if options.times is None or options.arm_by is None:
        return []
    times = read_run_times(options.times, options.arm_by, options.run_columns())
    runs = {(arm, run.label): run for arm, curves in arms.items() for run in curves}
    if options.where:  # the rows of a table of times are those of all runs
        times = [each for each in times if (each.arm, each.run) in runs]
    timed = {(each.arm, each.run) for each in times}
    for kind, missing in (
        ("a run that the curves do not have", timed - set(runs)),
        ("no row for a run of the curves", set(runs) - timed),
    ):
        if missing:
            arm, label = min(missing)
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise UsageError(
                f"--times {options.times} has {kind}: {label} of {arm}{more}; expected one row for "
                "each run (an unknown time stays empty)"
            )
    return [
        dataclasses.replace(each, hardware=each.hardware or _hardware(runs[each.arm, each.run]))
        for each in times
    ]


def _hardware(run: Curve) -> str | None:
    return next((run.context[key] for key in HARDWARE if key in run.context), None)


def _steps(text: str | None) -> tuple[int, ...]:
    """The steps of --at."""
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) <= 16):
            raise UsageError(f"--at is {text!r}; expected one or several steps such as 1000,2000")
    return tuple(int(part) for part in parts)
