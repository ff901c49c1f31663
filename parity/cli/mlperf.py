"""The command `mlperf`: do the runs in folders of MLPerf results converge as the reference did?"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from parity.cli.terminal.option_words import ARMS, OUTPUT, POLICY
from parity.cli.terminal.options import argument, flag, flat, option
from parity.cli.terminal.shared_options import Json
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.convergence import CONFIDENCE, NOTICE, ResultFolder, judge_folders
from parity.comparing.convergence_document import convergence_document
from parity.gate.exit_codes import exit_code
from parity.inert import inert
from parity.judging.policy import parse_margin
from parity.readers.logs.mlperf_convergence import read_reference_points
from parity.wording import level_percent, short_percent, signed

app = typer.Typer()

_HEADINGS = (
    "folder",
    "precision",
    "batch",
    "converged",
    "samples",
    "reference",
    "more samples",
    f"{level_percent(CONFIDENCE)} interval",
    "verdict",
    "why",
)


@app.command("mlperf", epilog="parity mlperf results/8xB200 --rcp rcps_llama31_8b.json")
@flat
def judge_results(
    folders: Annotated[
        list[str],
        argument("FOLDER...", "Folders of MLPerf result files, with their subfolders."),
    ],
    rcp: Annotated[
        str,
        typer.Option(
            "--rcp",
            help="Read the reference convergence points of the benchmark from this file.",
            metavar="rcps_BENCHMARK.json",
            rich_help_panel=ARMS,
        ),
    ],
    margin: str = option(
        "10%",
        "Set how many more samples than the reference's are accepted.",
        "PERCENT",
        rich_help_panel=POLICY,
    ),
    markdown: bool = flag(
        "--markdown", "Print a Markdown table instead of text.", rich_help_panel=OUTPUT
    ),
    *,
    out: Json,
) -> int:
    """Judge how many samples MLPerf runs need, beside the reference's and a margin.

    The runs pass if they reach the benchmark's target with surely less than the margin of further
    samples than the runs of its reference convergence points.

    The checker of MLPerf asks whether runs converge too fast; this asks whether they converge too
    slowly. The answer is not verified by MLCommons.
    """
    if out.as_json and markdown:
        raise UsageError("--json and --markdown exclude each other; give only one of them")
    share = _share(margin)
    points = read_reference_points(Path(rcp))
    judged = judge_folders([Path(folder) for folder in folders], points, share)
    about = f"Margin: {short_percent(share)} more samples than the reference. {NOTICE}"
    if judged.left_out:
        about += f" Left out, as runs of other benchmarks: {', '.join(judged.left_out)}."
    rows = [_cells(result) for result in judged.results]
    if markdown:
        out.show(None, [*_markdown_table(rows), "", about])
    else:
        document = convergence_document(points[0].benchmark, share, judged)
        out.show_rows(document, _HEADINGS, rows)
        if not out.as_json:
            print(about, file=sys.stderr)
    return exit_code([{"verdict": result.answer.verdict} for result in judged.results])


def _share(margin: str) -> float:
    amount = parse_margin(margin, "--margin")
    if amount.unit != "relative":
        raise UsageError(f"--margin is {margin}; expected a percentage of samples such as 10%")
    return amount.value


def _cells(result: ResultFolder) -> tuple[str, ...]:
    tax, reference = result.answer.tax, result.reference
    return (
        result.folder,
        result.precision or "not stated",
        "" if result.batch_size is None else str(result.batch_size),
        f"{result.converged} of {result.runs}",
        "" if tax is None else f"{tax.geometric[1]:,.0f}",
        ""
        if reference is None
        else f"{'' if tax is None else f'{tax.geometric[0]:,.0f}, '}{len(reference.samples)} runs "
        f"in {reference.precision or 'a format not stated'}",
        "" if tax is None else _percent(tax.estimate),
        "" if tax is None else f"{_percent(tax.lo)} to {_percent(tax.hi)}",
        result.answer.verdict,
        result.answer.reason,
    )


def _percent(share: float) -> str:
    return f"{signed(100.0 * share, 1)} %"


def _markdown_table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (_HEADINGS, ["---"] * len(_HEADINGS), *rows):
        yield f"| {' | '.join(map(_markdown_cell, cells))} |"


def _markdown_cell(text: str) -> str:
    return inert(text).replace("|", "\\|")
