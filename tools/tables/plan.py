"""The outputs and the table of runs in docs/plan.md."""

import functools
import json
from collections.abc import Mapping

from parity.report.evaluation_tables import Cells
from parity.report.formats.markdown import markdown_table
from tools.tables.generated import DOCS, GeneratedTable, Parts
from tools.tables.printed import example, run

NOISE_TABLE = "examples/planning/noise.csv"
PAIR = (
    "parity plan --planned-steps 10000 \\\n  --baseline-recipe fp8_current --candidate-recipe "
    "nvfp4 \\\n  --step-seconds 5 --devices 8"
)
COMMANDS: Mapping[str, str] = {
    "assumed": PAIR,
    "own family": f"{PAIR} \\\n  --noise-table {NOISE_TABLE} --family my-8B \\\n  --margin 0.5% "
    '--budget "500 hours"',
}
MARGINS = ("1%", "0.5%", "0.25%")
CANDIDATES = ("mxfp8", "nvfp4")


def cheapest(margin: str, candidate: str) -> tuple[int, int]:
    """Baseline and candidate runs of the cheapest plan that decides the margin against FP8, for
    10,000 steps and assumed noise.
    """
    plan = json.loads(
        run(
            f"parity plan --planned-steps 10000 --margin {margin} --baseline-recipe fp8_current "
            f"--candidate-recipe {candidate} --json"
        )
    )
    design = plan["design"] if plan["decides"] else plan["cheapest"]
    return design["baseline_runs"], design["candidate_runs"]


def runs_table() -> str:
    """The cheapest runs by margin and candidate."""
    rows: list[Cells] = [
        ("margin, of the loss", *(f"FP8 against {candidate.upper()}" for candidate in CANDIDATES))
    ]
    for margin in MARGINS:
        numbers = (cheapest(margin, candidate) for candidate in CANDIDATES)
        rows.append(
            (
                margin.replace("%", " %"),
                *(f"{baseline} + {other} runs" for baseline, other in numbers),
            )
        )
    return markdown_table(rows)


PARTS: Parts = {
    **{name: functools.partial(example, command) for name, command in COMMANDS.items()},
    "runs": runs_table,
}


TABLE = GeneratedTable(name="plan", parts={DOCS / "plan.md": PARTS})
