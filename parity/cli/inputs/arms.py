"""The runs of each arm, from the files that options name."""

import shlex
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.columns import ColumnNames, places
from parity.cli.inputs.pairs import pair
from parity.cli.inputs.statements import ArmStatements
from parity.cli.inputs.tried_commands import in_one_unit, with_tried_command
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import (
    Arm,
    arm_names,
    check_short_reruns,
    read_arm,
    read_short_rerun,
    refuse_mixed_units,
    refuse_same_file,
)
from parity.comparing.case import check_arm
from parity.comparing.statements import InputError
from parity.judging.curves.curve import Curve
from parity.judging.verdict.layer_statistics import LayerColumns
from parity.readers import read_run, run_name
from parity.readers.columns.names import OPTION, STEP
from parity.readers.columns.several_runs import SHOWN
from parity.readers.errors import ReadError, SeveralRunsError
from parity.readers.files.text import STDIN
from parity.readers.run_names import utf8_name
from parity.readers.run_tables.proposed_options import tried_options
from parity.readers.secondary.layer_snr import read_layer_table
from parity.readers.trackers.sources import is_source
from parity.wording import count

SHORT_RERUN = "--short-rerun"


def read_arms(
    runs: Sequence[str], options: ArmOptions, columns: ColumnNames, facts: ArmStatements
) -> list[Arm]:
    """Arms in order, baseline first, with [NAME=]FILE in `runs`; raises UsageError or ReadError."""
    if len(runs) < 2:
        raise UsageError(_only_one_run(runs[0], columns))
    if sum(file == "-" for file in [*runs, *options.baseline_run, *options.candidate_run]) > 1:
        raise UsageError('"-" was given more than once; stdin can be read only once')
    files = _named(runs)
    refuse_same_file([file for name, file in map(_optional_name, runs) if name is None])
    names = [name for name, _ in files]
    further = [pair(item, "--candidate-run") for item in options.candidate_run]
    facts.refuse_unknown(names)
    for name, _ in further:
        check_arm(name, names, "--candidate-run")
    grouped = {name: [file] for name, file in files}
    grouped[names[0]] += options.baseline_run
    for name, file in further:
        grouped[name].append(file)
    for arm in grouped.values():
        refuse_same_file(arm)
    files_given = [*(file for arm in grouped.values() for file in arm), *options.control]
    files_given += [pair(item, SHORT_RERUN)[1] for item in options.short_rerun]
    columns.refuse_unknown([*names, *(place for file in files_given for place in places(file))])
    in_arms = [(name, file) for name, paths in grouped.items() for file in paths]
    try:
        arms = [
            (
                name,
                read_arm(
                    name,
                    paths,
                    facts.of(name),
                    partial(columns.of_run, name),
                    _seeds(options.seeds, len(paths), name),
                ),
            )
            for name, paths in grouped.items()
        ]
    except ReadError as error:
        raise with_tried_command(error, in_arms, columns) from None
    try:
        refuse_mixed_units(arms, [], OPTION.format(STEP))
    except InputError as mixed:
        raise in_one_unit(mixed, in_arms, columns) from None
    return arms


def _only_one_run(run: str, columns: ColumnNames) -> str:
    """The line for a single file: the runs in it, if it holds several, and what to type to compare
    two of them.
    """
    name, file = _optional_name(run)
    if file != STDIN and not is_source(file) and (options := tried_options(file)):
        call = shlex.join(["parity", "compare", file, *options])
        return (
            f"{file} is a table of many runs; name the columns that tell them apart, and the "
            f"baseline: `{call}`"
        )
    try:
        if file != STDIN:
            read_run(file, columns=columns.of_run(name or "", file))
    except SeveralRunsError as error:
        runs = ", ".join(map(run_name, error.names[:SHOWN]))
        more = f" and {len(error.names) - SHOWN} more" if len(error.names) > SHOWN else ""
        call = shlex.join(["parity", "compare", *error.names[:2]])
        return (
            f"{file} holds {count(len(error.names), 'run')}: {runs}{more}; name a baseline and its "
            f"candidates: `{call}`, or use --arm-by"
        )
    except ReadError:
        pass  # what else may be wrong with the file comes up once there are two
    return (
        "only one run was given; expected a baseline and at least one candidate, or --arm-by for a "
        "table of many runs"
    )


def read_short_reruns(
    items: Sequence[str], arms: Sequence[Arm], columns: ColumnNames, facts: ArmStatements
) -> dict[str, list[Curve]]:
    """The reruns that were stopped early, by arm, with what is stated of the arm; `baseline` names
    the baseline whatever its name.
    """
    names = [name for name, _ in arms]
    files = []
    for arm, file in (pair(item, SHORT_RERUN) for item in items):
        name = names[0] if arm == "baseline" and arm not in names else arm
        check_arm(name, names, SHORT_RERUN)
        files.append((name, file))
    for name, number in Counter(name for name, _ in files).items():
        check_short_reruns(number, name, SHORT_RERUN)
    by_arm: dict[str, list[Curve]] = {}
    for name, file in files:
        run = read_short_rerun(
            file, (name, dict(arms)[name]), facts.of(name), columns.of_run(name, file)
        )
        by_arm.setdefault(name, []).append(run)
    return by_arm


def _seeds(text: str | None, runs: int, name: str) -> list[int] | None:
    """The seed of each run of an arm, if they are stated."""
    if text is None:
        return None
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds is {text!r}; expected whole numbers such as 0,1,2") from None
    if len(seeds) != runs:
        raise UsageError(
            f"--seeds has {count(len(seeds), 'seed')}, but {name} has {count(runs, 'run')}; "
            "expected one seed for each run of an arm"
        )
    return seeds


def _named(runs: Sequence[str]) -> list[tuple[str, str]]:
    """Arms as (name, file): NAME=FILE as given, else the file's stem, with its folder where two
    stems are equal.
    """
    split = [_optional_name(run) for run in runs]
    stems = [name or run_name(file) for name, file in split]
    files = [file for _, file in split]
    return list(
        zip(arm_names(stems, files, [name is not None for name, _ in split]), files, strict=True)
    )


def _optional_name(run: str) -> tuple[str | None, str]:
    name, _, file = run.partition("=")
    if name and file and not Path(run).exists():
        if utf8_name(name) != name:
            raise UsageError(
                f"{run!a:.80}: the name of the arm is not UTF-8 text; expected such text"
            )
        return name, file
    return None, run


def read_layer_tables(items: Sequence[str], candidates: Sequence[str]) -> dict[str, LayerColumns]:
    """Statistics by candidate; a file without a name belongs to the only candidate."""
    by_candidate: dict[str, LayerColumns] = {}
    for name, file in map(_optional_name, items):
        if name is None and len(candidates) > 1:
            raise UsageError(
                f"--layer-snr is {file!r}, but there are several candidates; expected NAME=FILE "
                f"with one of {', '.join(candidates)}"
            )
        arm = name or candidates[0]
        check_arm(arm, candidates, "--layer-snr")
        by_candidate[arm] = read_layer_table(file)
    return by_candidate
