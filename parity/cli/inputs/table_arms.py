"""The arms of a table of many runs, as its options name them."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from parity.cli.inputs.statements import ArmStatements
from parity.cli.terminal.option_words import TABLE
from parity.cli.terminal.options import Options, option, repeatable
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import Arm, Stated, refuse_mixed_units, refuse_read_facts
from parity.judging.curves.curve import Curve
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.readers.columns.several_runs import SHOWN
from parity.readers.files.text import STDIN
from parity.readers.run_tables.final_losses import read_final_losses
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.run_table import read_run_table
from parity.readers.run_tables.size_table import read_sizes
from parity.readers.trackers.sources import is_source
from parity.recipes import RECIPES
from parity.wording import count, did_you_mean, first_few

NEEDS_ARM_BY = "needs --arm-by COLUMN, the column that names the arms in a table of many runs"


NO_COLUMN = "is not used with --arm-by; name the columns with --step and --loss"


class TableOptions(Options, panel=TABLE):
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


def read_table(files: Sequence[str], options: TableOptions) -> dict[str, list[Curve]]:
    """The runs of each arm of the one table; raises UsageError for several files, and ReadError."""
    return read_run_table(*_single_table(files, options))


def _single_table(files: Sequence[str], options: TableOptions) -> tuple[str, RunTable]:
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


def read_table_arms(
    files: Sequence[str], options: TableOptions, facts: ArmStatements
) -> list[list[Arm]]:
    """The arms of the table, baseline first, with what options state of them, once for each size
    that --size-by names.

    Raises UsageError or ReadError. A size at which the baseline or every candidate is missing is
    left out and named on stderr.
    """
    if options.size_by is None:
        final = read_final_losses(*_single_table(files, options))
        by_name = read_table(files, options) if final is None else final
        return [
            _arms_of(
                by_name, chosen_arm(by_name, "--baseline", options.baseline), by_name, facts, ""
            )
        ]
    sizes = read_sizes(
        *_single_table(files, options), _columns(options.size_by, "--size-by", "params,tokens")
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
    facts: ArmStatements,
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
