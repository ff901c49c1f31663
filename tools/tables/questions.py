"""The outputs in docs/fallback.md, docs/frameworks.md and docs/gradient-format.md, and the table of
gradients.
"""

import csv
import functools
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from parity.frozen import frozen
from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from tools.tables.generated import DOCS, ROOT, GeneratedTable, Parts
from tools.tables.printed import example

FOLDER = ROOT / "examples" / "questions"
BF16_AND_NVFP4 = "--recipe bf16=bf16 --recipe nvfp4=nvfp4 --planned-steps 200"
GRADIENTS: Mapping[str, tuple[str, str, str]] = {
    "mxfp8": ("`mxfp8`", "E4M3", "32 values"),
    "mxfp8-e5m2": ("`mxfp8`, `gradient_format: e5m2`", "E5M2", "32 values"),
    "fp8": ("`fp8_current`", "E5M2", "tensor"),
    "fp8-e4m3": ("`fp8_current`, `gradient_format: e4m3`", "E4M3", "tensor"),
}


@frozen
class Example:
    """A command of a page: the folder in which it is typed, its exit code, and the first word of
    the output that the page leaves out ("" for all of it).
    """

    folder: str
    command: str
    code: int
    before: str = ""


EXAMPLES: Mapping[str, Example] = {
    "fell back": Example(
        folder="fallback",
        command=f"parity compare bf16.csv nvfp4=fell-back.csv \\\n  {BF16_AND_NVFP4}",
        code=3,
        before=" ",
    ),
    "nvfp4": Example(
        folder="fallback",
        command=f"parity compare bf16.csv nvfp4.csv \\\n  {BF16_AND_NVFP4}",
        code=3,
        before=" ",
    ),
    "two blocks": Example(
        folder="fallback",
        command=f"parity compare bf16.csv nvfp4=two-blocks.csv \\\n  {BF16_AND_NVFP4}",
        code=0,
        before=" ",
    ),
    "golden of jax": Example(
        folder="frameworks",
        command="parity golden update jax.golden.jsonl jax.csv --recipe bf16",
        code=0,
    ),
    "same numerics": Example(
        folder="frameworks",
        command="parity golden check torch.csv jax.golden.jsonl",
        code=0,
        before="Same",
    ),
    "other pairs": Example(
        folder="frameworks",
        command="parity golden check torch-neighbours.csv jax.golden.jsonl",
        code=1,
    ),
    "to the end": Example(
        folder="frameworks",
        command="parity compare jax.csv torch.csv --planned-steps 200 \\\n"
        "  --recipe jax=bf16 --recipe torch=bf16",
        code=0,
        before="Cost",
    ),
    "gradient formats": Example(
        folder="gradients",
        command="parity compare bf16.csv mxfp8.csv mxfp8-e5m2.csv fp8.csv fp8-e4m3.csv \\\n"
        "  --planned-steps 300 --recipe bf16=bf16 --recipe mxfp8=mxfp8 \\\n"
        "  --recipe mxfp8-e5m2=mxfp8 --recipe fp8=fp8 --recipe fp8-e4m3=fp8",
        code=0,
        before="Next",
    ),
}


def gradient_table() -> str:
    """What the gradients of each arm lose: medians over layers and watched steps."""
    with (FOLDER / "gradients" / "layers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table: list[Cells] = [
        (
            "recipe",
            "gradients",
            "a scale for each",
            "signal to noise of gradients",
            "of the weights' gradients",
            "values lost as 0",
        )
    ]
    for arm, (recipe, kind, scaled) in GRADIENTS.items():
        quiet, weights, lost = (
            statistics.median(float(row[column]) for row in rows if row["arm"] == arm)
            for column in ("grad/snr_db", "kernel_grad/snr_db", "grad/underflow_share")
        )
        table.append(
            (recipe, kind, scaled, f"{quiet:.1f} dB", f"{weights:.1f} dB", f"{100 * lost:.2g} %")
        )
    return markdown_table(table)


@functools.cache
def printed(folder: str) -> Mapping[str, str]:
    """Each command of a folder with its output, run one after the other in a copy of the folder."""
    with tempfile.TemporaryDirectory() as copy:
        place = Path(shutil.copytree(FOLDER / folder, Path(copy) / folder))
        return {
            name: example(typed.command, place, typed.before)
            for name, typed in EXAMPLES.items()
            if typed.folder == folder
        }


def _printed(folder: str, name: str) -> str:
    return printed(folder)[name]


def _parts(folder: str) -> dict[str, functools.partial[str]]:
    return {
        name: functools.partial(_printed, folder, name)
        for name, typed in EXAMPLES.items()
        if typed.folder == folder
    }


PAGES: Mapping[str, Parts] = {
    "fallback": _parts("fallback"),
    "frameworks": _parts("frameworks"),
    "gradient-format": {**_parts("gradients"), "gradients": gradient_table},
}
TABLE = GeneratedTable(
    name="questions", parts={DOCS / f"{page}.md": parts for page, parts in PAGES.items()}
)
