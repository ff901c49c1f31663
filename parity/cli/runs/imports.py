"""The command `import`: record runs that were logged elsewhere as runs of a job."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

import typer

from parity.cli.connection import ServerQuery
from parity.cli.inputs.columns import pattern_option, stated_columns
from parity.cli.inputs.pairs import pairs
from parity.cli.inputs.table_arms import NEEDS_ARM_BY, NO_COLUMN, TableOptions, read_table
from parity.cli.runs.finished_runs import (
    FinishedRun,
    refuse_other_run,
    runs_of_table,
    why_incomplete,
)
from parity.cli.terminal.option_words import ARMS, TABLE
from parity.cli.terminal.options import Options, argument, flag, flat, option, refuse, repeatable
from parity.cli.terminal.output import print_json
from parity.cli.terminal.wrong_calls import UsageError
from parity.client.rest import UnreachableError
from parity.client.whole_run import send_run
from parity.comparing.arms import refuse_unmatched_rows
from parity.gate.exit_codes import EXIT_CODES
from parity.judging.curves.curve import Curve
from parity.readers import read_run
from parity.wording import count

app = typer.Typer()


class ImportedRun(TypedDict):
    """A run that was recorded from a file: how many steps were logged, the first and the last one,
    and their most common distance, `stride`. `gaps` counts larger distances, `duplicates` the steps
    that were logged again; `notes` say how the file was read.
    """

    run: str
    file: str
    steps: int
    first: int | None
    last: int | None
    stride: int | None
    gaps: int
    duplicates: int
    notes: list[str]


class ImportOptions(Options, panel=ARMS):
    """What is stated of finished runs."""

    as_run: list[str] = repeatable(
        "Id of the run that a file holds; once per file, in the same order.", "RUN"
    )
    job: str | None = option(
        None,
        "Id of the job whose arms and runs the table holds, instead of --as-run.",
        "JOB",
        rich_help_panel=TABLE,
    )
    column: list[str] = repeatable(
        "Name the column of step, loss, grad_norm, ...; repeatable. [default: well-known names]",
        "[FILE:]QUANTITY=NAME",
    )
    pattern: list[str] = pattern_option()
    context: list[str] = repeatable(
        "State what the runs ran on; arms that differ cannot pass. Repeatable.", "KEY=VALUE"
    )
    recipe: str | None = option(
        None, "State the recipe of these runs; it must be the arm's.", "RECIPE"
    )
    allow_incomplete: bool = flag(
        "--allow-incomplete", "Import runs that have gaps, or lack their beginning or end."
    )


@app.command(
    name="import", epilog="parity import baseline.csv nvfp4.csv --as-run RUN1 --as-run RUN2"
)
@flat
def import_runs(
    files: Annotated[
        list[str],
        argument(
            "FILE...",
            "Finished runs: CSV, JSON lines, logs, Parquet, TensorBoard, or a tracker's "
            "(mlflow:RUN_ID).",
        ),
    ],
    stated: ImportOptions,
    table: Annotated[TableOptions, ("arm_by", "run_by", "step", "loss")],
    at: ServerQuery,
) -> int:
    """Record finished runs of a job with engine external. Each must be complete: every step of its
    stride, from first to last.
    """
    imported: list[ImportedRun] = []
    facts = pairs(stated.context, "--context")
    arms: Mapping[str, Sequence[Curve]] = {}
    finished: list[FinishedRun] = []
    if table.arm_by is None:
        refuse(table.given() | stated.given("job"), NEEDS_ARM_BY)
        finished = _runs_of_files(files, stated, facts)
    else:
        refuse(stated.given("as_run"), "is not used with --arm-by; name the job with --job")
        refuse(stated.given("column", "pattern"), NO_COLUMN)
        refuse(
            stated.given("recipe"),
            "is not used with --arm-by; the job states the recipe of each arm",
        )
        if stated.job is None:
            raise UsageError(
                "--job is missing; expected the id of the job whose arms the table holds"
            )
        arms = read_table(files, table)
    seeds: dict[int, int] = {}
    with at.client() as client:
        if stated.job is not None:
            finished = runs_of_table(files[0], arms, client.job(stated.job), facts)
        for finished_run in finished:
            awaited = client.run(finished_run.run)
            missing = why_incomplete(finished_run.curve.completeness, awaited["planned_steps"])
            if missing and not stated.allow_incomplete:
                raise UsageError(
                    f"{finished_run.file}: {missing}; import the whole run, or use "
                    "--allow-incomplete (then it cannot pass)"
                )
            refuse_other_run(finished_run, awaited, stated.recipe, seeds)
        for finished_run in finished:
            file, run, curve = finished_run.file, finished_run.run, finished_run.curve
            if different := send_run(
                client,
                run,
                curve,
                finished_run.context,
                stated.recipe or curve.recipe,
                curve.rounding,
            ):
                raise UnreachableError(
                    f"{file}: {different}; the run is not finished: import it again"
                )
            steps = curve.completeness
            imported.append(
                ImportedRun(
                    run=run,
                    file=file,
                    steps=steps.count,
                    first=steps.first,
                    last=steps.last,
                    stride=steps.stride,
                    gaps=steps.gaps,
                    duplicates=steps.duplicates,
                    notes=list(curve.notes),
                )
            )
            if at.as_json:
                continue
            print(
                f"{run} {file}: {steps.count} steps, {steps.first} to {steps.last}, stride "
                f"{steps.stride}, {steps.gaps} gaps, {steps.duplicates} steps logged again"
            )
            for note in curve.notes:
                print(f"  {note}", file=sys.stderr)
    if at.as_json:
        print_json(imported)
    return EXIT_CODES["pass"]


def _runs_of_files(
    files: list[str], stated: ImportOptions, facts: Mapping[str, str]
) -> list[FinishedRun]:
    """The runs that files hold, one each; raises UsageError where --as-run does not name as many
    runs.
    """
    as_run = stated.as_run
    if not as_run:
        raise UsageError(
            "--as-run is missing; expected the id of the run in each file, or --arm-by and --job "
            "for a table of many runs"
        )
    if len(as_run) != len(files):
        raise UsageError(
            f"{count(len(files), 'file')} but {len(as_run)} x --as-run; expected one for each "
            "file, in the same order"
        )
    columns = stated_columns(stated.column, stated.pattern)
    columns.refuse_unknown(files)
    curves = [read_run(file, columns=columns.of(file), recipe=stated.recipe) for file in files]
    refuse_unmatched_rows([(run, [curve]) for run, curve in zip(as_run, curves, strict=True)])
    return [
        FinishedRun(run=run, file=file, curve=curve, context={**curve.context, **facts})
        for run, file, curve in zip(as_run, files, curves, strict=True)
    ]
